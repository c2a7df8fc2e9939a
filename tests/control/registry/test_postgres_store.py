"""The registry in PostgreSQL: nobody starves, nothing is written twice, and no lie is told."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from bascule.audit.events import Act
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.control.registry.errors import HeadMoved
from bascule.control.registry.plan import Draft
from bascule.control.registry.postgres_store import FOLLOW_SECONDS, FORMS, PostgresStore
from bascule.control.registry.service import RegistryService, Settings, open_registry
from bascule.control.registry.store import PATIENCE, Author, Change, Retention, View
from bascule.db.errors import StoreUnavailable
from bascule.db.postgres import Postgres, lock_key
from bascule.model.server import ServerRecord
from bascule.testing.clock import FakeClock
from tests.control.registry.build import BY, changes, server, write
from tests.control.registry.conftest import postgres
from tests.postgres.cluster import Cluster, own_cluster
from tests.postgres.databases import database
from tests.scale import SOAK
from tests.waits import DEADLINE_SECONDS, SOON_SECONDS, until

SHORT = 0.5
KILLS = 50 if SOAK else 5


@pytest.fixture
async def dsn() -> AsyncGenerator[str, None]:
    async with database() as found:
        yield found


@pytest.fixture
async def beside(dsn: str) -> AsyncGenerator[Postgres, None]:
    """Open the database for whoever looks at it from outside."""
    async with postgres(dsn) as found:
        yield found


@pytest.fixture
def cluster() -> Generator[Cluster, None, None]:
    with own_cluster() as found:
        yield found


@asynccontextmanager
async def opened(
    dsn: str, *, clock: Clock = SYSTEM_CLOCK, seconds: float = SOON_SECONDS, pooler: bool = False
) -> AsyncGenerator[PostgresStore, None]:
    """Open a store; where a ``pooler`` would be between, the server knows of no deadline."""
    found = Postgres(dsn, seconds=seconds, listen_dsn=dsn if pooler else None, most=2)
    await found.open()
    try:
        yield await PostgresStore(found, clock=clock).open()
    finally:
        await found.close()


class Between(FakeClock):
    """A clock that a store looks at after it has read and before it writes: something happens."""

    def __init__(self, happens: Callable[[], object], *, times: int = 1) -> None:
        super().__init__()
        self._happens = happens
        self.left = 0
        self._times = times

    def now(self) -> float:
        """Have it happen; the time stands still."""
        if self.left:
            self.left -= 1
            self._happens()
        return super().now()

    def arm(self) -> None:
        """From now on."""
        self.left = self._times


def meanwhile(another: Callable[[], Coroutine[object, object, None]]) -> Callable[[], object]:
    """Have something done each time, while this event loop stands still."""

    def work() -> None:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, another()).result(DEADLINE_SECONDS)

    return work


def written_by_another(dsn: str) -> Callable[[], object]:
    """Write something each time."""
    numbers = itertools.count()

    async def another() -> None:
        async with opened(dsn) as theirs:
            await theirs.write([write("theirs", display_name=str(next(numbers)))], BY)

    return meanwhile(another)


# --- races


@pytest.mark.requirement("registry:write:race")
async def test_a_lost_race_is_planned_again(dsn: str):
    clock = Between(written_by_another(dsn), times=2)
    async with opened(dsn, clock=clock) as ours:
        clock.arm()
        change = await ours.write([write("ours")], BY)
        assert change is not None
        assert (change.revision, clock.left) == (3, 0)
        planned_on = (await ours.head()).position
        clock.arm()
        with pytest.raises(HeadMoved):
            await ours.write([write("late")], BY, base=planned_on)
        assert clock.left == 1, "whoever planned on a revision plans again itself"
        assert [change.revision for change in await ours.changes(0)] == [1, 2, 3, 4]


@pytest.mark.requirement("registry:write:same-store")
@pytest.mark.parametrize(
    "replaced",
    [
        "UPDATE registry_head SET store_id = 'another'",
        "UPDATE registry_revisions SET mark = 'another' WHERE revision = 1",
    ],
    ids=["another store", "a copy that was written past it"],
)
async def test_a_store_that_took_the_place_of_the_one_that_was_read_is_not_written(
    dsn: str, replaced: str
):
    """It is at the same revision, so that only its name or its mark tells."""

    async def replace() -> None:
        async with postgres(dsn) as theirs:
            await theirs.statement(replaced)

    clock = Between(meanwhile(replace))
    async with opened(dsn, clock=clock) as ours:
        await ours.write([write("a")], BY)
        planned_on = (await ours.head()).position
        clock.arm()
        with pytest.raises(HeadMoved):
            await ours.write([write("b")], BY, base=planned_on)
        assert (clock.left, (await ours.head()).revision) == (0, 1)


def waits_for_lock(beside: Postgres, count: int = 1) -> Callable[[], object]:
    async def look() -> bool:
        query = """SELECT FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'"""
        return len(await beside.fetch(query)) >= count

    return look


@pytest.mark.requirement("registry:write:turns")
async def test_whoever_loses_every_race_has_the_next_turn(dsn: str, beside: Postgres):
    """Another writes between the plan and the write, each time, as long as that can be done."""
    numbers = itertools.count()
    async with opened(dsn) as ours, opened(dsn) as theirs:
        service = RegistryService(ours, await ours.view())
        others: list[asyncio.Task[Change | None]] = []
        waits = waits_for_lock(beside)

        async def note(_: Act) -> None:
            other = [write("theirs", display_name=str(next(numbers)))]
            others.append(asyncio.create_task(theirs.write(other, BY)))
            await until(lambda: others[-1].done() or waits())

        service.note = note
        written = await service.put("server", "ours", server("ours"), BY)
        assert (written.revision, len(others)) == (PATIENCE + 1, PATIENCE + 1)
        last = await others[-1]
        assert last is not None
        assert last.revision == written.revision + 1


@pytest.mark.requirement("registry:write:turns")
async def test_a_store_that_loses_every_race_locks_the_counter(dsn: str, beside: Postgres):
    clock = Between(written_by_another(dsn), times=PATIENCE)
    async with opened(dsn, clock=clock) as ours:
        clock.arm()
        change = await ours.write([write("ours")], BY)
        assert change is not None
        assert change.revision == PATIENCE + 1


@pytest.mark.requirement("registry:write:turns")
async def test_of_eight_writers_over_two_services_nobody_starves(dsn: str):
    """Every plan is made again at most so often as races may be lost, and once more."""
    times = 20 if SOAK else 5
    planned: list[int] = []

    async def count_up(service: RegistryService) -> None:
        for _ in range(times):
            plans = 0

            def plan(view: View) -> Draft:
                nonlocal plans
                plans += 1
                return Draft((write("n", display_name=str(counted(view) + 1)),))

            await service.transact(plan, BY)
            planned.append(plans)

    async with AsyncExitStack() as stack:
        both = [await stack.enter_async_context(opened(dsn)) for _ in range(2)]
        services = [await stack.enter_async_context(open_registry(store)) for store in both]
        async with asyncio.TaskGroup() as writing:
            for number in range(8):
                writing.create_task(count_up(services[number % 2]))
        view = await both[0].view()
        assert view.revision == counted(view) == 8 * times
        assert max(planned) <= PATIENCE + 1


def counted(view: View) -> int:
    found = view.get("server", "n")
    record = None if found is None else found.record
    assert record is None or isinstance(record, ServerRecord)
    return 0 if record is None else int(record.display_name)


async def test_a_process_tells_its_own_writes_in_order(dsn: str):
    async with opened(dsn) as ours, opened(dsn) as theirs:
        heard: list[int] = []
        ours.listen(lambda change: heard.append(change.revision))
        told = await asyncio.gather(
            *(ours.write([write(f"o{n}")], BY) for n in range(12)),
            *(theirs.write([write(f"t{n}")], BY) for n in range(12)),
        )
        assert heard == sorted(heard)
        assert heard == [change.revision for change in told[:12] if change is not None]


# --- in doubt


@pytest.mark.requirement("registry:write:in-doubt")
async def test_a_write_that_nobody_answered_and_that_happened_is_acknowledged(
    dsn: str, beside: Postgres
):
    """Its connection is cut while it waits for a lock; it goes on when the lock is free."""
    async with opened(dsn) as holder, opened(dsn, seconds=4 * SHORT, pooler=True) as ours:
        heard: list[Change] = []
        ours.listen(heard.append)
        async with holder.reserved():
            writing = asyncio.create_task(ours.write([write("a")], BY))
            await until(waits_for_lock(beside, 2))  # it, and then whoever asks about it
        change = await writing
        assert change is not None
        assert await ours.changes(0) == (change,) == tuple(heard)


@pytest.mark.requirement("registry:write:in-doubt")
async def test_a_write_that_is_still_unread_when_it_is_asked_about_never_happens(cluster: Cluster):
    """Its backend stands still, and has the statement before it when it goes on."""
    stopped: list[int] = []

    def stop() -> None:
        stopped.append(pid)
        os.kill(pid, signal.SIGSTOP)

    clock = Between(stop)
    async with (
        opened(cluster.dsn()) as other,
        opened(cluster.dsn(), clock=clock, seconds=2 * SHORT) as ours,
    ):
        await ours.write([write("first")], BY)  # from now on the server knows the statement
        [row] = await ours._postgres.fetch("SELECT pg_backend_pid()")
        pid = row[0]
        clock.arm()
        with pytest.raises(StoreUnavailable, match="nothing was written"):
            await ours.write([write("a")], BY)
        assert stopped == [pid]
        os.kill(pid, signal.SIGCONT)
        await until(lambda: ended(other, pid))
        assert (await other.head()).revision == 1
        assert await ours.write([write("b")], BY)
        assert {key for _, key in (await other.view()).objects} == {"first", "b"}


async def ended(store: PostgresStore, pid: int) -> bool:
    query = "SELECT FROM pg_stat_activity WHERE pid = $1"
    return not await store._postgres.fetch(query, pid)


@pytest.mark.requirement("registry:write:in-doubt")
async def test_what_cannot_be_found_out_in_time_is_said_to_be_unknown(cluster: Cluster):
    clock = Between(cluster.pause)
    async with opened(cluster.dsn(), clock=clock, seconds=SHORT) as ours:
        clock.arm()
        try:
            with pytest.raises(StoreUnavailable, match="revision 1 was written cannot be found"):
                await ours.write([write("a")], BY)
            assert ours.refusal is not None
        finally:
            cluster.go_on()


@pytest.mark.requirement("registry:write:in-doubt", "registry:revision:durable")
async def test_a_killed_server_loses_nothing_that_was_acknowledged_and_doubles_nothing(
    cluster: Cluster,
):
    """Every write is a record of its own, so that one which happened twice would show as two."""
    acknowledged: dict[str, int] = {}
    numbers = itertools.count()
    over = asyncio.Event()

    async def keep_writing(store: PostgresStore) -> None:
        while not over.is_set():
            name = f"s{next(numbers)}"
            try:
                change = await store.write([write(name)], Author("ada", name))
            except StoreUnavailable:
                continue
            assert change is not None
            acknowledged[name] = change.revision

    async with AsyncExitStack() as stack:
        both = [await stack.enter_async_context(opened(cluster.dsn())) for _ in range(2)]
        async with asyncio.TaskGroup() as writing:
            for number in range(4):
                writing.create_task(keep_writing(both[number % 2]))
            for _ in range(KILLS):
                known = len(acknowledged)
                await until(lambda known=known: len(acknowledged) > known + 5)
                await asyncio.to_thread(cluster.kill)
                await asyncio.to_thread(cluster.start)
            over.set()
        log = [change for store in both[:1] for change in await all_changes(store)]
        assert [change.revision for change in log] == list(range(1, len(log) + 1))
        written = {change.note: change.revision for change in log}
        assert len(written) == len(log), "one was written twice"
        assert acknowledged.items() <= written.items()
        assert len(acknowledged) > 5 * KILLS


async def all_changes(store: PostgresStore) -> list[Change]:
    found: list[Change] = []
    while page := await store.changes(len(found)):
        found.extend(page)
    return found


# --- following

LISTENING = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND query LIKE 'LISTEN%'"""


@pytest.mark.requirement("registry:follow:bell")
async def test_a_change_of_another_process_arrives_without_a_poll(dsn: str, clock: FakeClock):
    async with opened(dsn) as theirs, opened(dsn) as ours, open_registry(ours, clock=clock) as here:
        events = await here.watch(0)
        for number in range(3):
            await theirs.write([write("a", display_name=str(number))], BY)
        assert [change.revision for change in await changes(events, 3)] == [1, 2, 3]


async def test_a_process_is_told_of_others_writes_and_not_of_its_own(dsn: str):
    """Words come in the order of the writes: with the last one, all have come."""
    rings: list[str] = []
    async with opened(dsn) as ours, opened(dsn) as theirs, asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(ours.watch_others(lambda: rings.append("rung")))
        await until(lambda: rings)  # it listens
        for name in ("a", "b"):
            await ours.write([write(name)], BY)
        await theirs.write([write("c")], BY)
        await until(lambda: len(rings) > 1)
        assert len(rings) == 2
        watching.cancel()


@pytest.mark.requirement("registry:follow:bell")
async def test_a_change_arrives_although_the_listeners_backend_was_ended(
    dsn: str, beside: Postgres, clock: FakeClock
):
    """The clock stands still, so that nobody polls."""
    async with opened(dsn) as theirs, opened(dsn) as ours, open_registry(ours, clock=clock) as here:
        events = await here.watch(0)
        await until(lambda: beside.fetch(LISTENING))
        await theirs.write([write("a")], BY)
        assert [change.revision for change in await changes(events, 1)] == [1]


@pytest.mark.requirement("registry:follow:poll")
async def test_without_a_listener_others_are_polled_every_two_seconds(dsn: str, clock: FakeClock):
    database = await Postgres(dsn, listen_dsn="postgresql://nobody@127.0.0.1:1/nowhere").open()
    try:
        ours = await PostgresStore(database, clock=clock).open()
        async with opened(dsn) as theirs, open_registry(ours, clock=clock) as here:
            await theirs.write([write("a")], BY)
            assert here.view.revision == 0
            await clock.advance(2.0)
            await until(lambda: here.view.revision == 1)
    finally:
        await database.close()


async def test_a_cancelled_writer_leaves_no_gap_for_watchers(
    dsn: str, beside: Postgres, clock: FakeClock
):
    """What it asked for may happen without it, and is told by the bell."""
    async with (
        opened(dsn) as holder,
        opened(dsn, pooler=True) as ours,
        open_registry(ours, clock=clock) as here,
    ):
        events = await here.watch(0)
        async with holder.reserved():
            writing = asyncio.create_task(here.put("server", "a", server("a"), BY))
            await until(waits_for_lock(beside))
            writing.cancel()
            await asyncio.wait([writing])
        await until(lambda: reached(holder, 1))
        await here.put("server", "b", server("b"), BY)
        assert [change.revision for change in await changes(events, 2)] == [1, 2]


async def reached(store: PostgresStore, revision: int) -> bool:
    return (await store.head()).revision == revision


# --- upkeep


@pytest.mark.requirement("registry:compaction:one")
async def test_one_process_compacts_at_a_time(dsn: str, beside: Postgres):
    async with opened(dsn) as ours:
        for number in range(4):
            await ours.write([write("a", display_name=str(number))], BY)
        async with beside.transaction() as other:
            key = "SELECT pg_advisory_xact_lock($1)"
            await other.fetch(key, lock_key("compacting the registry"))
            assert await ours.compact(Retention(changes=1)) == 0
        assert await ours.compact(Retention(changes=1)) == 3


@pytest.mark.requirement("registry:compaction:one")
async def test_compaction_that_is_broken_off_leaves_what_its_floor_says(
    dsn: str, beside: Postgres, clock: FakeClock
):
    """One batch is done; the next one is refused."""
    async with postgres(dsn) as found:
        ours = await PostgresStore(found, clock=clock, batch=2).open()
        for number in range(7):
            await ours.write([write("a", display_name=str(number))], BY)
        views = [await ours.view(revision) for revision in range(8)]
        await beside.statement(REFUSE_FOUR)
        with pytest.raises(StoreUnavailable, match="no further"):
            await ours.compact(Retention(changes=1))
        assert (await ours.head()).floor == 2
        assert [await ours.view(revision) for revision in range(2, 8)] == views[2:]
        assert [change.revision for change in await ours.changes(2)] == [3, 4, 5, 6, 7]


REFUSE_FOUR = """DO $do$ BEGIN
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$BEGIN RAISE EXCEPTION 'no further'; END$$;
    CREATE TRIGGER refuse BEFORE UPDATE ON registry_head FOR EACH ROW
        WHEN (NEW.floor > 2) EXECUTE FUNCTION refuse();
END $do$"""


async def test_a_text_with_a_zero_in_it_is_kept_with_another_character(dsn: str):
    async with opened(dsn) as ours:
        change = await ours.write([write("a")], Author("a\0da", "be\0cause"))
        assert change is not None
        assert (change.actor, change.note) == ("a\ufffdda", "be\ufffdcause")
        assert await ours.changes(0) == (change,)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DELETE FROM registry_head", "have been emptied"),
        ("DROP TABLE registry_head", "does not exist"),
    ],
)
async def test_tables_that_somebody_emptied_are_not_an_empty_registry(
    dsn: str, beside: Postgres, statement: str, words: str
):
    async with opened(dsn) as ours:
        await ours.write([write("a")], BY)
        await beside.statement(statement)
        for asking in (ours.head(), ours.view(), ours.changes(0), ours.write([write("b")], BY)):
            with pytest.raises(StoreUnavailable, match=words):
                await asking


async def test_a_form_of_a_later_version_is_refused(dsn: str, beside: Postgres):
    async with opened(dsn):
        await beside.statement("UPDATE bascule_forms SET form = $1", len(FORMS) + 2)
    with pytest.raises(StoreUnavailable, match="newer"):
        async with opened(dsn):
            raise AssertionError("it was opened")


async def test_a_server_that_is_away_refuses_writes_and_says_so(cluster: Cluster):
    async with opened(cluster.dsn(), seconds=SHORT) as ours, open_registry(ours) as service:
        await service.put("server", "a", server("a"), BY)
        cluster.kill()
        with pytest.raises(StoreUnavailable):
            await service.put("server", "b", server("b"), BY)
        assert service.refusal is not None
        assert [stored.id for stored in service.view.of_kind("server")] == ["a"]
        cluster.start()
        await until(lambda: service.refusal is None)
        assert (await service.put("server", "b", server("b"), BY)).revision == 2


#: How long nobody may know that a database is away.
DEGRADED_SECONDS = 5.0


@pytest.mark.requirement("registry:postgres:noticed")
async def test_a_server_that_hangs_is_noticed_by_the_next_look(cluster: Cluster, clock: FakeClock):
    """Whoever else asks has much more time: only the look gives up."""
    patient = 2 * DEADLINE_SECONDS
    assert Settings().poll_seconds + FOLLOW_SECONDS < DEGRADED_SECONDS
    async with (
        opened(cluster.dsn(), clock=clock, seconds=patient) as ours,
        open_registry(ours, clock=clock) as service,
    ):
        cluster.pause()
        try:
            assert service.refusal is None
            await clock.advance(Settings().poll_seconds)
            await until(lambda: service.refusal is not None)
        finally:
            cluster.go_on()


MUCH = Author("ada", random.Random(20).randbytes(12 << 20).hex())


@pytest.mark.requirement("registry:postgres:refusal-stands")
async def test_on_a_full_disk_writes_are_refused_until_one_would_be_taken(
    cluster: Cluster, clock: FakeClock
):
    """Reads are answered all the while; nobody writes anything more."""
    async with (
        opened(cluster.dsn(), clock=clock) as ours,
        open_registry(ours, clock=clock) as service,
    ):
        cluster.fill_disk()
        with pytest.raises(StoreUnavailable, match="could not extend file"):
            await ours.write([write("a")], MUCH)
        await ours.heal()
        await service.catch_up()
        assert "could not extend file" in (service.refusal or "")
        cluster.empty_disk()
        await clock.advance(2.0)
        await until(lambda: service.refusal is None)
        assert (await ours.head()).revision == 0, "it was only tried"


@pytest.mark.requirement("registry:postgres:refusal-stands")
async def test_a_write_that_is_taken_ends_the_refusal_of_another(cluster: Cluster):
    async with opened(cluster.dsn()) as ours:
        cluster.fill_disk()
        with pytest.raises(StoreUnavailable):
            await ours.write([write("a")], MUCH)
        assert ours.refusal is not None
        await ours.write([write("a")], BY)
        assert ours.refusal is None
