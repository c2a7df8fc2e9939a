"""Where work for nodes is kept: handed out once, answered by its node alone, gone in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import chain

import pytest

from bascule.clock import SYSTEM_CLOCK
from bascule.control.work.postgres_rows import PostgresRows
from bascule.control.work.rows import (
    MOST_ANSWERS,
    LocalRows,
    Progress,
    TooMuchWork,
    Work,
    WorkRows,
)
from bascule.db.postgres import Postgres
from tests.postgres.databases import database
from tests.waits import Heard

#: Of all nodes, and of one.
BOUNDS = 3, 2


@asynccontextmanager
async def replica(dsn: str) -> AsyncGenerator[PostgresRows, None]:
    postgres = await Postgres(dsn).open()
    try:
        yield await PostgresRows(postgres, *BOUNDS).open()
    finally:
        await postgres.close()


@pytest.fixture(params=["local", "postgres"])
async def rows(request: pytest.FixtureRequest) -> AsyncGenerator[WorkRows, None]:
    if request.param == "local":
        yield LocalRows(SYSTEM_CLOCK, *BOUNDS)
        return
    async with database() as dsn, replica(dsn) as kept:
        yield kept


def work(id: str, node: str = "east", seconds: float = 60.0) -> Work:
    return Work(id=id, node=node, job=b"{}", revision=7, seconds=seconds)


async def handed(rows: WorkRows, id: str = "a") -> None:
    await rows.add(work(id))
    assert [one.id for one in await rows.take(["east"])] == [id]


@pytest.mark.requirement("registry:grpc:work")
async def test_work_is_handed_out_once_and_to_its_node(rows: WorkRows):
    await rows.add(work("a"))
    await rows.add(work("b", "west"))
    assert {*await rows.waiting()} == {"east", "west"}
    assert await rows.take(["north"]) == []
    [given] = await rows.take(["east", "north"])
    assert (given.id, given.node, given.job, given.revision) == ("a", "east", b"{}", 7)
    assert 0 < given.seconds <= 60
    assert {*await rows.waiting()} == {"west"}
    assert await rows.take(["east"]) == []


async def test_answers_come_in_order_and_after_those_known(rows: WorkRows):
    await handed(rows)
    for number in range(3):
        assert await rows.answer("a", "east", b"%d" % number, last=number == 2) == "kept"
    found = await rows.progress({"a": 1, "gone": 0})
    assert found == {"a": Progress(taken=True, answers=[b"1", b"2"])}
    assert await rows.answer("a", "east", b"late", last=True) == "unwanted"
    assert (await rows.progress({"a": 3}))["a"].answers == []


async def test_only_the_node_that_was_handed_work_answers_it(rows: WorkRows):
    await rows.add(work("a"))
    assert await rows.answer("a", "east", b"early", last=True) == "unwanted"
    await rows.take(["east"])
    assert await rows.answer("a", "west", b"x", last=True) == "foreign"
    assert await rows.answer("nothing", "east", b"x", last=True) == "unwanted"
    assert (await rows.progress({"a": 0}))["a"].answers == []


async def test_what_nobody_waits_for_is_not_wanted(rows: WorkRows):
    await handed(rows, "a")
    await handed(rows, "b")
    assert {*await rows.wanted(["a", "b", "c"])} == {"a", "b"}
    await rows.remove(["a"])
    await rows.answer("b", "east", b"x", last=True)
    assert {*await rows.wanted(["a", "b", "c"])} == set()
    assert await rows.answer("a", "east", b"x", last=False) == "unwanted"


async def test_what_nodes_were_handed_is_known_until_it_is_finished(rows: WorkRows):
    await handed(rows, "a")
    await handed(rows, "b")
    await rows.add(work("c", "west"))
    assert await rows.handed(["east", "west", "north"]) == {"a": "east", "b": "east"}
    assert await rows.handed(["west"]) == {}
    await rows.answer("a", "east", b"x", last=False)
    await rows.answer("b", "east", b"x", last=True)
    assert await rows.handed(["east"]) == {"a": "east"}


async def test_work_is_withdrawn_unless_it_was_handed_out(rows: WorkRows):
    await rows.add(work("a"))
    assert await rows.withdraw("a")
    assert await rows.take(["east"]) == []
    await handed(rows, "b")
    assert not await rows.withdraw("b")
    assert not await rows.withdraw("nothing")
    assert "b" in await rows.progress({"b": 0})


async def test_what_is_over_its_time_is_neither_handed_out_nor_answered(rows: WorkRows):
    await rows.add(work("a", seconds=0.0))
    assert {*await rows.waiting()} == set()
    assert await rows.take(["east"]) == []
    await rows.sweep()
    assert await rows.progress({"a": 0}) == {}


async def test_as_much_is_open_as_may_be_and_no_more(rows: WorkRows):
    await rows.add(work("old", seconds=0.0))
    await rows.add(work("a"))
    await rows.add(work("b"))
    with pytest.raises(TooMuchWork):
        await rows.add(work("c"))
    await rows.add(work("d", "west"))
    with pytest.raises(TooMuchWork):
        await rows.add(work("e", "north"))
    await rows.remove(["a"])
    await rows.add(work("f", "north"))


async def test_a_node_that_answers_without_end_is_no_longer_heard(rows: WorkRows):
    await handed(rows)
    for _ in range(MOST_ANSWERS):
        assert await rows.answer("a", "east", b"x", last=False) == "kept"
    assert await rows.answer("a", "east", b"x", last=False) == "unwanted"


@pytest.mark.requirement("registry:grpc:work")
async def test_two_replicas_that_take_at_once_never_take_the_same():
    async with database() as dsn, replica(dsn) as one, replica(dsn) as other:
        for turn in range(5):
            await one.add(work(f"{turn}a"))
            await other.add(work(f"{turn}b"))
            taking = (rows.take(["east"]) for rows in (one, other, one, other))
            found = await asyncio.gather(*taking)
            ids = sorted(given.id for given in chain(*found))
            assert ids == [f"{turn}a", f"{turn}b"]
            await one.remove(ids)


async def test_a_replica_hears_what_another_writes():
    async with database() as dsn, replica(dsn) as one, replica(dsn) as other:
        rung = Heard[None]()
        listening = asyncio.create_task(other.listening(lambda: rung.hear(None)))
        try:
            await rung.reach(1)  # it listens
            await one.add(work("a"))
            await rung.reach(2)
            await one.take(["east"])
            await one.answer("a", "east", b"x", last=True)
            await rung.reach(3)
            await one.remove(["a"])
            await rung.reach(4)
        finally:
            listening.cancel()
            await asyncio.wait({listening})
