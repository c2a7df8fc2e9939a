"""Secrets: who is given one, what is shown, what is noted, and what never leaves."""

from __future__ import annotations

import asyncio
import os
import re
import traceback
from pathlib import Path

import pytest

from bascule.audit.events import Act
from bascule.audit.ledger import LedgerUnavailable, MemoryLedger
from bascule.control.envelope import new_key
from bascule.control.sealed_secrets import NewVersion
from bascule.control.secret_keys import VARIABLE
from bascule.control.secret_store import POLL_SECONDS
from bascule.control.secrets import MAX_VALUE_BYTES, Secrets
from bascule.db.errors import StoreUnavailable
from bascule.db.private_files import KeyUnusable
from bascule.errors import InvalidRecord, SecretUnbound, ServerUnavailable
from bascule.model.secret_use import SecretUse, backend_use, server_use
from bascule.model.snapshot import Snapshot
from bascule.policy.known_values import spellings
from bascule.testing.clock import FakeClock
from bascule.wire.api.secrets import NewSecret
from tests.control.keeping_secrets import (
    BY,
    RECORDS,
    USE,
    VALUE,
    House,
    acts,
    backend,
    opened,
    server,
)
from tests.scale import scaled
from tests.waits import Heard, advanced_until


async def test_a_secret_is_given_to_whom_it_is_bound_and_survives_a_restart(
    tmp_path: Path,
    house: House,
):
    async with house.opened(tmp_path) as secrets:
        assert await secrets.set("token", VALUE, by=BY, bind=[USE]) == 1
    async with house.opened(tmp_path) as secrets:
        assert await secrets.secret("token", USE) == VALUE


async def test_a_new_version_takes_the_place_of_the_old_and_bindings_stay(
    tmp_path: Path,
    house: House,
):
    async with house.opened(tmp_path) as secrets:
        await secrets.set("token", VALUE, by=BY, bind=[USE])
        assert await secrets.secret("token", USE) == VALUE
        assert await secrets.set("token", "another-value", by=BY) == 2
        assert await secrets.secret("token", USE) == "another-value"
        assert secrets.known_values == {VALUE, "another-value"}


async def test_a_removed_secret_is_gone_with_its_bindings_and_its_number_never_comes_again(
    tmp_path: Path,
    house: House,
):
    async with house.opened(tmp_path) as secrets:
        await secrets.set("token", VALUE, by=BY, bind=[USE])
        await secrets.remove("token", by=BY)
        with pytest.raises(KeyError, match="token"):
            await secrets.secret("token", USE)
        assert await secrets.listing() == ()
        assert await secrets.set("token", "another-value", by=BY) == 2
        with pytest.raises(SecretUnbound):
            await secrets.secret("token", USE)


async def test_what_is_not_bound_is_not_given_and_the_message_says_who_can_bind(
    tmp_path: Path,
    house: House,
):
    async with house.opened(tmp_path) as secrets:
        await secrets.set("token", VALUE, by=BY, bind=[USE])
        stranger = server_use(server("other"))
        with pytest.raises(SecretUnbound) as caught:
            await secrets.secret("token", stranger)
    assert isinstance(caught.value, ServerUnavailable)
    assert caught.value.reason == "secret_unbound"
    assert "bascule secrets bind token --server other" in str(caught.value)
    assert "administrator" in str(caught.value)


async def test_a_record_that_leads_elsewhere_is_not_bound_any_more(tmp_path: Path, house: House):
    async with house.opened(tmp_path) as secrets:
        await secrets.set("token", VALUE, by=BY, bind=[USE])
        with pytest.raises(SecretUnbound):
            await secrets.secret("token", server_use(server(host="thief.example.com")))
        with pytest.raises(SecretUnbound):
            await secrets.secret("token", SecretUse("backend", "github", USE.digest))


async def test_a_secret_is_unbound_from_one_and_stays_with_the_other(tmp_path: Path, house: House):
    model = backend_use(backend())
    async with house.opened(tmp_path) as secrets:
        await secrets.set("token", VALUE, by=BY, bind=[USE])
        await secrets.bind("token", model, by=BY)
        assert await secrets.unbind("token", "server", "github", by=BY)
        assert not await secrets.unbind("token", "server", "github", by=BY)
        assert await secrets.secret("token", model) == VALUE
        with pytest.raises(SecretUnbound):
            await secrets.secret("token", USE)


async def test_nothing_is_done_to_a_name_that_is_none_and_nothing_is_noted_of_it(
    tmp_path: Path,
    house: House,
):
    ledger = MemoryLedger()
    async with house.opened(tmp_path, ledger=ledger) as secrets:
        for work in (
            secrets.bind("none", USE, by=BY),
            secrets.unbind("none", "server", "github", by=BY),
            secrets.remove("none", by=BY),
            secrets.get("none", by=BY),
            secrets.secret("none", USE),
        ):
            with pytest.raises(KeyError):
                await work
    assert acts(ledger) == []


#: Values that are refused; none of them is in the message.
UNFIT = {
    "nothing": "",
    "too much": "secretive" * 8_000,
    "a NUL": "secretive\0secretive",
    "half a character": "secretive\ud800",
}


@pytest.mark.parametrize("case", UNFIT)
async def test_an_unfit_value_is_refused_and_not_repeated(tmp_path: Path, case: str, house: House):
    async with house.opened(tmp_path) as secrets:
        with pytest.raises(InvalidRecord) as caught:
            await secrets.set("token", UNFIT[case], by=BY)
        assert await secrets.listing() == ()
    assert caught.value.problems[0].startswith("value: ")
    assert "secretive" not in "".join(traceback.format_exception(caught.value))


async def test_the_largest_value_is_kept(tmp_path: Path, house: House):
    async with house.opened(tmp_path) as secrets:
        for value in ("x", "é" * (MAX_VALUE_BYTES // 2)):
            await secrets.set("token", value, by=BY)
            assert await secrets.get("token", by=BY) == value


@pytest.mark.parametrize(
    "name",
    ["", "a b", "../a", "-a", "a" * 65, "a/b", "gh" + "p_a1B2c3D4e5F6g7H8i9J0", "7f" * 16, "é"],
)
async def test_an_unfit_name_is_refused_and_not_repeated(tmp_path: Path, name: str, house: House):
    async with house.opened(tmp_path) as secrets:
        with pytest.raises(InvalidRecord) as caught:
            await secrets.set(name, VALUE, by=BY)
    assert caught.value.problems[0].startswith("name: ")
    assert len(name) < 5 or name not in str(caught.value)


async def test_everything_done_is_noted_by_whom_and_before_it_is_done(tmp_path: Path, house: House):
    ledger = MemoryLedger()
    async with house.opened(tmp_path, ledger=ledger) as secrets:
        await secrets.set("token", VALUE, by=BY, bind=[USE])
        await secrets.bind("token", backend_use(backend()), by=BY)
        await secrets.unbind("token", "server", "github", by=BY)
        await secrets.rekey(by=BY)
        await secrets.get("token", by=BY)
        await secrets.remove("token", by=BY)
    assert acts(ledger) == [
        ("set", "token", BY, 1, None),
        ("bound", "token", BY, 1, "github"),
        ("bound", "token", BY, None, "backend:main"),
        ("unbound", "token", BY, None, "github"),
        ("rekeyed", "*", BY, None, None),
        ("read", "token", BY, None, None),
        ("removed", "token", BY, None, None),
    ]
    assert VALUE not in repr(ledger.events)


async def test_what_cannot_be_noted_is_not_done(tmp_path: Path, house: House):
    async with house.opened(tmp_path) as secrets:
        await secrets.set("token", VALUE, by=BY, bind=[USE])

    async def refuse(act: Act) -> None:
        raise LedgerUnavailable("the disk is full")

    async with house.opened(tmp_path, note=refuse) as secrets:
        before = await secrets.listing()
        for work in (
            secrets.set("token", "another-value", by=BY),
            secrets.set("other", "another-value", by=BY),
            secrets.bind("token", backend_use(backend()), by=BY),
            secrets.unbind("token", "server", "github", by=BY),
            secrets.remove("token", by=BY),
            secrets.rekey(by=BY),
            secrets.get("token", by=BY),
        ):
            with pytest.raises(LedgerUnavailable):
                await work
        assert await secrets.listing() == before
        assert await secrets.secret("token", USE) == VALUE


async def test_the_listing_says_who_uses_a_secret_and_which_bindings_do_not_hold(
    tmp_path: Path,
    house: House,
):
    records = RECORDS
    async with house.opened(tmp_path, records=lambda: records) as secrets:
        gone = server_use(server("gone"))
        await secrets.set("token", VALUE, by=BY, bind=[USE, gone, backend_use(backend())])
        await secrets.set("unused", VALUE, by="eve")
        [shown, unused] = await secrets.listing()
        assert [(b.kind, b.id, b.state) for b in shown.bound] == [
            ("backend", "main", "bound"),
            ("server", "github", "bound"),
            ("server", "gone", "missing"),
        ]
        assert [(u.kind, u.id) for u in shown.used_by] == [
            ("server", "github"),
            ("server", "plain"),
            ("backend", "main"),
        ]
        assert (shown.version, shown.changed_by, shown.bound[0].bound_by) == (1, BY, BY)
        assert (unused.bound, unused.used_by, unused.changed_by) == ((), (), "eve")
        records = Snapshot(servers={"github": server(host="thief.example.com")})
        [shown, _] = await secrets.listing()
        assert [b.state for b in shown.bound if b.id == "github"] == ["changed"]


@pytest.mark.requirement("security:secrets:never-returned")
async def test_no_listing_has_a_value(tmp_path: Path, house: House):
    values = [f"canary-{number:04}-{os.urandom(8).hex()}" for number in range(scaled(1_000))]
    async with house.opened(tmp_path, records=lambda: RECORDS) as secrets:
        for number, value in enumerate(values):
            await secrets.set(f"s{number}", value, by=BY, bind=[USE])
        said = repr(await secrets.listing()) + repr(secrets)
    assert [value for value in values if _found(value, said.encode())] == []


@pytest.mark.requirement("security:secrets:encrypted")
async def test_no_file_of_the_store_has_a_value_in_any_spelling(tmp_path: Path):
    values = [f"canary/{number:04}+{os.urandom(8).hex()} é" for number in range(scaled(1_000))]
    async with opened(tmp_path) as secrets:
        for number, value in enumerate(values):
            await secrets.set(f"s{number % 50}", value, by=BY, bind=[USE])
        await secrets.rekey(by=BY)
        assert (tmp_path / "secrets.db-wal").exists()
        written = _contents(tmp_path)
    written += _contents(tmp_path)
    assert len(written) > 10_000
    assert [value for value in values if _found(value, written)] == []


def _contents(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def _found(value: str, content: bytes) -> bool:
    wide = (value.encode("utf-16-le"), value.encode("utf-16-be"), value[::-1].encode())
    return any(form in content for form in (*(s.encode() for s in spellings(value)), *wide))


async def test_nothing_that_holds_a_value_shows_it(tmp_path: Path, house: House):
    held = (NewVersion("token", 1, VALUE, BY), NewSecret(value=VALUE), Secrets.open(tmp_path))
    async with house.opened(tmp_path) as secrets:
        await secrets.set("token", VALUE, by=BY, bind=[USE])
        with pytest.raises(SecretUnbound) as caught:
            await secrets.secret("token", server_use(server("other")))
        said = "".join(traceback.format_exception(caught.value))
        texts = [*map(repr, held), *map(str, held), f"{held}", repr(secrets), said]
    key = new_key()
    texts += [repr(key), str(key), f"{key}"]
    for text in texts:
        assert VALUE not in text
        assert key.raw.hex() not in text
        assert repr(key.raw) not in text


async def test_subscribers_hear_of_values_and_bindings_that_change_and_of_nothing_else(
    tmp_path: Path,
    house: House,
):
    heard: Heard[str] = Heard()
    async with house.opened(tmp_path) as secrets:
        end = secrets.subscribe(heard.hear)
        await secrets.set("token", VALUE, by=BY)
        await secrets.set("other", VALUE, by=BY)
        await secrets.bind("token", USE, by=BY)
        await secrets.bind("token", USE, by=BY)
        await secrets.rekey(by=BY)
        await secrets.unbind("token", "server", "github", by=BY)
        await secrets.remove("other", by=BY)
        assert heard == ["token", "other", "token", "token", "other"]
        end()
        await secrets.set("token", VALUE, by=BY)
        assert len(heard) == 5


async def test_a_version_that_another_process_sets_is_noticed_within_about_a_second(
    tmp_path: Path,
    house: House,
):
    heard: Heard[str] = Heard()
    clock = FakeClock()
    async with house.opened(tmp_path) as serving, house.opened(tmp_path) as command_line:
        await command_line.set("token", VALUE, by=BY, bind=[USE])
        serving.subscribe(heard.hear)
        following = asyncio.create_task(serving.follow(clock))
        try:
            await heard.reach(1)
            await command_line.set("token", "another-value", by=BY)
            await advanced_until(clock, lambda: len(heard) > 1, seconds=POLL_SECONDS)
            assert await serving.secret("token", USE) == "another-value"
        finally:
            following.cancel()
            await asyncio.wait([following])
    assert heard == ["token", "token"]


async def test_two_processes_that_set_one_secret_make_two_versions(tmp_path: Path, house: House):
    async with house.opened(tmp_path) as one, house.opened(tmp_path) as two:
        versions = await asyncio.gather(
            *(each.set("token", f"value-{n}", by=BY) for n in range(10) for each in (one, two))
        )
        assert sorted(versions) == list(range(1, 21))
        assert await one.get("token", by=BY) == await two.get("token", by=BY)


# --- the owner, without async


def test_the_owner_of_the_key_reads_a_secret_in_plain_python_and_that_is_an_event(tmp_path: Path):
    asyncio.run(_set(tmp_path))
    ledger = MemoryLedger()
    with Secrets.open(tmp_path, note=ledger.note) as secrets:
        assert secrets.get("token") == VALUE
        with pytest.raises(KeyError, match="none"):
            secrets.get("none")
    assert acts(ledger) == [("read", "token", "owner", None, None)]


async def _set(folder: Path) -> None:
    async with opened(folder) as secrets:
        await secrets.set("token", VALUE, by=BY)


def test_a_read_in_plain_python_is_written_to_the_ledger_of_the_directory(tmp_path: Path):
    asyncio.run(_set(tmp_path))
    assert Secrets.open(tmp_path).get("token") == VALUE
    written = (tmp_path / "ledger.db").read_bytes()
    assert re.search(rb'"event":"secret".{0,99}"by":"owner","action":"read"', written)
    assert VALUE.encode() not in written


async def test_the_owner_may_read_while_an_event_loop_runs(tmp_path: Path):
    await _set(tmp_path)
    assert Secrets.open(tmp_path, note=MemoryLedger().note).get("token") == VALUE


def test_a_directory_without_secrets_is_named_and_left_alone(tmp_path: Path):
    with pytest.raises(StoreUnavailable, match=re.escape(str(tmp_path))):
        Secrets.open(tmp_path).get("token")
    assert list(tmp_path.iterdir()) == []


def test_the_owners_key_may_be_in_the_environment_which_loses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    key = new_key()

    async def setting() -> None:
        async with opened(tmp_path, key=key) as secrets:
            await secrets.set("token", VALUE, by=BY)

    asyncio.run(setting())
    monkeypatch.setenv(VARIABLE, key.raw.hex())
    secrets = Secrets.open(tmp_path, note=MemoryLedger().note)
    assert VARIABLE not in os.environ
    assert secrets.get("token") == secrets.get("token") == VALUE
    with pytest.raises(KeyUnusable, match=VARIABLE):
        Secrets.open(tmp_path, note=MemoryLedger().note).get("token")
