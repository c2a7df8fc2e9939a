"""The ledger of a data directory: what it survives, what it believes, and when it refuses."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bascule.audit.anchors import AnchorsUnavailable
from bascule.audit.chain import GENESIS, link
from bascule.audit.direct import note_directly
from bascule.audit.journal import Disk, Journal, found_journals, found_locks
from bascule.audit.ledger import LedgerUnavailable
from bascule.audit.ledger_settings import LedgerSettings
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.audit.trail import LedgerTrail
from bascule.audit.verification import verify
from bascule.db.errors import StoreUnavailable
from bascule.db.sqlite import plain_commit
from bascule.errors import BudgetExceeded
from bascule.testing import FakeClock
from tests.audit.calls import Ended, Leaving, made
from tests.scale import scaled
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


@pytest.mark.requirement("call:intent-before-dispatch")
async def test_an_intent_is_in_the_journal_when_the_call_may_leave(tmp_path: Path):
    ledger = await SqliteLedger(tmp_path, key=KEY).open()
    assert ledger.intent(Leaving(1)) is None
    [[path]] = found_journals(tmp_path / "journal").values()
    assert b'"request_id":"r1"' in path.read_bytes()
    await ledger.close()


async def test_a_ledger_that_was_closed_leaves_no_journal_and_goes_on_with_its_chain(
    tmp_path: Path,
):
    for number in range(3):
        ledger = await SqliteLedger(tmp_path, key=KEY).open()
        ledger.intent(Leaving(number))
        ledger.outcome(Ended(number))
        await ledger.close()
        assert found_journals(tmp_path / "journal") == {}
    expected = [f"{kind} r{n}" for n in range(3) for kind in ("call_intent", "call")]
    assert ids(tmp_path) == expected
    before = GENESIS
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection:
        query = "SELECT number, journal, place, body, hash FROM events ORDER BY number"
        for number, journal, place, body, hash in connection.execute(query):
            assert link(before, number, journal, place, body) == hash
            before = hash


async def test_what_a_dead_process_wrote_is_taken_in_at_the_next_start_and_once(tmp_path: Path):
    await made_ledger(tmp_path)
    id = left_behind(tmp_path)
    kept = found_journals(tmp_path / "journal")[id][0].read_bytes()
    await made_ledger(tmp_path)
    assert ids(tmp_path) == ["call_intent r1", "call_intent r2"]
    (tmp_path / "journal" / f"{id}.000001.journal").write_bytes(kept)  # as if it had not gone
    await made_ledger(tmp_path)
    assert ids(tmp_path) == ["call_intent r1", "call_intent r2"]
    assert found_journals(tmp_path / "journal") == {}


async def test_a_journal_that_was_planted_is_set_aside_and_named_and_none_of_it_is_a_row(
    tmp_path: Path,
):
    await made_ledger(tmp_path)
    planted = Journal(tmp_path / "journal", KEY)
    planted.append([b'{"event":"call","request_id":"forged"}'])
    planted.close()
    await made_ledger(tmp_path)
    [row] = rows(tmp_path)
    assert row["event"] == "set_aside"
    assert planted.id in row["name"]
    assert (tmp_path / "journal" / row["name"]).exists()


async def test_a_journal_that_was_changed_is_believed_up_to_there_and_the_rest_set_aside(
    tmp_path: Path,
):
    await made_ledger(tmp_path)
    id = left_behind(tmp_path)
    path = tmp_path / "journal" / f"{id}.000001.journal"
    path.write_bytes(path.read_bytes().replace(b'"r2"', b'"r9"'))
    await made_ledger(tmp_path)
    assert ids(tmp_path) == ["call_intent r1", "set_aside None"]
    assert id in rows(tmp_path)[1]["name"]


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


class Full(Disk):
    """A disk that is full while it is told to be."""

    def __init__(self) -> None:
        self.full = False

    def write(self, file: int, data: bytes | bytearray) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "no space left on device")
        return os.write(file, data)


async def test_while_the_journal_cannot_be_written_nothing_leaves_and_nothing_is_lost(
    tmp_path: Path,
):
    disk = Full()
    settings = LedgerSettings(reads_when_down=True)
    ledger = await SqliteLedger(tmp_path, key=KEY, settings=settings, disk=disk).open()
    ledger.intent(Leaving(1))
    disk.full = True
    ledger.outcome(Ended(1))
    for reads in (False, True):
        with pytest.raises(LedgerUnavailable, match="no space left on device"):
            ledger.intent(Leaving(2, reads=reads))
    with pytest.raises(LedgerUnavailable):
        await ledger.note(made(1))
    ledger.settle()
    assert ledger.trouble == "the journal of the ledger cannot be written: no space left on device"
    disk.full = False
    ledger.intent(Leaving(3))
    assert ledger.trouble is None
    await ledger.close()
    assert ids(tmp_path) == ["call_intent r1", "call_intent r3", "call r1"]


async def test_a_journal_that_can_be_written_again_is_found_without_a_call(tmp_path: Path):
    disk = Full()
    ledger = await SqliteLedger(tmp_path, key=KEY, disk=disk).open()
    disk.full = True
    ledger.outcome(Ended(1))
    with pytest.raises(LedgerUnavailable):
        ledger.intent(Leaving(2))
    disk.full = False
    await until(lambda: ledger.trouble is None)
    await ledger.close()
    assert ids(tmp_path) == ["call r1"]


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


@pytest.mark.requirement("audit:ledger:power")
async def test_for_power_an_intent_waits_for_a_flush_that_calls_in_flight_share(tmp_path: Path):
    class Counting(Disk):
        flushes = 0

        @staticmethod
        def flush(file: int) -> None:
            Counting.flushes += 1
            os.fdatasync(file)

    settings = LedgerSettings(durability="power")
    ledger = await SqliteLedger(tmp_path, key=KEY, settings=settings, disk=Counting()).open()
    waits = [ledger.intent(Leaving(number)) for number in range(50)]
    before = Counting.flushes
    for wait in waits:
        assert wait is not None
        await wait
    assert 1 <= Counting.flushes - before <= 2
    await ledger.close()


async def test_for_power_a_flush_that_fails_lets_no_call_leave(tmp_path: Path):
    class Torn(Disk):
        @staticmethod
        def flush(_file: int) -> None:
            raise OSError(errno.EIO, "input/output error")

    settings = LedgerSettings(durability="power")
    ledger = await SqliteLedger(tmp_path, key=KEY, settings=settings, disk=Torn()).open()
    wait = ledger.intent(Leaving(1))
    assert wait is not None
    with pytest.raises(LedgerUnavailable, match="input/output error"):
        await wait
    await ledger.close()


async def test_refusals_of_a_token_beyond_a_hundred_a_minute_become_one_counted_row(
    tmp_path: Path,
):
    clock = FakeClock()
    ledger = await SqliteLedger(tmp_path, key=KEY, clock=clock).open()
    for number in range(250):
        ledger.outcome(Ended(number, status="denied", left=False, token_id="tok-1"))
    for number in range(5):
        ledger.outcome(Ended(1000 + number, status="denied", left=False, token_id="tok-2"))
        ledger.outcome(Ended(2000 + number, token_id="tok-1"))
    await ledger.close()
    found = rows(tmp_path)
    written = [row["token_id"] for row in found if row["event"] == "call"]
    assert (written.count("tok-1"), written.count("tok-2")) == (105, 5)
    [counted] = [row for row in found if row["event"] == "denials_counted"]
    assert (counted["token_id"], counted["caller"], counted["count"]) == ("tok-1", "alice", 150)


async def test_a_token_beyond_its_bytes_is_refused_and_no_other(tmp_path: Path):
    clock = FakeClock()
    settings = LedgerSettings(token_bytes_per_day=MB)
    ledger = await SqliteLedger(tmp_path, key=KEY, settings=settings, clock=clock).open()

    def spend() -> None:
        for number in range(10_000):
            ledger.intent(Leaving(number, token_id="tok-1"))

    with pytest.raises(BudgetExceeded, match="token_bytes_per_day") as refused:
        spend()
    assert 0 < refused.value.retry_after <= 86_400
    ledger.intent(Leaving(1, token_id="tok-2"))
    ledger.intent(Leaving(2))
    await clock.advance(86_400)
    ledger.intent(Leaving(3, token_id="tok-1"))
    await ledger.close()


async def test_an_event_has_at_most_16_kib_and_still_says_what_it_is_about(tmp_path: Path):
    ledger = await SqliteLedger(tmp_path, key=KEY).open()
    ledger.outcome(Ended(1, arguments={"a": "x" * 100_000}))
    ledger.outcome(Ended(2, arguments=["y"] * 3_000))
    await ledger.close()
    long, short = rows(tmp_path)
    assert (long["request_id"], long["arguments"]) == ("r1", None)
    assert long["shortened_from"] > 100_000
    assert short["arguments"] == ["y"] * 3_000
    assert len(json.dumps(long)) < 16 * 1024


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"\0" * 8192])
async def test_a_file_that_is_no_ledger_is_refused_and_not_touched(tmp_path: Path, content: bytes):
    (tmp_path / "ledger.db").write_bytes(content)
    with pytest.raises(StoreUnavailable):
        await SqliteLedger(tmp_path, key=KEY).open()
    assert (tmp_path / "ledger.db").read_bytes() == content


async def test_a_search_has_what_happened_just_now(tmp_path: Path):
    ledger = await SqliteLedger(tmp_path, key=KEY).open()
    trail = LedgerTrail(ledger)
    for number in range(3):
        ledger.intent(Leaving(number))
        ledger.outcome(Ended(number))
        await trail.catch_up()
        life = await trail.reader.life(f"r{number}")
        assert life is not None
        assert life.status == "ok"
    await ledger.close()


async def test_a_clock_that_is_set_back_prolongs_no_quota_and_holds_back_no_count(tmp_path: Path):
    clock = FakeClock()
    settings = LedgerSettings(token_bytes_per_day=MB)
    ledger = await SqliteLedger(tmp_path, key=KEY, settings=settings, clock=clock).open()
    large = {"a": "x" * 12_000}
    for number in range(100):
        ledger.outcome(Ended(number, token_id="tok-1", arguments=large))
    ledger.settle()
    for number in range(150):
        ledger.outcome(Ended(number, status="denied", left=False, token_id="tok-2"))
    clock.jump(-365 * 86_400)
    with pytest.raises(BudgetExceeded) as refused:
        ledger.intent(Leaving(1, token_id="tok-1"))
    assert refused.value.retry_after == 86_400
    await clock.advance(60)
    ledger.outcome(Ended(200))  # whatever happens next, the count goes with it
    await until(lambda: any(row["event"] == "denials_counted" for row in rows(tmp_path)))
    [counted] = [row for row in rows(tmp_path) if row["event"] == "denials_counted"]
    assert (counted["count"], counted["since"]) == (50, clock.now() - 60)
    await ledger.close()


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


async def test_a_process_killed_before_its_first_line_leaves_nothing_for_good(tmp_path: Path):
    await made_ledger(tmp_path)
    journal = Journal(tmp_path / "journal", KEY)
    with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as connection:
        connection.execute(
            "INSERT INTO journals (id, made_at, segment, taken) VALUES (?, 1.0, 1, 0)",
            (journal.id,),
        )
    await made_ledger(tmp_path)
    assert found_locks(tmp_path / "journal") == [journal.id]  # it lives
    journal.close()
    await made_ledger(tmp_path)
    assert found_locks(tmp_path / "journal") == []


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


async def test_more_calls_than_the_database_can_follow_wait_for_it_and_none_is_refused(
    tmp_path: Path,
):
    ledger = await SqliteLedger(tmp_path, key=KEY, settings=LedgerSettings(max_backlog=MB)).open()
    made = scaled(60_000)
    numbers = iter(range(made))

    async def calls() -> None:
        for number in numbers:
            written = ledger.intent(Leaving(number))
            if written is not None:
                await written
            ledger.outcome(Ended(number, arguments={"text": "x" * 200}))
            await FakeClock().settle(turns=1)

    async with asyncio.timeout(60):
        await asyncio.gather(*(calls() for _ in range(64)))
        await ledger.close()
    kinds = Counter(row["event"] for row in rows(tmp_path))
    assert kinds == {"call_intent": made, "call": made}


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
