"""The ledger of a data directory: what it survives, what it believes, and when it refuses."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bascule.audit.anchors import AnchorsUnavailable
from bascule.audit.direct import note_directly
from bascule.audit.journal import Journal, found_journals
from bascule.audit.ledger import LedgerUnavailable
from bascule.audit.ledger_settings import LedgerSettings
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.audit.verification import verify
from bascule.db.errors import StoreUnavailable
from bascule.db.sqlite import plain_commit
from bascule.testing import FakeClock
from bascule.wire.api.audit import AuditFilters
from tests.audit.calls import Ended, Leaving, made
from tests.db.others import another_looks
from tests.waits import until

KEY = bytes(32)
MB = 1024 * 1024


def rows(folder: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(folder / "ledger.db")) as connection:
        return [
            json.loads(body)
            for (body,) in connection.execute("SELECT body FROM events ORDER BY number")
        ]


def ids(folder: Path) -> list[str]:
    return [f"{row['event']} {row.get('request_id')}" for row in rows(folder)]


def left_behind(folder: Path) -> str:
    """Write a journal as a process does that is killed; return its id."""
    journal = Journal(folder / "journal", KEY)
    with closing(sqlite3.connect(folder / "ledger.db", isolation_level=None)) as connection:
        connection.execute(
            "INSERT INTO journals (id, made_at, segment, taken) VALUES (?, 1.0, 1, 0)",
            (journal.id,),
        )
    journal.append([json.dumps({"event": "call_intent", "request_id": "r1"}).encode()])
    journal.append([json.dumps({"event": "call_intent", "request_id": "r2"}).encode()])
    journal.close()
    return journal.id


async def made_ledger(folder: Path) -> None:
    await (await SqliteLedger(folder, key=KEY).open()).close()


async def test_two_processes_on_one_ledger_make_one_chain(tmp_path: Path):
    one = await SqliteLedger(tmp_path, key=KEY).open()
    other = await SqliteLedger(tmp_path, key=KEY).open()
    for number in range(20):
        (one if number % 2 else other).intent(Leaving(number))
        if number % 7 == 0:
            await note_directly(tmp_path, made(number))
            await one.taken_in()
    await one.close()
    await other.close()
    found = rows(tmp_path)
    assert {row["request_id"] for row in found if "request_id" in row} == {
        f"r{number}" for number in range(20)
    }
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection:
        numbers = [n for (n,) in connection.execute("SELECT number FROM events ORDER BY number")]
    assert numbers == list(range(1, 24))


@pytest.mark.requirement("audit:ledger:held")
async def test_a_ledger_that_its_process_verifies_stays_held_and_can_be_read(tmp_path: Path):
    """Another process writes to it and closes it: it is not the last, and takes no log away."""
    ledger = await SqliteLedger(tmp_path, key=KEY).open()
    ledger.intent(Leaving(1))
    await ledger.taken_in()
    verified = await asyncio.to_thread(ledger.verify, lambda _: None)
    assert (verified.rows, verified.problems) == (1, ())
    another_looks(tmp_path / "ledger.db")
    assert (tmp_path / "ledger.db-wal").exists()
    ledger.intent(Leaving(2))
    await ledger.taken_in()
    reads = (ledger.reader().search(AuditFilters(), None, 10) for _ in range(4))
    assert {len(page.entries) for page in await asyncio.gather(*reads)} == {2}
    await ledger.close()
    assert ids(tmp_path) == ["call_intent r1", "call_intent r2"]


class Failing:
    """A commit that fails while it is told to."""

    def __init__(self) -> None:
        self.fails = False

    def __call__(self, connection: sqlite3.Connection, /) -> None:
        if self.fails:
            raise sqlite3.OperationalError("disk I/O error")
        plain_commit(connection)


@pytest.mark.requirement("audit:ledger:write-fails-closed", "audit:ledger:read-goes-on")
@pytest.mark.parametrize("reads_go_on", [False, True])
async def test_while_the_database_takes_nothing_writes_do_not_leave_and_reads_may(
    tmp_path: Path, reads_go_on: bool
):
    clock, commit = FakeClock(), Failing()
    settings = LedgerSettings(reads_when_down=reads_go_on)
    ledger = SqliteLedger(tmp_path, key=KEY, settings=settings, clock=clock, commit=commit)
    await ledger.open()
    commit.fails = True
    ledger.intent(Leaving(1))

    def refused() -> bool:
        try:
            ledger.intent(Leaving(2))
        except LedgerUnavailable as error:
            return error.reason == "ledger_unavailable"
        return False

    await until(refused)
    with pytest.raises(LedgerUnavailable, match="database cannot be written"):
        await ledger.note(made(1))
    if reads_go_on:
        ledger.intent(Leaving(3, reads=True))
    else:
        with pytest.raises(LedgerUnavailable):
            ledger.intent(Leaving(3, reads=True))
    commit.fails = False
    await clock.advance(60)
    await until(lambda: not refused())
    await ledger.close()
    found = ids(tmp_path)
    assert "call_intent r1" in found
    assert ("call_intent r3" in found) is reads_go_on


async def test_a_full_backlog_counts_as_a_journal_that_cannot_be_written(tmp_path: Path):
    commit = Failing()
    settings = LedgerSettings(max_backlog=MB, reads_when_down=True)
    ledger = await SqliteLedger(tmp_path, key=KEY, settings=settings, commit=commit).open()
    commit.fails = True

    async def fill() -> None:
        for number in range(10_000):
            ledger.outcome(Ended(number, arguments={"text": "x" * 200}))
            written = ledger.intent(Leaving(number, reads=True))
            if written is not None:
                await written

    with pytest.raises(LedgerUnavailable, match=r"max_backlog"):
        await fill()
    assert ledger.backlog < 2 * MB
    commit.fails = False
    await ledger.close()


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"\0" * 8192])
async def test_a_file_that_is_no_ledger_is_refused_and_not_touched(tmp_path: Path, content: bytes):
    (tmp_path / "ledger.db").write_bytes(content)
    with pytest.raises(StoreUnavailable):
        await SqliteLedger(tmp_path, key=KEY).open()
    assert (tmp_path / "ledger.db").read_bytes() == content


async def test_a_ledger_that_is_gone_from_beside_its_anchors_is_said_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    ledger = await SqliteLedger(tmp_path, key=KEY).open()
    ledger.intent(Leaving(1))
    await ledger.close()
    (tmp_path / "ledger.db").unlink()
    await made_ledger(tmp_path)
    assert "ledger.anchors has anchors of another ledger" in caplog.text


async def test_an_older_copy_of_the_ledger_is_said_at_the_start_and_never_signed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    ledger = await SqliteLedger(tmp_path, key=KEY).open()
    ledger.intent(Leaving(1))
    await ledger.close()
    copy = (tmp_path / "ledger.db").read_bytes()
    ledger = await SqliteLedger(tmp_path, key=KEY).open()
    ledger.intent(Leaving(2))
    await ledger.close()
    (tmp_path / "ledger.db").write_bytes(copy)
    ledger = await SqliteLedger(tmp_path, key=KEY).open()
    assert "has an anchor for row 2, and the ledger goes to row 1" in caplog.text
    for number in range(3, 6):  # it grows beyond the anchor
        ledger.intent(Leaving(number))
        with pytest.raises(AnchorsUnavailable, match="bascule audit verify"):
            await ledger.checkpoint()
    await ledger.close()
    assert len((tmp_path / "ledger.anchors").read_bytes().splitlines()) == 2


async def test_a_restored_ledger_is_not_signed_over_the_anchors_of_a_longer_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async def one_more(number: int) -> None:
        ledger = await SqliteLedger(tmp_path, key=KEY).open()
        ledger.intent(Leaving(number))
        await ledger.close()

    await one_more(1)
    older = (tmp_path / "ledger.db").read_bytes()
    await one_more(2)
    anchors = (tmp_path / "ledger.anchors").read_bytes()
    (tmp_path / "ledger.db").write_bytes(older)
    caplog.clear()
    for number in (3, 4):  # shorter than its anchors, then as long as they say
        await one_more(number)
    assert "run bascule audit verify" in caplog.text
    assert (tmp_path / "ledger.anchors").read_bytes() == anchors
    (tmp_path / "ledger.anchors").rename(tmp_path / "kept")
    await one_more(5)
    assert verify(
        tmp_path / "ledger.db", (tmp_path / "ledger.anchors").read_bytes().splitlines()
    ).ok


@pytest.mark.parametrize("replaced", [True, False])
async def test_a_database_that_is_taken_away_stops_calls_and_costs_no_event(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, replaced: bool
):
    ledger = await SqliteLedger(tmp_path, key=KEY).open()
    (tmp_path / "ledger.db").rename(tmp_path / "away")
    if replaced:
        (tmp_path / "ledger.db").write_bytes(b"")
    ledger.intent(Leaving(1))
    await until(lambda: ledger.trouble is not None)
    with pytest.raises(LedgerUnavailable):
        ledger.intent(Leaving(2))
    assert "ledger.db was removed or replaced while it was in use" in caplog.text
    await ledger.close()
    [[path]] = found_journals(tmp_path / "journal").values()
    assert b'"request_id":"r1"' in path.read_bytes()


@pytest.mark.requirement("audit:ledger:group-commit")
async def test_the_rows_of_many_calls_share_a_commit(tmp_path: Path):
    commits = 0

    def commit(connection: sqlite3.Connection, /) -> None:
        nonlocal commits
        commits += 1
        plain_commit(connection)

    ledger = await SqliteLedger(tmp_path, key=KEY, commit=commit).open()
    before = commits
    for number in range(500):
        ledger.intent(Leaving(number))
        ledger.outcome(Ended(number))
    assert await ledger.taken_in() == 1_000
    assert commits - before < 10
    await ledger.close()
