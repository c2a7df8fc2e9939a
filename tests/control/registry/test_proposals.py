"""Pairs of credential and target in the registry: who may make one, and what waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bascule.control.registry.errors import NotAccepted, NotProposed
from bascule.control.registry.loader import Loader
from bascule.control.registry.masks import MASK
from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.registry.sqlite_store import SqliteStore
from bascule.control.registry.store import MAX_PROPOSALS, Author, Store
from bascule.errors import InvalidRecord
from bascule.model.kinds import Kind
from bascule.policy.pairs import Pair
from tests.control.registry.build import server

pytestmark = pytest.mark.requirement("security:pairs")

ADMIN = Author("ada")
OPERATOR = Author("otto", trusted=False)


def remote(server_id: str = "far", url: str = "https://a.example", **http: Any) -> dict[str, Any]:
    return {"server_id": server_id, "transport": "http", "http": {"url": url, **http}}


async def refused(service: RegistryService, plain: dict[str, Any]) -> NotAccepted:
    with pytest.raises(NotAccepted) as caught:
        await service.put("server", plain["server_id"], plain, OPERATOR)
    return caught.value


async def test_a_refused_write_changes_nothing_and_waits(service: RegistryService):
    error = await refused(service, remote(auth_ref="gh"))
    assert error.code == "pair_not_accepted"
    assert "server 'far': secret://gh for https://a.example" in str(error)
    assert "bascule servers accept far" in str(error)
    assert service.view.revision == 0
    [waiting] = await service.proposals()
    assert (waiting.kind, waiting.id, waiting.actor, waiting.base) == ("server", "far", "otto", 0)
    written = await service.accept("server", "far", ADMIN, digest=waiting.digest)
    assert written.stored("server", "far").record == waiting.record
    assert await service.proposals() == ()
    with pytest.raises(NotProposed):
        await service.accept("server", "far", ADMIN)


async def test_nobody_accepts_his_own(service: RegistryService):
    await refused(service, remote(auth_ref="gh"))
    with pytest.raises(NotAccepted):
        await service.accept("server", "far", OPERATOR)


async def test_a_newer_proposal_takes_the_place_of_an_older_one(service: RegistryService):
    await refused(service, remote(auth_ref="gh"))
    [first] = await service.proposals()
    await refused(service, remote(auth_ref="other"))
    [second] = await service.proposals()
    assert first.digest != second.digest
    with pytest.raises(NotProposed):
        await service.accept("server", "far", ADMIN, digest=first.digest)


async def test_a_dry_run_is_refused_and_leaves_nothing_waiting(service: RegistryService):
    with pytest.raises(NotAccepted) as caught:
        await service.import_records([("server", remote(auth_ref="gh"))], "preview", OPERATOR)
    assert "bascule servers accept" not in str(caught.value)
    assert await service.proposals() == ()


async def test_so_many_proposals_wait_and_no_more(service: RegistryService):
    for number in range(MAX_PROPOSALS + 2):
        await refused(service, remote(f"s{number}", auth_ref="gh"))
    waiting = await service.proposals()
    assert len(waiting) == MAX_PROPOSALS
    assert waiting[0].id == "s2"


async def test_one_record_of_many_refuses_all_and_waits_alone(service: RegistryService):
    records: list[tuple[Kind, dict[str, Any]]] = [
        ("server", server("fine")),
        ("server", remote(auth_ref="gh")),
    ]
    with pytest.raises(NotAccepted):
        await service.import_records(records, "upsert", OPERATOR)
    assert service.view.revision == 0
    assert [one.id for one in await service.proposals()] == ["far"]


async def test_pairs_of_files_are_their_owners_and_stay_accepted_when_adopted(
    service: RegistryService, tmp_path: Path
):
    text = 'server_id = "far"\ntransport = "http"\n[http]\nurl = "https://a.example"\n'
    (tmp_path / "far.toml").write_text(text + 'auth_ref = "gh"\n', encoding="utf-8")
    loader = Loader(service, tmp_path)
    await loader.load()
    await service.put("server", "same", remote("same", auth_ref="gh"), OPERATOR)
    await service.adopt("server", "far", OPERATOR)
    await service.patch("server", "far", {"enabled": False}, OPERATOR)
    await refused(service, remote(url="https://b.example", auth_ref="gh"))


async def test_what_a_file_no_longer_has_is_accepted_no_longer(
    service: RegistryService, tmp_path: Path
):
    file = tmp_path / "far.toml"
    text = 'server_id = "far"\ntransport = "http"\n[http]\nurl = "https://a.example"\n'
    file.write_text(text + 'auth_ref = "gh"\n', encoding="utf-8")
    loader = Loader(service, tmp_path)
    await loader.load()
    file.write_text(text, encoding="utf-8")
    await loader.load()
    await refused(service, remote("same", auth_ref="gh"))


async def test_kept_pairs_outlive_the_process(tmp_path: Path):
    for step in ("make", "again"):
        store = await SqliteStore(tmp_path / "r.db", synchronous="OFF").open()
        async with open_registry(store) as service:
            if step == "make":
                await service.put("server", "far", remote(auth_ref="gh"), ADMIN)
                await service.delete("server", "far", OPERATOR)
                await refused(service, remote("other", auth_ref="gh2"))
            else:
                assert [one.id for one in await service.proposals()] == ["other"]
                await service.put("server", "far", remote(auth_ref="gh"), OPERATOR)


async def test_stores_keep_and_forget_pairs(store: Store):
    a, b = Pair("secret://a", "https://a"), Pair("secret://a", "x", ("HOST=h",))
    await store.keep_pairs([a, b])
    await store.keep_pairs([a])
    assert await store.kept_pairs() == {a, b}
    await store.forget_pairs([a])
    assert await store.kept_pairs() == {b}


# Literals of a process


async def test_an_operator_keeps_no_literal_credential_for_another_command_line(
    service: RegistryService,
):
    stdio = {"command": "gh", "env": {"API_KEY": "literal-key", "LOG": "warn"}}
    await service.put("server", "fs", server("fs", stdio=stdio), ADMIN)
    moved = {"stdio": {"command": "evil"}}
    whole = server("fs", stdio={"command": "evil", "env": {"API_KEY": MASK, "LOG": MASK}})
    with pytest.raises(InvalidRecord, match=r"stdio\.env\.API_KEY: was given for another"):
        await service.patch("server", "fs", moved, OPERATOR)
    with pytest.raises(InvalidRecord, match=r"stdio\.env\.API_KEY"):
        await service.put("server", "fs", whole, OPERATOR)
    await service.patch("server", "fs", {"stdio": {"env": {"LOG": "debug"}}}, OPERATOR)
    given = {"stdio": {"command": "his", "env": {"API_KEY": "his own"}}}
    await service.patch("server", "fs", given, OPERATOR)
    await service.patch("server", "fs", moved, ADMIN)


async def test_a_hidden_literal_stays_with_its_program_whatever_it_is_called(
    service: RegistryService,
):
    """Whoever may not see it could start a program of their own with it."""
    stdio = {"command": "db", "env": {"DB": "hunter2", "DEBUG": "1"}}
    await service.put("server", "db", server("db", stdio=stdio), ADMIN)
    with pytest.raises(InvalidRecord, match=r"^stdio\.env\.DB: was given for another") as refused:
        await service.patch("server", "db", {"stdio": {"command": "evil"}}, OPERATOR)
    assert len(refused.value.problems) == 1
    await service.patch("server", "db", {"stdio": {"command": "x", "env": {"DB": "own"}}}, OPERATOR)
    wasm = {"path": "/srv/good.wasm", "env": {"API_KEY": "literal-key"}}
    await service.put("task", "t", {"task_id": "t", "executable": wasm}, ADMIN)
    for moved in ({"path": "/tmp/evil.wasm"}, {"args": ["--show"]}):
        with pytest.raises(InvalidRecord, match=r"executable\.env\.API_KEY: was given"):
            await service.patch("task", "t", {"executable": moved}, OPERATOR)
    await service.patch("task", "t", {"name": "another"}, OPERATOR)


# What shows in the process list


@pytest.mark.requirement("references:visible-credentials")
async def test_a_visible_credential_that_is_there_already_may_stay(
    service: RegistryService, tmp_path: Path
):
    text = 'server_id = "fs"\ntransport = "stdio"\n[stdio]\ncommand = "x"\nargs = ["${MY_TOKEN}"]\n'
    (tmp_path / "fs.toml").write_text(text, encoding="utf-8")
    await Loader(service, tmp_path).load()
    await service.adopt("server", "fs", ADMIN)
    await service.patch("server", "fs", {"enabled": False}, ADMIN)
    await service.patch("server", "fs", {"stdio": {"args": ["-v", "${MY_TOKEN}"]}}, ADMIN)
    with pytest.raises(InvalidRecord, match="looks like a credential"):
        await service.patch("server", "fs", {"stdio": {"args": ["${OTHER_TOKEN}"]}}, ADMIN)
