"""Journals on their way into the database: what goes wrong between the two loses nothing."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sqlite3
from collections.abc import Generator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from bascule.audit.flushing import Flushing
from bascule.audit.intake import Intake
from bascule.audit.journal import (
    Disk,
    Journal,
    JournalReader,
    found_journals,
    is_live,
    lock_path,
    segment_path,
)
from bascule.audit.ledger import LedgerUnavailable
from bascule.audit.ledger_file import MIGRATIONS
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.clock import SYSTEM_CLOCK
from bascule.db.errors import StoreUnavailable
from bascule.db.sqlite import Database, plain_commit
from bascule.testing import FakeClock
from tests.audit.calls import Leaving, made
from tests.waits import until

KEY = bytes(32)


def event(number: int) -> bytes:
    return json.dumps({"event": "call_intent", "request_id": f"r{number}"}).encode()


def numbers(connection: sqlite3.Connection) -> list[str]:
    """Return what the rows are: a request id each, or the kind of event."""
    query = "SELECT coalesce(request_id, event) FROM events ORDER BY number"
    return [found for (found,) in connection.execute(query)]


def rows(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "ledger.db")) as connection:
        return numbers(connection)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are enough


@pytest.fixture
def connection() -> Generator[sqlite3.Connection, None, None]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for statement in chain.from_iterable(MIGRATIONS):
            assert isinstance(statement, str)
            connection.execute(statement)
        yield connection


def begun(
    folder: Path, connection: sqlite3.Connection, events: int, **options: Any
) -> tuple[Intake, Journal]:
    """Return a journal with so many events, each in a segment of its own, and what follows it."""
    intake = Intake(folder, KEY, SYSTEM_CLOCK)
    journal = Journal(folder, KEY, segment_bytes=1, **options)
    intake.register(connection, journal)
    for number in range(events):
        journal.append([event(number)])
    return intake, journal


def taken_in(intake: Intake, connection: sqlite3.Connection) -> None:
    while intake.follow(connection) is not None:
        intake.taken()
    intake.taken()


def test_a_transaction_that_was_lost_is_made_again_and_its_segments_are_kept(
    tmp_path: Path, connection: sqlite3.Connection
):
    intake, journal = begun(tmp_path, connection, 5)
    intake.follow(connection)
    intake.taken()
    before = descriptors()
    for _ in range(10):
        connection.execute("BEGIN")
        for _ in range(3):
            intake.follow(connection)
        connection.execute("ROLLBACK")
        intake.cover()
    assert descriptors() <= before
    assert len(found_journals(tmp_path)[journal.id]) == 5
    taken_in(intake, connection)
    assert numbers(connection) == ["r0", "r1", "r2", "r3", "r4"]
    assert intake.taken_bytes == journal.written, "a new reader knows how much came before"
    intake.cover()
    assert len(found_journals(tmp_path)[journal.id]) == 1
    intake.close()
    journal.close()


def test_a_live_segment_that_was_changed_is_set_aside_and_what_follows_is_believed(
    tmp_path: Path, connection: sqlite3.Connection
):
    intake = Intake(tmp_path, KEY, SYSTEM_CLOCK)
    journal = Journal(tmp_path, KEY)
    intake.register(connection, journal)
    for number in (1, 2, 3):
        journal.append([event(number)])
    [path] = found_journals(tmp_path)[journal.id]
    path.write_bytes(path.read_bytes().replace(b"r2", b"r9"))
    taken_in(intake, connection)
    assert intake.taken_bytes == journal.written, "nobody waits for what is set aside"
    journal.append([event(4)])
    taken_in(intake, connection)
    assert numbers(connection) == ["r1", "set_aside", "r4"]
    assert intake.taken_bytes == journal.written
    assert not path.exists()
    intake.close()
    journal.close()


@pytest.mark.parametrize(
    ("harm", "segment", "expected"),
    [
        ("changed", 1, ["set_aside", "r1", "r2"]),
        ("changed", 2, ["r0", "set_aside", "r2"]),
        ("removed", 1, ["set_aside", "r2"]),
        ("removed", 2, ["r0", "set_aside"]),
    ],
)
def test_of_a_dead_journal_every_segment_is_taken_in_or_named(
    harm: str, segment: int, expected: list[str], tmp_path: Path, connection: sqlite3.Connection
):
    _, journal = begun(tmp_path, connection, 3)
    journal.close()
    path = segment_path(tmp_path, journal.id, segment)
    if harm == "changed":
        path.write_bytes(path.read_bytes().replace(b'"r', b'"R'))
    else:
        path.unlink()
    found = Intake(tmp_path, KEY, SYSTEM_CLOCK)
    while not found.take_in_dead(connection):
        found.taken()
    found.taken()
    found.cover()
    assert numbers(connection) == expected
    assert found_journals(tmp_path) == {}
    assert not is_live(tmp_path, journal.id)


def test_what_is_set_aside_is_kept_when_its_name_could_not_be_written_down(
    tmp_path: Path, connection: sqlite3.Connection
):
    planted = Journal(tmp_path, KEY)
    planted.append([event(1)])
    planted.close()
    intake = Intake(tmp_path, KEY, SYSTEM_CLOCK)
    connection.execute("BEGIN")
    intake.take_in_dead(connection)
    connection.execute("ROLLBACK")
    assert numbers(connection) == []
    intake.take_in_dead(connection)
    intake.taken()
    assert numbers(connection) == ["set_aside"]
    [body] = connection.execute("SELECT body FROM events").fetchone()
    assert (tmp_path / json.loads(body)["name"]).read_bytes()
    assert found_journals(tmp_path) == {}


def test_locks_of_the_dead_go_too_though_they_wrote_nothing(
    tmp_path: Path, connection: sqlite3.Connection
):
    _, journal = begun(tmp_path, connection, 0)
    journal.close()
    Journal(tmp_path, KEY).close()  # as one that was killed before it was named
    live = Journal(tmp_path, KEY)
    intake = Intake(tmp_path, KEY, SYSTEM_CLOCK)
    assert intake.take_in_dead(connection)
    intake.cover()
    assert list(tmp_path.iterdir()) == [lock_path(tmp_path, live.id)]
    live.close()


class Bad(Disk):
    """A disk that refuses what it is told to."""

    def __init__(self) -> None:
        self.refuses: set[str] = set()
        self.meanwhile: Journal | None = None

    def _pass(self, what: str) -> None:
        if what in self.refuses:
            raise OSError(errno.EIO, "input/output error")

    def write(self, file: int, data: bytes | bytearray) -> int:
        self._pass("write")
        return os.write(file, data)

    def flush(self, file: int) -> None:
        if self.meanwhile is not None:
            self.meanwhile.append([event(100)])
        self._pass("flush")
        os.fdatasync(file)

    def flush_folder(self, folder: int) -> None:
        self._pass("folder")
        os.fsync(folder)


def test_a_disk_that_takes_nothing_is_not_filled_with_empty_files(tmp_path: Path):
    disk = Bad()
    disk.refuses = {"write"}
    journal = Journal(tmp_path, KEY, disk=disk)
    for _ in range(50):
        with pytest.raises(OSError, match="input/output"):
            journal.append([event(1)])
    assert len(found_journals(tmp_path)[journal.id]) == 1
    disk.refuses.clear()
    journal.append([event(2)])
    reader = JournalReader(tmp_path, journal, KEY)
    assert [found for _, found in reader.entries(1000)] == [event(2)]
    reader.close()
    journal.close()


def test_a_journal_goes_on_after_its_folder_could_not_be_flushed(tmp_path: Path):
    disk = Bad()
    journal = Journal(tmp_path, KEY, durable=True, segment_bytes=1, disk=disk)
    journal.append([event(1)])
    disk.refuses = {"folder"}
    for _ in range(2):
        with pytest.raises(OSError, match="input/output"):
            journal.append([event(2)])
    disk.refuses.clear()
    journal.append([event(3)])
    reader = JournalReader(tmp_path, journal, KEY)
    assert [found for _, found in reader.entries(1000)] == [event(1)]
    assert [found for _, found in reader.entries(1000)] == [event(3)]
    reader.close()
    journal.close()


def test_who_wrote_while_a_flush_failed_is_told_by_the_next_one(tmp_path: Path):
    disk = Bad()
    journal = Journal(tmp_path, KEY, disk=disk)
    journal.append([event(1)])
    disk.refuses, disk.meanwhile = {"flush"}, journal
    with pytest.raises(OSError, match="input/output"):
        journal.flush()
    disk.refuses, disk.meanwhile = set(), None
    journal.append([event(2)])  # in another segment
    with pytest.raises(OSError, match="an earlier flush failed"):
        journal.flush()
    journal.flush()
    journal.close()


async def test_a_flush_that_cannot_even_begin_is_a_ledger_that_cannot_be_written():
    def refused() -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    flushing = Flushing(refused)
    waits = [flushing.wait(), flushing.wait()]
    for wait in waits:
        with pytest.raises(LedgerUnavailable, match="cannot be flushed: cannot schedule"):
            await wait


def test_a_lock_that_cannot_be_looked_at_is_that_of_a_live_process(tmp_path: Path):
    assert not is_live(tmp_path, "a" * 16)
    (tmp_path / "file").touch()
    assert is_live(tmp_path / "file", "a" * 16), "not a folder: nobody knows"


class Faulty:
    """A commit that fails in some way while it is told to."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __call__(self, connection: sqlite3.Connection, /) -> None:
        if self.error is not None:
            raise self.error
        plain_commit(connection)


@pytest.mark.parametrize(
    "error", [sqlite3.OperationalError("disk I/O error"), ValueError("what nobody thought of")]
)
async def test_whatever_goes_wrong_behind_the_journal_calls_are_refused_until_it_is_over(
    error: Exception, tmp_path: Path
):
    clock, commit = FakeClock(), Faulty()
    ledger = await SqliteLedger(tmp_path, key=KEY, clock=clock, commit=commit).open()
    commit.error = error
    ledger.intent(Leaving(1))

    def refused() -> bool:
        try:
            ledger.intent(Leaving(2))
        except LedgerUnavailable:
            return True
        return False

    await until(refused)
    async with asyncio.timeout(30):
        await ledger.taken_in()  # it does not wait for what does not come
    commit.error = None
    await clock.advance(60)
    await until(lambda: not refused())
    async with asyncio.timeout(30):
        await ledger.taken_in()
    assert ledger.backlog == 0
    await ledger.close()
    assert "r1" in rows(tmp_path)


async def test_everything_written_so_far_is_taken_in_however_much_comes_meanwhile(tmp_path: Path):
    ledger = await SqliteLedger(tmp_path, key=KEY).open()
    stop = asyncio.Event()

    async def write() -> None:
        number = 0
        while not stop.is_set():
            ledger.intent(Leaving(number))
            number += 1
            await SYSTEM_CLOCK.sleep(0)

    writing = asyncio.create_task(write())
    async with asyncio.timeout(30):
        for _ in range(2):
            await ledger.taken_in()
            await ledger.checkpoint()
    stop.set()
    await writing
    await ledger.close()
    found = rows(tmp_path)
    assert len(found) == len(set(found))


async def test_a_ledger_that_is_closed_lets_no_call_leave_and_makes_no_file(tmp_path: Path):
    ledger = await SqliteLedger(tmp_path, key=KEY).open()
    ledger.intent(Leaving(1))
    await ledger.close()
    with pytest.raises(LedgerUnavailable, match="closed"):
        ledger.intent(Leaving(2))
    with pytest.raises(LedgerUnavailable):
        await ledger.note(made(1))
    assert list((tmp_path / "journal").iterdir()) == []
    await ledger.close()
    assert rows(tmp_path) == ["r1"]


async def test_opening_and_closing_leaves_no_descriptor(tmp_path: Path):
    await (await SqliteLedger(tmp_path, key=KEY).open()).close()
    before = descriptors()
    for number in range(5):
        ledger = await SqliteLedger(tmp_path, key=KEY).open()
        ledger.intent(Leaving(number))
        await ledger.close()
    assert descriptors() <= before


@pytest.mark.parametrize("turns", range(1, 40, 3))
async def test_a_cancelled_open_or_close_lets_go_of_everything(turns: int, tmp_path: Path):
    await (await SqliteLedger(tmp_path, key=KEY).open()).close()
    before = descriptors()
    for what in ("open", "close"):
        ledger = SqliteLedger(tmp_path, key=KEY)
        if what == "close":
            await ledger.open()
            ledger.intent(Leaving(turns))
        work = asyncio.create_task(ledger.open() if what == "open" else ledger.close())
        for _ in range(turns):
            await SYSTEM_CLOCK.sleep(0)
        work.cancel()
        await asyncio.wait({work}, timeout=30)
        if what == "open" and not work.cancelled():
            await ledger.close()
        folder = tmp_path / "journal"
        assert not any(is_live(folder, path.stem) for path in folder.glob("*.lock"))
    assert descriptors() <= before
    await (await SqliteLedger(tmp_path, key=KEY).open()).close()
    assert rows(tmp_path) == [f"r{turns}"]
    assert list((tmp_path / "journal").iterdir()) == []


def spoil(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    (folder / "ledger.db").write_bytes(b"not a database at all" * 100)


async def test_a_store_that_cannot_be_healed_keeps_no_descriptor_of_each_attempt(tmp_path: Path):
    commit = Faulty()
    database = Database(tmp_path / "ledger.db", commit=commit)
    await database.open(MIGRATIONS)
    commit.error = sqlite3.OperationalError("disk I/O error")
    with pytest.raises(StoreUnavailable):
        await database.write(lambda connection: connection.execute("DELETE FROM meta"))
    spoil(tmp_path)
    with pytest.raises(StoreUnavailable):
        await database.heal()
    before = descriptors()
    for _ in range(5):
        with pytest.raises(StoreUnavailable):
            await database.heal()
    assert descriptors() <= before
    await database.close()
