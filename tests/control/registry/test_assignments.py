"""What nodes are assigned: kept, told to other replicas, noted, and refused where it is wrong."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from bascule.audit.events import Act, NodeAssigned
from bascule.audit.ledger import LedgerUnavailable
from bascule.control.registry.assignments import Assignments, AssignmentStore
from bascule.control.registry.postgres_assignments import PostgresAssignments
from bascule.control.registry.sqlite_store import SqliteStore
from bascule.control.registry.store import View
from bascule.db.postgres import Postgres
from bascule.errors import InvalidRecord
from bascule.model.assignment import ALL, Assignment
from tests.control.registry.build import BY, write
from tests.control.registry.memory_store import MemoryStore
from tests.postgres.databases import database

EAST = Assignment(tasks=("t",), labels=("dmz",))


@asynccontextmanager
async def replica(dsn: str) -> AsyncGenerator[PostgresAssignments, None]:
    postgres = await Postgres(dsn).open()
    try:
        yield await PostgresAssignments(postgres).open()
    finally:
        await postgres.close()


@pytest.fixture
async def view() -> View:
    store = MemoryStore()
    await store.write([write("t", kind="task", task_id="t")], BY)
    return await store.view()


@pytest.fixture(params=["sqlite", "postgres"])
async def stores(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncGenerator[tuple[AssignmentStore, AssignmentStore], None]:
    """Open a place twice, as a replica and as one that is started later."""
    async with AsyncExitStack() as stack:
        if request.param == "postgres":
            dsn = await stack.enter_async_context(database())
            first, second = [await stack.enter_async_context(replica(dsn)) for _ in range(2)]
        else:
            opened = [SqliteStore(tmp_path / "registry.db", synchronous="OFF") for _ in range(2)]
            for one in opened:
                await one.open()
                stack.push_async_callback(one.close)
            first, second = (one.assignments for one in opened)
        yield first, second


async def opened(store: AssignmentStore | None, view: View) -> Assignments:
    found = Assignments(lambda: view)
    await found.open(store)
    return found


@pytest.mark.requirement("registry:nodes:assigned-durably")
async def test_what_is_assigned_is_there_for_whoever_opens_the_place_later(
    stores: tuple[AssignmentStore, AssignmentStore], view: View
):
    here = await opened(stores[0], view)
    assert here.of("east") is ALL
    await here.assign("east", EAST, BY, at=5.0, note=None)
    await here.assign("west", Assignment(tasks=()), BY, at=6.0, note=None)
    there = await opened(stores[1], view)
    assert [(one.node, one.assignment, one.actor, one.at) for one in there] == [
        ("east", EAST, "ada", 5.0),
        ("west", Assignment(tasks=()), "ada", 6.0),
    ]


@pytest.mark.requirement("registry:nodes:assigned-durably")
async def test_replicas_hear_of_what_is_assigned_at_another(view: View):
    async with database() as dsn, replica(dsn) as one, replica(dsn) as other:
        here, there = await opened(one, view), await opened(other, view)
        await here.assign("east", EAST, BY, at=5.0, note=None)
        assert await there.refresh()
        assert there.of("east") == EAST
        assert not await there.refresh()
        await there.assign("east", ALL, BY, at=6.0, note=None)
        assert await here.refresh()
        assert here.of("east") is ALL


@pytest.mark.requirement("registry:nodes:assigned-durably")
async def test_an_assignment_is_noted_before_it_is_done_or_not_done(view: View):
    noted: list[Act] = []

    async def note(act: Act) -> None:
        if noted:
            raise LedgerUnavailable("the disk is full")
        noted.append(act)

    found = await opened(None, view)
    await found.assign("east", Assignment(tasks=("t", "t")), BY, at=5.0, note=note)
    assert noted == [NodeAssigned(timestamp=5.0, by="ada", node="east", tasks=("t",))]
    with pytest.raises(LedgerUnavailable):
        await found.assign("east", ALL, BY, at=6.0, note=note)
    assert found.of("east") == Assignment(tasks=("t",))


async def test_a_task_that_is_not_there_is_refused(view: View):
    found = await opened(None, view)
    with pytest.raises(InvalidRecord, match="tasks: there is no task 'x'"):
        await found.assign("east", Assignment(tasks=("t", "x")), BY, at=5.0, note=None)
    assert found.of("east") is ALL


def test_an_assignment_is_named_by_what_it_says_and_not_by_the_order():
    assert ALL.part == ""
    one, other = Assignment(tasks=("a", "b")), Assignment(tasks=("b", "a", "a"))
    assert one.part == other.part != Assignment(labels=("a", "b")).part
    assert str(EAST) == "tasks t; labels dmz"
    assert str(Assignment(tasks=())) == "tasks none"
    with pytest.raises(TypeError, match="tasks must be a list"):
        Assignment(tasks="t")  # pyright: ignore[reportArgumentType] - that is the point
