"""Who shares a connection, a process and a HOME: everybody, a task, a person, or one session."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from bascule.model.server import Sharing
from bascule.model.snapshot import Snapshot
from bascule.model.status import Change, ConnectionStatus
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.node.homes import Homes
from bascule.node.pool.opener import NoRoom, Opener
from bascule.node.pool.pool import Pool
from bascule.node.pool.process.plain import PlainSpawner
from bascule.node.pool.transport.channel import Events
from bascule.node.sharing import Belonging, Sharer, Shares
from bascule.testing import FakeClock
from tests.node.pool.conftest import MakePool, snapshot
from tests.node.pool.fake_channel import FakePeer, outgoing, record
from tests.node.pool.test_opener import about, leave, local, running

#: The session, and whose it is: two tasks, two people in one of them, and sessions of nobody.
WHOSE = {
    "r1": Belonging("review", "person:alice"),
    "r2": Belonging("review", "person:alice"),
    "r3": Belonging("review", "person:bob"),
    "w1": Belonging("write", "person:alice"),
}
NOBODYS = ("x1", "x2")
TOGETHER: dict[Sharing, list[set[str]]] = {
    "shared": [{"r1", "r2", "r3", "w1", "x1", "x2"}],
    "task": [{"r1", "r2", "r3"}, {"w1"}, {"x1", "x2"}],
    "user": [{"r1", "r2"}, {"r3"}, {"w1"}, {"x1", "x2"}],
    "session": [{"r1"}, {"r2"}, {"r3"}, {"w1"}, {"x1"}, {"x2"}],
}


def introduce(pool: Pool, *sessions: str) -> None:
    for session in sessions or WHOSE:
        pool.introduce(session, WHOSE[session])


async def send(pool: Pool, session_id: str) -> None:
    await pool.send(outgoing("fs", session_id))


@pytest.mark.requirement(
    "pool:sharing:shared", "pool:sharing:task", "pool:sharing:user", "pool:sharing:session"
)
@pytest.mark.parametrize("sharing", TOGETHER)
async def test_those_who_share_a_connection_have_one_and_no_others_have_it(
    make_pool: MakePool, sharing: Sharing
):
    peer = FakePeer()
    pool = make_pool({"fs": peer})
    await pool.apply(snapshot(record("fs", sharing=sharing)))
    introduce(pool)
    found: dict[str, set[str]] = {}
    for session in (*WHOSE, *NOBODYS):
        await send(pool, session)
        way = pool.way(outgoing("fs", session).route)
        found.setdefault(str(id(way)), set()).add(session)
    assert list(found.values()) == TOGETHER[sharing]
    assert peer.opens == len(TOGETHER[sharing])


@pytest.mark.requirement("pool:sharing:task")
async def test_a_tasks_connection_outlives_its_sessions_and_a_sessions_own_does_not(
    make_pool: MakePool,
):
    peer = FakePeer()
    pool = make_pool({"fs": peer})
    await pool.apply(snapshot(record("fs", sharing="task")))
    introduce(pool, "r1")
    await send(pool, "r1")
    await pool.release("r1")
    introduce(pool, "r2")
    await send(pool, "r2")
    assert (peer.opens, peer.alive) == (1, 1)


async def test_what_ended_is_forgotten_once_its_task_has_no_session_any_more(
    make_pool: MakePool, clock: FakeClock
):
    peer = FakePeer()
    pool = make_pool({"fs": peer}, idle_seconds=60.0, keepalive_seconds=60.0)
    await pool.apply(snapshot(record("fs", sharing="user")))
    for session in ("r1", "r3"):
        introduce(pool, session)
        await send(pool, session)
    await pool.release("r1")
    await clock.advance(60.0)
    introduce(pool, "w1")
    await send(pool, "w1")
    sharers = {one.sharer for one in pool.statuses() if isinstance(one, ConnectionStatus)}
    assert sharers == {"user:review\nperson:bob", "user:write\nperson:alice"}


@pytest.mark.requirement("pool:prewarm")
async def test_a_server_of_tasks_is_warmed_for_those_that_name_it(
    make_pool: MakePool, clock: FakeClock
):
    peer = FakePeer()
    pool = make_pool({"fs": peer})
    tasks = {
        "one": TaskPolicy(enabled=True, default_server_ids=("fs",)),
        "two": TaskPolicy(enabled=True, default_server_ids=("fs", "other")),
        "off": TaskPolicy(enabled=False, default_server_ids=("fs",)),
        "other": TaskPolicy(enabled=True, default_server_ids=("other",)),
    }
    await pool.apply(
        Snapshot(
            servers={"fs": record("fs", prewarm=True, sharing="task")},
            tasks={name: TaskRecord(task_id=name, mcp=mcp) for name, mcp in tasks.items()},
        )
    )
    await clock.settle()
    sharers = {one.sharer for one in pool.statuses() if isinstance(one, ConnectionStatus)}
    assert (sharers, peer.opens) == ({"task:one", "task:two"}, 2)


async def test_a_session_hears_of_and_is_shown_its_own_connections_alone(make_pool: MakePool):
    peer = FakePeer()
    pool = make_pool({"fs": peer})
    await pool.apply(snapshot(record("fs", sharing="task")))
    heard: list[Change] = []
    pool.on_change = heard.append
    introduce(pool, "r1")
    await send(pool, "r1")
    inside, outside = Shares("r9", "review", "person:carol"), Shares("w1", "write", "person:alice")
    assert heard
    assert all(inside.hears(change) for change in heard)
    assert not any(outside.hears(change) for change in heard)
    assert [one.state for one in inside.own(pool.statuses())] == ["connected"]
    assert [one.state for one in outside.own(pool.statuses())] == ["disconnected"]


@pytest.mark.requirement("pool:sharing:home")
async def test_a_home_is_kept_for_those_who_share_it(tmp_path: Path):
    homes = Homes(tmp_path / "kept")
    seen: dict[str, str] = {}
    for _ in range(2):
        async with running(local("one", sharing="user"), homes=homes) as pool:
            introduce(pool)
            for session in (*WHOSE, *NOBODYS):
                home = (await about(pool, "one", session))["env"]["HOME"]
                assert seen.setdefault(session, home) == home
                with contextlib.suppress(FileExistsError):
                    leave(home)
    together = [{one for one in seen if seen[one] == home} for home in dict.fromkeys(seen.values())]
    assert together == TOGETHER["user"]


@pytest.mark.requirement("pool:sharing:cap")
async def test_a_task_has_no_more_processes_than_its_share():
    names = ("a", "b", "c")
    records = [local(name, sharing="session") for name in names]
    async with running(*records, max_processes_per_task=2) as pool:
        introduce(pool, "r1", "w1")
        first = await about(pool, "a", "r1")
        await about(pool, "b", "r1")
        await about(pool, "c", "r1")  # the one that has been idle for longest makes room
        states = {one.server_id: one.state for one in pool.statuses()}
        assert states == {"a": "disconnected", "b": "connected", "c": "connected"}
        await asyncio.gather(*(about(pool, name, "w1") for name in ("a", "b")))
        assert (await about(pool, "a", "r1"))["pid"] != first["pid"]


@pytest.mark.requirement("pool:sharing:cap")
async def test_a_task_with_nothing_idle_is_told_of_its_limit_and_others_are_not():
    opener = Opener(PlainSpawner(), max_processes_per_task=1)
    review, write = Sharer(key="a", task="review"), Sharer(key="b", task="write")
    try:
        channel = await opener.open(local("one"), Events(), review)
        with pytest.raises(NoRoom, match=r"'review' .* 1 server processes.*max_processes_per_task"):
            await opener.open(local("two"), Events(), review)
        await (await opener.open(local("two"), Events(), write)).close()
        await channel.close()
        await (await opener.open(local("two"), Events(), review)).close()
    finally:
        await opener.close()
