"""What a write allows that was not allowed before is written down first, whoever writes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bascule.audit.events import Act, PolicyLoosened
from bascule.audit.ledger import LedgerUnavailable, MemoryLedger
from bascule.control.registry.errors import Conflict, NotAccepted
from bascule.control.registry.loader import Loader
from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.registry.sqlite_store import SqliteStore
from bascule.control.registry.store import Author
from bascule.errors import InvalidRecord
from bascule.testing.clock import FakeClock
from tests.control.api.desk import ADMIN, Desk, open_desk
from tests.control.registry.build import BY, server

pytestmark = pytest.mark.requirement("audit:policy-loosened")

READS = server("fs", allowed_tools=["read_*"])
WRITES = server("fs", allowed_tools=["read_*", "write"])
NEW = ("new: allows 'read_*'",)
WIDER = ("allowed_tools: 'write' allowed now",)


@pytest.fixture
def ledger(service: RegistryService) -> MemoryLedger:
    found = MemoryLedger()
    service.note = found.note
    return found


def said(ledger: MemoryLedger) -> list[tuple[str, int, str, tuple[str, ...]]]:
    events = [event for event in ledger.events if isinstance(event, PolicyLoosened)]
    assert len(events) == len(ledger.events)
    return [
        (event.by, event.revision, f"{event.kind} {event.id}", event.changes) for event in events
    ]


async def test_a_write_that_allows_more_is_written_down_with_who_and_its_revision(
    service: RegistryService, ledger: MemoryLedger, clock: FakeClock
):
    await service.create("server", READS, BY)
    written = await service.put("server", "fs", WRITES, BY)
    assert said(ledger) == [
        ("ada", 1, "server fs", NEW),
        ("ada", written.revision, "server fs", WIDER),
    ]
    assert {getattr(event, "timestamp", None) for event in ledger.events} == {clock.now()}


async def test_what_narrows_changes_nothing_or_is_only_tried_is_not_written_down(
    service: RegistryService, ledger: MemoryLedger
):
    await service.create("server", WRITES, BY)
    ledger.events.clear()
    await service.put("server", "fs", WRITES, BY)
    await service.put("server", "fs", READS, BY)
    await service.import_records([("server", WRITES)], "preview", BY)
    await service.import_records([("server", WRITES)], "upsert", BY, dry_run=True)
    await service.delete("server", "fs", BY)
    assert said(ledger) == []


async def test_patches_imports_and_rollbacks_are_written_down_alike(
    service: RegistryService, ledger: MemoryLedger
):
    await service.create("server", WRITES, BY)
    wide = service.view.revision
    await service.patch("server", "fs", {"allowed_tools": ["read_*"]}, BY)
    ledger.events.clear()
    await service.rollback(wide, Author("otto"))
    assert [(by, changes) for by, _, _, changes in said(ledger)] == [("otto", WIDER)]
    await service.put("server", "fs", READS, BY)
    ledger.events.clear()
    await service.import_records([("server", WRITES), ("server", server("git"))], "upsert", BY)
    assert [key for _, _, key, _ in said(ledger)] == ["server fs", "server git"]
    ledger.events.clear()
    await service.patch("server", "fs", {"budgets": {"tool_timeout_ms": 90_000}}, BY)
    assert [changes for *_, changes in said(ledger)] == [
        ("budgets.tool_timeout_ms: 60000 became 90000",)
    ]


async def test_a_reload_of_files_is_written_down_as_files(
    service: RegistryService, ledger: MemoryLedger, tmp_path: Path
):
    record = tmp_path / "records" / "fs.toml"
    record.parent.mkdir()
    text = 'server_id = "fs"\ntransport = "stdio"\nallowed_tools = ["{}"]\n[stdio]\ncommand = "x"\n'
    record.write_text(text.format("read_*"), encoding="utf-8")
    loader = Loader(service, record.parent)
    await loader.load(dry_run=True)
    assert said(ledger) == []
    await loader.load()
    record.write_text(text.format("*"), encoding="utf-8")
    await loader.load()
    assert [(by, changes) for by, _, _, changes in said(ledger)] == [
        ("files", NEW),
        ("files", ("allowed_tools: '*' allowed now",)),
    ]


async def test_a_proposal_is_written_down_when_it_is_accepted_in_the_name_of_who_accepts(
    service: RegistryService, ledger: MemoryLedger
):
    remote = {
        "server_id": "far",
        "transport": "http",
        "http": {"url": "https://a.example", "auth_ref": "gh"},
        "allowed_tools": ["*"],
    }
    with pytest.raises(NotAccepted):
        await service.put("server", "far", remote, Author("otto", trusted=False))
    assert said(ledger) == []
    await service.accept("server", "far", Author("ada"))
    assert [(by, key) for by, _, key, _ in said(ledger)] == [("ada", "server far")]


async def test_a_write_that_is_refused_is_not_written_down(
    service: RegistryService, ledger: MemoryLedger
):
    await service.create("server", READS, BY)
    ledger.events.clear()
    with pytest.raises(Conflict):
        await service.put("server", "fs", WRITES, BY, expected_revision=7)
    with pytest.raises(InvalidRecord):
        await service.put("server", "fs", WRITES | {"transport": "pigeon"}, BY)
    assert said(ledger) == []


async def refuse(act: Act) -> None:
    raise LedgerUnavailable(f"no room for {type(act).__name__}")


async def test_what_cannot_be_written_down_is_not_done_and_what_narrows_is(
    service: RegistryService,
):
    await service.create("server", WRITES, BY)
    service.note = refuse
    before = service.view
    with pytest.raises(LedgerUnavailable, match="PolicyLoosened"):
        await service.create("server", server("git"), BY)
    with pytest.raises(LedgerUnavailable):
        await service.import_records([("server", server("git")), ("server", READS)], "upsert", BY)
    assert service.view is before
    await service.put("server", "fs", READS, BY)
    with pytest.raises(LedgerUnavailable):
        await service.rollback(before.revision, BY)
    await service.delete("server", "fs", BY)


async def test_it_is_written_down_before_it_is_done(service: RegistryService):
    seen: list[int] = []

    async def note(act: Act) -> None:
        await asyncio.sleep(0)  # noqa: TID251 - let anything that could overtake it
        seen.append(service.view.revision)

    service.note = note
    await service.create("server", READS, BY)
    await service.put("server", "fs", WRITES, BY)
    assert seen == [0, 1]


async def test_many_records_at_once_are_judged_beside_the_event_loop(
    service: RegistryService, ledger: MemoryLedger
):
    await service.import_records([("server", server(f"s{n}")) for n in range(300)], "upsert", BY)
    assert len(said(ledger)) == 300


async def test_another_process_that_was_faster_does_not_hide_what_is_loosened(tmp_path: Path):
    clock, ledger = FakeClock(), MemoryLedger()
    stores = [await SqliteStore(tmp_path / "r.db", clock=clock).open() for _ in range(2)]
    async with (
        open_registry(stores[0], clock=clock) as one,
        open_registry(stores[1], clock=clock) as other,
    ):
        await one.create("server", WRITES, BY)
        await one.put("server", "fs", READS, BY)
        other.note = ledger.note
        await other.put("server", "fs", WRITES, BY, expected_revision=2)
        assert said(ledger)[-1] == ("ada", 3, "server fs", WIDER)


@pytest.fixture
async def desk():
    async with open_desk() as found:
        yield found


async def test_over_http_the_refusal_is_unavailable_and_says_why(desk: Desk):
    desk.service.note = refuse
    answer = await desk.ask("PUT", f"{ADMIN}/servers/fs", WRITES)
    assert answer.status == 503
    assert answer.json["error"]["details"] == {"reason": "ledger_unavailable"}
    assert (await desk.ask("GET", f"{ADMIN}/servers/fs")).status == 404
