"""A journal with a database behind it: what it survives, what it believes, and when it refuses."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from bascule.audit.chain import GENESIS, link
from bascule.audit.journal import Disk, Journal, found_journals, found_locks
from bascule.audit.ledger import LedgerUnavailable
from bascule.audit.ledger_settings import LedgerSettings
from bascule.audit.trail import LedgerTrail
from bascule.errors import BudgetExceeded
from bascule.testing import FakeClock
from tests.audit.calls import Ended, Leaving, made
from tests.audit.ledgers import KEY, Ledgers, events, ledgers_of
from tests.scale import scaled
from tests.waits import until

MB = 1024 * 1024


@pytest.fixture(params=["sqlite", "postgres"])
async def ledgers(request: pytest.FixtureRequest) -> AsyncGenerator[Ledgers, None]:
    async with ledgers_of(request.param) as found:
        yield found


async def ids(ledgers: Ledgers, folder: Path) -> list[str]:
    return [f"{row['event']} {row.get('request_id')}" for row in await events(ledgers, folder)]


async def left_behind(ledgers: Ledgers, folder: Path) -> str:
    """Write a journal as a process does that is killed; return its id."""
    journal = Journal(folder / "journal", KEY)
    await ledgers.name(folder, journal.id)
    journal.append([json.dumps({"event": "call_intent", "request_id": "r1"}).encode()])
    journal.append([json.dumps({"event": "call_intent", "request_id": "r2"}).encode()])
    journal.close()
    return journal.id


async def opened_and_closed(ledgers: Ledgers, folder: Path) -> None:
    await (await ledgers.open(folder)).close()


@pytest.mark.requirement("call:intent-before-dispatch")
async def test_an_intent_is_in_the_journal_when_the_call_may_leave(
    tmp_path: Path, ledgers: Ledgers
):
    ledger = await ledgers.open(tmp_path)
    assert ledger.intent(Leaving(1)) is None
    [[path]] = found_journals(tmp_path / "journal").values()
    assert b'"request_id":"r1"' in path.read_bytes()
    await ledger.close()


async def test_a_ledger_that_was_closed_leaves_no_journal_and_goes_on_with_its_chain(
    tmp_path: Path, ledgers: Ledgers
):
    for number in range(3):
        ledger = await ledgers.open(tmp_path)
        ledger.intent(Leaving(number))
        ledger.outcome(Ended(number))
        await ledger.close()
        assert found_journals(tmp_path / "journal") == {}
    expected = [f"{kind} r{n}" for n in range(3) for kind in ("call_intent", "call")]
    assert await ids(ledgers, tmp_path) == expected
    before = GENESIS
    for row in await ledgers.chain(tmp_path):
        assert link(before, row.number, row.journal, row.place, row.event) == row.hash
        before = row.hash


async def test_what_a_dead_process_wrote_is_taken_in_at_the_next_start_and_once(
    tmp_path: Path, ledgers: Ledgers
):
    await opened_and_closed(ledgers, tmp_path)
    id = await left_behind(ledgers, tmp_path)
    kept = found_journals(tmp_path / "journal")[id][0].read_bytes()
    await opened_and_closed(ledgers, tmp_path)
    assert await ids(ledgers, tmp_path) == ["call_intent r1", "call_intent r2"]
    (tmp_path / "journal" / f"{id}.000001.journal").write_bytes(kept)  # as if it had not gone
    await opened_and_closed(ledgers, tmp_path)
    assert await ids(ledgers, tmp_path) == ["call_intent r1", "call_intent r2"]
    assert found_journals(tmp_path / "journal") == {}


async def test_a_journal_that_was_planted_is_set_aside_and_named_and_none_of_it_is_a_row(
    tmp_path: Path, ledgers: Ledgers
):
    await opened_and_closed(ledgers, tmp_path)
    planted = Journal(tmp_path / "journal", KEY)
    planted.append([b'{"event":"call","request_id":"forged"}'])
    planted.close()
    await opened_and_closed(ledgers, tmp_path)
    [row] = await events(ledgers, tmp_path)
    assert row["event"] == "set_aside"
    assert planted.id in row["name"]
    assert (tmp_path / "journal" / row["name"]).exists()


async def test_a_journal_that_was_changed_is_believed_up_to_there_and_the_rest_set_aside(
    tmp_path: Path, ledgers: Ledgers
):
    await opened_and_closed(ledgers, tmp_path)
    id = await left_behind(ledgers, tmp_path)
    path = tmp_path / "journal" / f"{id}.000001.journal"
    path.write_bytes(path.read_bytes().replace(b'"r2"', b'"r9"'))
    await opened_and_closed(ledgers, tmp_path)
    assert await ids(ledgers, tmp_path) == ["call_intent r1", "set_aside None"]
    assert id in (await events(ledgers, tmp_path))[1]["name"]


class Full(Disk):
    """A disk that is full while it is told to be."""

    def __init__(self) -> None:
        self.full = False

    def write(self, file: int, data: bytes | bytearray) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "no space left on device")
        return os.write(file, data)


async def test_while_the_journal_cannot_be_written_nothing_leaves_and_nothing_is_lost(
    tmp_path: Path, ledgers: Ledgers
):
    disk = Full()
    settings = LedgerSettings(reads_when_down=True)
    ledger = await ledgers.open(tmp_path, settings=settings, disk=disk)
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
    assert await ids(ledgers, tmp_path) == ["call_intent r1", "call_intent r3", "call r1"]


async def test_a_journal_that_can_be_written_again_is_found_without_a_call(
    tmp_path: Path, ledgers: Ledgers
):
    disk = Full()
    ledger = await ledgers.open(tmp_path, disk=disk)
    disk.full = True
    ledger.outcome(Ended(1))
    with pytest.raises(LedgerUnavailable):
        ledger.intent(Leaving(2))
    disk.full = False
    await until(lambda: ledger.trouble is None)
    await ledger.close()
    assert await ids(ledgers, tmp_path) == ["call r1"]


@pytest.mark.requirement("audit:ledger:power")
async def test_for_power_an_intent_waits_for_a_flush_that_calls_in_flight_share(
    tmp_path: Path, ledgers: Ledgers
):
    class Counting(Disk):
        flushes = 0

        @staticmethod
        def flush(file: int) -> None:
            Counting.flushes += 1
            os.fdatasync(file)

    settings = LedgerSettings(durability="power")
    ledger = await ledgers.open(tmp_path, settings=settings, disk=Counting())
    waits = [ledger.intent(Leaving(number)) for number in range(50)]
    before = Counting.flushes
    for wait in waits:
        assert wait is not None
        await wait
    assert 1 <= Counting.flushes - before <= 2
    await ledger.close()


async def test_for_power_a_flush_that_fails_lets_no_call_leave(tmp_path: Path, ledgers: Ledgers):
    class Torn(Disk):
        @staticmethod
        def flush(_file: int) -> None:
            raise OSError(errno.EIO, "input/output error")

    settings = LedgerSettings(durability="power")
    ledger = await ledgers.open(tmp_path, settings=settings, disk=Torn())
    wait = ledger.intent(Leaving(1))
    assert wait is not None
    with pytest.raises(LedgerUnavailable, match="input/output error"):
        await wait
    await ledger.close()


async def test_refusals_of_a_token_beyond_a_hundred_a_minute_become_one_counted_row(
    tmp_path: Path, ledgers: Ledgers
):
    clock = FakeClock()
    ledger = await ledgers.open(tmp_path, clock=clock)
    for number in range(250):
        ledger.outcome(Ended(number, status="denied", left=False, token_id="tok-1"))
    for number in range(5):
        ledger.outcome(Ended(1000 + number, status="denied", left=False, token_id="tok-2"))
        ledger.outcome(Ended(2000 + number, token_id="tok-1"))
    await ledger.close()
    found = await events(ledgers, tmp_path)
    written = [row["token_id"] for row in found if row["event"] == "call"]
    assert (written.count("tok-1"), written.count("tok-2")) == (105, 5)
    [counted] = [row for row in found if row["event"] == "denials_counted"]
    assert (counted["token_id"], counted["caller"], counted["count"]) == ("tok-1", "alice", 150)


async def test_a_token_beyond_its_bytes_is_refused_and_no_other(tmp_path: Path, ledgers: Ledgers):
    clock = FakeClock()
    settings = LedgerSettings(token_bytes_per_day=MB)
    ledger = await ledgers.open(tmp_path, settings=settings, clock=clock)

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


async def test_an_event_has_at_most_16_kib_and_still_says_what_it_is_about(
    tmp_path: Path, ledgers: Ledgers
):
    ledger = await ledgers.open(tmp_path)
    ledger.outcome(Ended(1, arguments={"a": "x" * 100_000}))
    ledger.outcome(Ended(2, arguments=["y"] * 3_000))
    await ledger.close()
    long, short = await events(ledgers, tmp_path)
    assert (long["request_id"], long["arguments"]) == ("r1", None)
    assert long["shortened_from"] > 100_000
    assert short["arguments"] == ["y"] * 3_000
    assert len(json.dumps(long)) < 16 * 1024


async def test_a_search_has_what_happened_just_now(tmp_path: Path, ledgers: Ledgers):
    ledger = await ledgers.open(tmp_path)
    trail = LedgerTrail(ledger)
    for number in range(3):
        ledger.intent(Leaving(number))
        ledger.outcome(Ended(number))
        await trail.catch_up()
        life = await trail.reader.life(f"r{number}")
        assert life is not None
        assert life.status == "ok"
    await ledger.close()


async def test_a_clock_that_is_set_back_prolongs_no_quota_and_holds_back_no_count(
    tmp_path: Path, ledgers: Ledgers
):
    clock = FakeClock()
    settings = LedgerSettings(token_bytes_per_day=MB)
    ledger = await ledgers.open(tmp_path, settings=settings, clock=clock)
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

    async def counts() -> list[dict[str, Any]]:
        await ledger.taken_in()
        found = await events(ledgers, tmp_path)
        return [row for row in found if row["event"] == "denials_counted"]

    [counted] = await until(counts)
    assert (counted["count"], counted["since"]) == (50, clock.now() - 60)
    await ledger.close()


async def test_a_process_killed_before_its_first_line_leaves_nothing_for_good(
    tmp_path: Path, ledgers: Ledgers
):
    await opened_and_closed(ledgers, tmp_path)
    journal = Journal(tmp_path / "journal", KEY)
    await ledgers.name(tmp_path, journal.id)
    await opened_and_closed(ledgers, tmp_path)
    assert found_locks(tmp_path / "journal") == [journal.id]  # it lives
    journal.close()
    await opened_and_closed(ledgers, tmp_path)
    assert found_locks(tmp_path / "journal") == []


async def test_more_calls_than_the_database_can_follow_wait_for_it_and_none_is_refused(
    tmp_path: Path, ledgers: Ledgers
):
    ledger = await ledgers.open(tmp_path, settings=LedgerSettings(max_backlog=MB))
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
    kinds = Counter(row["event"] for row in await events(ledgers, tmp_path))
    assert kinds == {"call_intent": made, "call": made}
