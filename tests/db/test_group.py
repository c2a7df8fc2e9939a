"""Writes that share a commit: together as one, undone one by one."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.db.errors import StoreUnavailable
from bascule.db.group import Group
from bascule.db.sqlite import Database, plain_commit
from tests.scale import scaled

pytestmark = pytest.mark.anyio
TABLE = (("CREATE TABLE t (x INTEGER PRIMARY KEY) STRICT",),)


class Disk:
    """Counts commits; holds them until it is told to go on, and fails when it is broken."""

    def __init__(self) -> None:
        self.go_on = Event()
        self.began = Event()
        self.commits = 0
        self.broken = False

    def __call__(self, connection: sqlite3.Connection, /) -> None:
        self.commits += 1
        self.began.set()
        assert self.go_on.wait(20)
        if self.broken:
            raise sqlite3.OperationalError("disk I/O error")
        plain_commit(connection)


@asynccontextmanager
async def opened(path: Path, disk: Disk) -> AsyncGenerator[Database, None]:
    database = Database(path, commit=disk)
    await database.open(TABLE)
    try:
        yield database
    finally:
        disk.go_on.set()
        await database.close()


def adds(*values: int) -> Callable[[sqlite3.Connection], int]:
    def work(connection: sqlite3.Connection) -> int:
        for value in values:
            connection.execute("INSERT INTO t VALUES (?)", (value,))
        return sum(values)

    return work


async def kept(database: Database) -> list[int]:
    query = "SELECT x FROM t ORDER BY x"
    return await database.read(lambda c: [x for [x] in c.execute(query)])


async def beginning(group: Group[sqlite3.Connection], disk: Disk) -> asyncio.Task[int]:
    """Begin a write whose commit waits for the disk."""
    first = asyncio.create_task(group.write(adds(0)))
    async with asyncio.timeout(20):
        await asyncio.to_thread(disk.began.wait, 20)
    return first


async def started(*writes: asyncio.Task[int]) -> None:
    """Let every task run until it waits."""
    await asyncio.gather(*(asyncio.wait([write], timeout=0) for write in writes))


@pytest.mark.requirement("audit:ledger:group-commit")
async def test_writes_that_arrive_while_a_commit_runs_share_the_next(tmp_path: Path):
    disk = Disk()
    async with opened(tmp_path / "t.db", disk) as database, asyncio.timeout(20):
        group = Group(database)
        first = await beginning(group, disk)
        others = [asyncio.create_task(group.write(adds(n))) for n in range(1, 51)]
        await started(*others)
        disk.go_on.set()
        assert await asyncio.gather(first, *others) == list(range(51))
        assert disk.commits == 2
        assert await kept(database) == list(range(51))


async def test_one_that_fails_is_undone_alone_and_its_caller_is_told(tmp_path: Path):
    disk = Disk()
    async with opened(tmp_path / "t.db", disk) as database, asyncio.timeout(20):
        group, told = Group(database), list[int]()
        first = await beginning(group, disk)
        others = [
            asyncio.create_task(group.write(adds(*values), after=told.append))
            for values in [(1,), (2, 1), (3,)]
        ]
        await started(*others)
        disk.go_on.set()
        outcomes = await asyncio.gather(first, *others, return_exceptions=True)
        assert outcomes[:2] == [0, 1]
        assert isinstance(outcomes[2], sqlite3.IntegrityError)
        assert outcomes[3] == 3
        assert disk.commits == 2
        assert await kept(database) == [0, 1, 3]
        assert told == [1, 3], "only what is durable is told, in its order"


async def test_a_commit_that_fails_fails_for_everybody_in_it_and_ends_all_writing(tmp_path: Path):
    disk = Disk()
    async with opened(tmp_path / "t.db", disk) as database, asyncio.timeout(20):
        group, told = Group(database), list[int]()
        first = await beginning(group, disk)
        others = [asyncio.create_task(group.write(adds(n), after=told.append)) for n in range(1, 4)]
        await started(*others)
        disk.broken = True
        disk.go_on.set()
        outcomes = await asyncio.gather(first, *others, return_exceptions=True)
        assert all(isinstance(outcome, StoreUnavailable) for outcome in outcomes)
        disk.broken = False
        with pytest.raises(StoreUnavailable, match="restart"):
            await group.write(adds(9))
        assert told == []
        assert disk.commits == 1, "a poisoned writer does not try again"
        assert await kept(database) == []


async def test_a_waiter_that_is_cancelled_disturbs_nobody(tmp_path: Path):
    disk = Disk()
    async with opened(tmp_path / "t.db", disk) as database, asyncio.timeout(20):
        group, told = Group(database), list[int]()
        first = asyncio.create_task(group.write(adds(0), after=told.append))
        await asyncio.to_thread(disk.began.wait, 20)
        others = [asyncio.create_task(group.write(adds(n))) for n in (1, 2, 3)]
        await started(*others)
        first.cancel()
        others[1].cancel()
        await started(first, others[1])
        disk.go_on.set()
        assert await asyncio.gather(others[0], others[2]) == [1, 3]
        assert await kept(database) == [0, 1, 3], "what had begun is done, what had not is not"
        assert told == [0]


async def test_what_fails_after_the_commit_is_told_to_its_caller_alone(tmp_path: Path):
    disk = Disk()
    disk.go_on.set()

    def refuse(_value: int) -> None:
        raise ValueError("heard")

    async with opened(tmp_path / "t.db", disk) as database, asyncio.timeout(20):
        group = Group(database)
        outcomes = await asyncio.gather(
            group.write(adds(1), after=refuse), group.write(adds(2)), return_exceptions=True
        )
        assert isinstance(outcomes[0], ValueError)
        assert outcomes[1] == 2
        assert await kept(database) == [1, 2]


async def test_a_full_disk_in_a_work_ends_all_writing(tmp_path: Path):
    disk = Disk()
    disk.go_on.set()

    def grow(connection: sqlite3.Connection) -> int:
        connection.execute("PRAGMA max_page_count = 1")
        connection.execute("CREATE TABLE large (x BLOB) STRICT")
        connection.execute("INSERT INTO large VALUES (zeroblob(1000000))")
        raise AssertionError("there was room")

    async with opened(tmp_path / "t.db", disk) as database, asyncio.timeout(20):
        group = Group(database)
        outcomes = await asyncio.gather(
            group.write(adds(1)), group.write(grow), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 2
        assert database.poisoned is not None
        assert await kept(database) == []


async def test_whatever_a_work_raises_its_caller_is_told(tmp_path: Path):
    disk = Disk()
    disk.go_on.set()
    async with opened(tmp_path / "t.db", disk) as database, asyncio.timeout(20):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await Group(database).write(lambda _connection: next(iter(())))


async def test_a_closed_store_takes_nothing(tmp_path: Path):
    async with opened(tmp_path / "t.db", Disk()) as database:
        group = Group(database)
    with pytest.raises(StoreUnavailable, match="closed"):
        await group.write(adds(1))


@settings(max_examples=scaled(300))
@given(st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=3), max_size=25))
def test_works_in_a_group_do_what_they_would_have_done_one_after_the_other(
    works: list[list[int]],
):
    """A work either adds all its values or, when one of them is there already, none."""
    expected: set[int] = set()
    outcomes: list[int | None] = []
    for values in works:
        fits = len(set(values)) == len(values) and expected.isdisjoint(values)
        expected |= set(values) if fits else set()
        outcomes.append(sum(values) if fits else None)

    async def run(path: Path) -> None:
        disk = Disk()
        disk.go_on.set()
        async with opened(path, disk) as database, asyncio.timeout(20):
            group = Group(database)
            found = await asyncio.gather(
                *(group.write(adds(*values)) for values in works), return_exceptions=True
            )
            assert [None if isinstance(one, Exception) else one for one in found] == outcomes
            assert await kept(database) == sorted(expected)
            assert disk.commits <= 2

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder, "t.db")))
