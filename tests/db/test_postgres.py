"""PostgreSQL behind a pool: whatever is wrong with it is said in time, and nothing is left."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bascule.db.driver import Connection
from bascule.db.errors import OutcomeUnknown, StoreUnavailable
from bascule.db.postgres import Postgres, lock_key
from bascule.db.postgres_listener import Listener
from bascule.db.postgres_presence import Presence
from tests.node.pool.fake_channel import our_tasks
from tests.postgres.cluster import Cluster, own_cluster
from tests.postgres.databases import database
from tests.postgres.deaf_pooler import deaf_pooler
from tests.waits import DEADLINE_SECONDS, SOON_SECONDS, Heard, until

#: How long a statement may take: a busy machine opens a connection within it, too.
SHORT = 1.5
MUCH = "INSERT INTO t SELECT g, repeat('y', 2000) FROM generate_series(1, 10000) g"
TABLE = "CREATE TABLE t (x integer PRIMARY KEY, y text)"


@asynccontextmanager
async def opened(
    dsn: str, *, seconds: float = SOON_SECONDS, most: int = 8
) -> AsyncGenerator[Postgres, None]:
    postgres = await Postgres(dsn, seconds=seconds, most=most).open()
    try:
        yield postgres
    finally:
        await postgres.close()


@pytest.fixture
async def dsn() -> AsyncGenerator[str, None]:
    async with database() as found:
        yield found


@pytest.fixture
async def postgres(dsn: str) -> AsyncGenerator[Postgres, None]:
    async with opened(dsn) as found:
        yield found


@pytest.fixture
def cluster() -> Generator[Cluster, None, None]:
    with own_cluster() as found:
        yield found


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncGenerator[None, None]:
    """Fail whoever leaves a task behind."""
    before = our_tasks()
    yield
    assert our_tasks() <= before


async def count(postgres: Postgres) -> int:
    [row] = await postgres.fetch("SELECT count(*) FROM t")
    return int(row[0])


# --- transactions


async def test_a_transaction_is_all_or_nothing(postgres: Postgres):
    await postgres.statement(TABLE)

    async def fails(connection: Connection) -> None:
        await connection.execute("INSERT INTO t VALUES (1)")
        raise KeyError("on purpose")

    async def twice(connection: Connection) -> None:
        await connection.execute("INSERT INTO t VALUES (1)")
        await connection.execute("INSERT INTO t VALUES (1)")

    with pytest.raises(KeyError):
        await postgres.write(fails)
    with pytest.raises(StoreUnavailable, match="duplicate key"):
        await postgres.write(twice)
    assert await count(postgres) == 0
    await postgres.write(lambda c: c.execute("INSERT INTO t VALUES (1)"))
    assert await count(postgres) == 1


async def test_a_read_sees_one_snapshot(postgres: Postgres):
    await postgres.statement(TABLE)

    async def work(connection: Connection) -> tuple[int, int]:
        first = await connection.fetchval("SELECT count(*) FROM t")
        await postgres.statement("INSERT INTO t VALUES (1)")
        return first, await connection.fetchval("SELECT count(*) FROM t")

    assert await postgres.read(work) == (0, 0)
    with pytest.raises(StoreUnavailable, match="read-only"):
        await postgres.read(lambda c: c.execute("INSERT INTO t VALUES (2)"))


async def test_an_open_transaction_is_undone_unless_its_last_word_is_said(postgres: Postgres):
    await postgres.statement(TABLE)
    async with postgres.transaction() as transaction:
        await transaction.fetch("INSERT INTO t VALUES (1)")
        assert await count(postgres) == 0
    assert await count(postgres) == 0
    async with postgres.transaction() as transaction:
        await transaction.fetch("INSERT INTO t VALUES (1)")
        await transaction.statement("INSERT INTO t VALUES (2)")
        assert await count(postgres) == 2
    assert await count(postgres) == 2


async def test_an_open_transaction_that_says_nothing_does_not_hold_a_lock_for_ever(dsn: str):
    async with opened(dsn) as other, opened(dsn, seconds=SHORT) as postgres:
        await other.statement(TABLE)
        await other.statement("INSERT INTO t VALUES (1)")
        async with postgres.transaction() as transaction:
            await transaction.fetch("SELECT FROM t FOR UPDATE")
            await other.statement("UPDATE t SET y = 'mine'")
            with pytest.raises(StoreUnavailable):
                await transaction.statement("UPDATE t SET y = 'late'")
        [row] = await other.fetch("SELECT y FROM t")
        assert row[0] == "mine"


async def test_a_refused_statement_is_certain_and_a_broken_one_is_not(dsn: str):
    async with opened(dsn, seconds=SHORT) as postgres:
        with pytest.raises(StoreUnavailable) as refused:
            await postgres.statement("INSERT INTO nowhere VALUES (1)")
        assert not isinstance(refused.value, OutcomeUnknown)
        with pytest.raises(OutcomeUnknown):
            await postgres.statement("SELECT pg_terminate_backend(pg_backend_pid())")
        assert "went away" in (postgres.trouble or "")
        assert await postgres.fetch("SELECT 1")
        assert postgres.trouble is None


# --- what is away


async def test_nobody_there_is_said_and_shows_no_password():
    dsn = "postgresql://ada:hunter2@127.0.0.1:1/bascule"
    with pytest.raises(StoreUnavailable, match=r"PostgreSQL at 127\.0\.0\.1:1/bascule") as error:
        await Postgres(dsn).open()
    assert "hunter2" not in str(error.value)
    with pytest.raises(StoreUnavailable, match="not open"):
        await Postgres(dsn).fetch("SELECT 1")


@pytest.mark.requirement("registry:postgres:deadline")
async def test_a_pool_that_is_used_up_says_so_in_time(dsn: str):
    async with opened(dsn) as patient, opened(dsn, seconds=SHORT, most=2) as postgres:
        await patient.statement(TABLE)
        enough, held = asyncio.Event(), Heard[Connection]()

        async def hold(connection: Connection) -> None:
            held.hear(connection)
            while not enough.is_set():
                await connection.execute("SELECT 1")

        async with asyncio.TaskGroup() as holding:
            for _ in range(2):
                holding.create_task(postgres.write(hold, seconds=SOON_SECONDS))
            await held.reach(2)
            with pytest.raises(StoreUnavailable, match="all of its 2 connections are in use"):
                await postgres.statement("INSERT INTO t VALUES (1)")
            with pytest.raises(StoreUnavailable, match="in use"):
                async with postgres.transaction():
                    raise AssertionError("there is none")
            enough.set()
        await postgres.statement("INSERT INTO t VALUES (1)")
        assert await count(postgres) == 1


@pytest.mark.requirement("registry:postgres:deadline")
async def test_a_statement_that_hangs_ends_in_time(dsn: str):
    """The server itself ends it, so that nothing of it can happen later."""
    async with opened(dsn) as holder, opened(dsn, seconds=SHORT) as postgres:
        await holder.statement(TABLE)
        await holder.statement("INSERT INTO t VALUES (1)")
        async with holder.transaction() as holding:
            await holding.fetch("SELECT FROM t FOR UPDATE")
            with pytest.raises(StoreUnavailable):
                await postgres.statement("UPDATE t SET y = 'late'")
        await until(lambda: idle(holder))
        [row] = await holder.fetch("SELECT y FROM t")
        assert row[0] is None


async def idle(postgres: Postgres) -> bool:
    query = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND state <> 'idle' AND pid <> pg_backend_pid()"""
    [row] = await postgres.fetch(query)
    return not row[0]


@pytest.mark.requirement("registry:postgres:deadline")
async def test_a_server_that_hangs_costs_each_question_its_deadline(cluster: Cluster):
    async with opened(cluster.dsn(), seconds=SHORT) as postgres:
        await postgres.statement(TABLE)
        cluster.pause()
        try:
            with pytest.raises(StoreUnavailable, match="took too long"):
                await postgres.fetch("SELECT 1")
            with pytest.raises(StoreUnavailable):  # by a new connection, which nobody takes
                await postgres.statement("INSERT INTO t VALUES (1)")
            with pytest.raises(StoreUnavailable):
                async with postgres.held("something"):
                    raise AssertionError("nobody can say so")
            assert postgres.trouble is not None
        finally:
            cluster.go_on()
        assert await until(lambda: answered(postgres))
        assert postgres.trouble is None


async def answered(postgres: Postgres) -> bool:
    try:
        return bool(await postgres.fetch("SELECT 1"))
    except StoreUnavailable:
        return False


@pytest.mark.requirement("registry:postgres:deadline")
async def test_a_killed_server_is_said_at_once_and_found_again(cluster: Cluster):
    async with opened(cluster.dsn()) as postgres:
        await postgres.statement(TABLE)
        asking = asyncio.create_task(postgres.statement("SELECT pg_sleep(60)"))
        await until(lambda: asked_for_long(postgres))
        cluster.kill()
        with pytest.raises(OutcomeUnknown):
            await asking
        with pytest.raises(StoreUnavailable):
            await postgres.fetch("SELECT 1")
        cluster.start()
        assert await until(lambda: answered(postgres))
        assert await count(postgres) == 0


async def asked_for_long(postgres: Postgres) -> bool:
    query = "SELECT FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)%' AND state = 'active'"
    return len(await postgres.fetch(query)) > 1  # this one is the other


@pytest.mark.requirement("registry:postgres:deadline")
async def test_a_full_disk_refuses_a_write_and_nothing_else(cluster: Cluster):
    async with opened(cluster.dsn()) as postgres:
        await postgres.statement(TABLE)
        cluster.fill_disk()
        with pytest.raises(StoreUnavailable, match="refuses: could not extend file") as full:
            await postgres.statement(MUCH)
        assert not isinstance(full.value, OutcomeUnknown)
        assert (await count(postgres), postgres.trouble) == (0, None)
        cluster.empty_disk()
        await postgres.statement(MUCH)
        assert await count(postgres) == 10_000


@pytest.mark.requirement("registry:postgres:deadline")
async def test_whoever_is_cancelled_leaves_no_question_behind(dsn: str):
    async with opened(dsn) as postgres:
        asking = asyncio.create_task(postgres.fetch("SELECT pg_sleep(60)"))
        await until(lambda: asked_for_long(postgres))
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
        assert await postgres.fetch("SELECT 1")


# --- what one process does for all

FORMS = (TABLE, "ALTER TABLE t ADD COLUMN z integer", "ALTER TABLE t ADD COLUMN a integer")


async def form(postgres: Postgres) -> int:
    [row] = await postgres.fetch("SELECT form FROM bascule_forms WHERE part = 'things'")
    return int(row[0])


@pytest.mark.requirement("registry:postgres:forms")
async def test_forms_go_forward_and_never_back(postgres: Postgres):
    await postgres.migrate("things", FORMS[:1])
    await postgres.statement("INSERT INTO t VALUES (1)")
    await postgres.migrate("things", FORMS)
    assert await form(postgres) == 3
    await postgres.statement("UPDATE t SET z = 1, a = 2")
    await postgres.migrate("things", FORMS)
    assert await count(postgres) == 1


@pytest.mark.requirement("registry:postgres:forms")
async def test_one_form_apart_serves_and_a_newer_one_is_refused(postgres: Postgres):
    await postgres.migrate("things", FORMS)
    await postgres.migrate("things", FORMS[:2])
    assert await form(postgres) == 3, "it is not taken back"
    with pytest.raises(StoreUnavailable, match=r"things in .* has form 3 .* knows 1: .* newer one"):
        await postgres.migrate("things", FORMS[:1])


@pytest.mark.requirement("registry:postgres:forms")
async def test_a_form_that_fails_leaves_the_older_one(postgres: Postgres):
    await postgres.migrate("things", FORMS[:1])
    with pytest.raises(StoreUnavailable):
        await postgres.migrate("things", (*FORMS[:2], "CREATE TABLE more (x text); nonsense"))
    assert await form(postgres) == 1
    await postgres.migrate("things", FORMS)


PROCESS = """
import asyncio, sys
from bascule.db.postgres import Postgres

async def main():
    postgres = await Postgres(sys.argv[1]).open()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await postgres.migrate("things", sys.argv[2:])
    await postgres.close()

asyncio.run(main())
"""


@pytest.mark.requirement("registry:postgres:forms")
async def test_forms_made_by_two_processes_at_once_are_made_once(dsn: str):
    """Neither form could be made twice."""
    command = (sys.executable, "-c", PROCESS, dsn, *FORMS)
    both = [
        await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        for _ in "ab"
    ]
    async with asyncio.timeout(DEADLINE_SECONDS):
        for process in both:
            assert process.stdout is not None
            assert await process.stdout.readline() == b"ready\n"
        for _, said in await asyncio.gather(*(process.communicate(b"go\n") for process in both)):
            assert said == b""
    assert [process.returncode for process in both] == [0, 0]
    async with opened(dsn) as postgres:
        assert await form(postgres) == 3


async def test_a_lock_is_held_by_one_and_dies_with_its_connection(postgres: Postgres):
    async with postgres.held("work") as mine:
        async with postgres.held("work") as other, postgres.held("rest") as apart:
            assert (mine, other, apart) == (True, False, True)
        await postgres.fetch(
            """SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'
            AND ((classid::bigint << 32) | objid::bigint) = $1 AND pid <> pg_backend_pid()""",
            lock_key("work"),
        )
        await until(lambda: can_be_had(postgres))


async def can_be_had(postgres: Postgres) -> bool:
    async with postgres.held("work") as mine:
        return mine


# --- listening


@asynccontextmanager
async def listening(postgres: Postgres, heard: Heard[str]) -> AsyncGenerator[Listener, None]:
    listener = Listener(postgres, "things", lambda _: heard.hear("a word"))
    running = asyncio.create_task(listener.run())
    try:
        yield listener
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_a_listener_rings_for_every_word_and_once_at_the_beginning(postgres: Postgres):
    heard: Heard[str] = Heard()
    async with listening(postgres, heard) as listener:
        await heard.reach(1)
        assert listener.trouble is None
        for _ in range(2):
            await postgres.statement("SELECT pg_notify('things', '')")
        await postgres.statement("SELECT pg_notify('others', '')")
        await postgres.statement("SELECT pg_notify('things', '')")
        assert len(await heard.reach(4)) == 4


async def test_a_listener_whose_backend_was_ended_listens_again_and_rings(postgres: Postgres):
    heard: Heard[str] = Heard()
    async with listening(postgres, heard):
        await heard.reach(1)
        await postgres.fetch(
            """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND query LIKE 'LISTEN%'"""
        )
        await heard.reach(2)
        await postgres.statement("SELECT pg_notify('things', '')")
        await heard.reach(3)


async def test_a_listener_beside_a_pooler_goes_to_the_server_itself(dsn: str):
    """What stands for the pooler is another database, where the word is never said."""
    async with database() as elsewhere:
        postgres = await Postgres(elsewhere, listen_dsn=dsn).open()
        heard: Heard[str] = Heard()
        try:
            async with listening(postgres, heard), opened(dsn) as direct:
                await heard.reach(1)
                await direct.statement("SELECT pg_notify('things', '')")
                await heard.reach(2)
        finally:
            await postgres.close()


async def test_whoever_asks_for_longer_has_longer_for_each_statement(dsn: str):
    """As a verification of all of the ledger does."""
    slow = f"SELECT pg_sleep({2 * SHORT})"
    async with opened(dsn, seconds=SHORT) as postgres:
        await postgres.read(lambda connection: connection.execute(slow), seconds=SOON_SECONDS)
        await postgres.write(lambda connection: connection.execute(slow), seconds=SOON_SECONDS)
        with pytest.raises(StoreUnavailable):
            await postgres.read(lambda connection: connection.execute(slow))


async def test_a_database_that_cannot_keep_every_text_is_refused():
    async with database("ENCODING 'LATIN1' LOCALE 'C'") as dsn, opened(dsn) as postgres:
        with pytest.raises(StoreUnavailable, match="the encoding LATIN1: make a database with"):
            await postgres.migrate("things", (TABLE,))
        assert await postgres.fetch("SELECT to_regclass('bascule_forms')") == [(None,)]


async def test_a_server_that_lets_nobody_in_is_said_to_refuse(dsn: str):
    nowhere = urlsplit(dsn)._replace(path="/nowhere").geturl()
    with pytest.raises(StoreUnavailable, match='refuses: database "nowhere" does not exist'):
        await Postgres(nowhere).open()


async def test_a_pooler_that_takes_no_settings_is_named_with_what_to_set(dsn: str, tmp_path: Path):
    async with deaf_pooler(dsn, tmp_path, strict=True) as pooled:
        with pytest.raises(StoreUnavailable, match=r"is a pooler: name .* store\.listen_dsn"):
            await Postgres(pooled).open()
        postgres = await Postgres(pooled, listen_dsn=dsn).open()
        await postgres.close()


async def test_whoever_is_there_notices_a_connection_that_died_without_a_word(cluster: Cluster):
    """As behind a firewall that forgets connections: the server lets go of the lock."""

    async def is_unseen() -> bool:
        with pytest.raises(StoreUnavailable) as found:
            await presence.others()
        return "cannot see this one" in str(found.value)

    async with opened(cluster.dsn(), seconds=SHORT) as postgres:
        presence = Presence(postgres, "things")
        async with presence.shown():
            assert await presence.others() == 0
            cluster.pause()
            try:
                await until(is_unseen)
            finally:
                cluster.go_on()
            assert await until(lambda: is_alone(presence))


async def is_alone(presence: Presence) -> bool:
    try:
        return await presence.others() == 0
    except StoreUnavailable:
        return False
