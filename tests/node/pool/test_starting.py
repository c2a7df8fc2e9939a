"""A start: when its limit begins to count, what is said of it, and who waits for it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from bascule.audit.metrics import Metrics
from bascule.errors import DeadlineExceeded, ServerUnavailable
from bascule.model.server import Budgets, ServerRecord, Stdio
from bascule.node.pool.connection import Connection
from bascule.node.pool.start_signs import work_of
from bascule.node.pool.transport.channel import Channel, Events
from bascule.node.pool.turns import Turns
from bascule.node.ports import StillStarting
from bascule.node.settings import NodeSettings
from bascule.testing import FakeClock
from tests.node.pool.conftest import Make
from tests.node.pool.fake_channel import FakeChannel, FakePeer, record
from tests.waits import SOON_SECONDS

SILENT = {"initialize", "server/discover"}


class Worker(FakeChannel):
    """A channel to a process whose work the test decides."""

    pid = 7


class WorkingPeer(FakePeer):
    """A peer that is a local process; it works as long as the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.works = False
        self._worked = 0.0

    def work(self, pid: int) -> float:
        assert pid == 7
        self._worked += 0.1 if self.works else 0.0
        return self._worked

    async def open(self, record: ServerRecord, events: Events) -> Channel:
        await super().open(record, events)
        self.channels[-1] = Worker(self, events)
        return self.channels[-1]


@pytest.fixture
async def connections(clock: FakeClock) -> AsyncGenerator[Any]:
    """Make connections that take turns together; all are closed at the end."""
    made: list[Connection] = []
    turns = Turns(1)

    def build(peer: FakePeer, server: ServerRecord, **settings: Any) -> Connection:
        connection = Connection(
            server,
            peer.open,
            NodeSettings(**settings),
            clock,
            Metrics(),
            on_change=lambda: 1,
            turns=turns,
            work=peer.work if isinstance(peer, WorkingPeer) else work_of,
        )
        made.append(connection)
        return connection

    yield build
    async with asyncio.timeout(SOON_SECONDS):
        for connection in made:
            await connection.close()


def hanging(peer: FakePeer) -> FakePeer:
    """Let a peer never answer the handshake."""
    for method in SILENT:
        peer.hold(method)
    return peer


async def listed(connection: Connection) -> bool:
    """List without patience; say whether there was a list."""
    try:
        await connection.listing(patient=False)
    except StillStarting:
        return False
    return True


# -- the limit


@pytest.mark.requirement("pool:turns", "pool:start-timeout")
async def test_waiting_for_a_turn_does_not_count_against_the_connect_limit(
    connections: Any, clock: FakeClock
):
    first, second = WorkingPeer(), FakePeer()
    first.works = True
    hanging(first)
    brief = record("b", budgets=Budgets(connect_timeout_ms=50))
    busy = asyncio.create_task(connections(first, record("a")).client())
    await clock.settle()
    waiting = connections(second, brief)
    late = asyncio.create_task(waiting.client())
    await clock.settle()
    assert (waiting.status().starting, second.opening) == ("waiting for its turn to start", 0)
    await asyncio.wait({late}, timeout=0.1)  # longer than the limit of its start
    assert not late.done()
    for method in SILENT:
        first.release(method)
    async with asyncio.timeout(SOON_SECONDS):
        await asyncio.gather(busy, late)


@pytest.mark.requirement("pool:turns")
async def test_a_start_that_hangs_gives_its_turn_back_and_is_still_waited_for(
    connections: Any, clock: FakeClock
):
    stuck, well = hanging(FakePeer()), FakePeer()
    hangs = asyncio.create_task(connections(stuck, record("a")).client())
    await clock.settle()
    comes_up = asyncio.create_task(connections(well, record("b")).client())
    await clock.settle()
    assert well.opening == 0
    await clock.advance(2.0)
    async with asyncio.timeout(SOON_SECONDS):
        await comes_up
    assert not hangs.done()
    for method in SILENT:
        stuck.release(method)
    async with asyncio.timeout(SOON_SECONDS):
        await hangs


@pytest.mark.requirement("pool:turns")
async def test_a_start_that_works_without_end_gives_its_turn_back_after_ten_seconds(
    connections: Any, clock: FakeClock
):
    spinning, well = WorkingPeer(), FakePeer()
    spinning.works = True
    hanging(spinning)
    spins = asyncio.create_task(connections(spinning, record("a")).client())
    await clock.settle()
    comes_up = asyncio.create_task(connections(well, record("b")).client())
    await clock.advance(9.0)
    assert well.opening == 0
    await clock.advance(2.0)
    async with asyncio.timeout(SOON_SECONDS):
        await comes_up
    spins.cancel()


async def test_a_start_that_failed_gives_its_turn_back(connections: Any):
    bad, well = FakePeer(), FakePeer()
    bad.refusals = [ServerUnavailable("command not found")]
    with pytest.raises(ServerUnavailable, match="not found"):
        await connections(bad, record("a")).client()
    async with asyncio.timeout(SOON_SECONDS):
        await connections(well, record("b")).client()


@pytest.mark.requirement("pool:start-timeout")
async def test_a_caller_that_gave_up_leaves_a_start_that_goes_on(make: Make, peer: FakePeer):
    connection = make()
    hanging(peer)
    with pytest.raises(DeadlineExceeded, match="starting; it said: a last word"):
        await connection.client(asyncio.get_running_loop().time() + 0.01)
    assert connection.state == "connecting"
    for method in SILENT:
        peer.release(method)
    async with asyncio.timeout(SOON_SECONDS):
        await connection.client()
    assert peer.opens == 1


# -- what is said of it


@pytest.mark.requirement("pool:starting-shown")
async def test_the_status_of_a_start_says_what_it_does_and_what_it_said_last(
    make: Make, peer: FakePeer, clock: FakeClock
):
    uvx = make(record(stdio=Stdio(command="uvx", args=("server",))))
    hanging(peer)
    starting = asyncio.create_task(uvx.client())
    await clock.settle()
    assert uvx.status().starting == "fetching or starting; it said: a last word"
    for method in SILENT:
        peer.release(method)
    async with asyncio.timeout(SOON_SECONDS):
        await starting
    assert uvx.status().starting is None


@pytest.mark.requirement("pool:starting-shown")
async def test_a_start_beyond_its_limit_says_what_the_server_said_last(make: Make, peer: FakePeer):
    connection = make(record(budgets=Budgets(start_timeout_ms=20)))
    hanging(peer)
    with pytest.raises(ServerUnavailable, match=r"within 0\.02 s.*it said: a last word"):
        await connection.client()


# -- who waits for it


@pytest.mark.requirement("catalogue:not-waited-for")
async def test_a_list_waits_for_a_quiet_start_for_a_while_and_not_again(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(grace_seconds=6.0)
    hanging(peer)
    first = asyncio.create_task(listed(connection))
    await clock.advance(5.5)
    assert not first.done()
    await clock.advance(1.0)
    assert first.done()
    assert not first.result()
    assert not await listed(connection)
    for method in SILENT:
        peer.release(method)
    await clock.settle()
    assert await listed(connection)


@pytest.mark.requirement("catalogue:not-waited-for")
async def test_a_list_waits_for_a_start_as_long_as_it_works(connections: Any, clock: FakeClock):
    peer = WorkingPeer()
    peer.works = True
    hanging(peer)
    listing = asyncio.create_task(listed(connections(peer, record("a"), grace_seconds=6.0)))
    await clock.advance(60.0)
    assert not listing.done()
    peer.works = False
    await clock.advance(3.0)
    assert not listing.result()


@pytest.mark.requirement("catalogue:not-waited-for")
async def test_a_launcher_that_may_be_fetching_is_waited_for_longer(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(
        record(stdio=Stdio(command="npx", args=("server",))),
        grace_seconds=6.0,
        fetch_grace_seconds=20.0,
    )
    hanging(peer)
    listing = asyncio.create_task(listed(connection))
    await clock.advance(19.0)
    assert not listing.done()
    await clock.advance(2.0)
    assert not listing.result()


@pytest.mark.requirement("catalogue:not-waited-for")
async def test_a_server_that_connects_and_never_lists_is_not_waited_for_either(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(grace_seconds=6.0)
    peer.hold("tools/list")
    listing = asyncio.create_task(listed(connection))
    await clock.advance(7.0)
    assert not listing.result()
    peer.release("tools/list")
    await clock.settle()
    assert await listed(connection)


@pytest.mark.requirement("catalogue:not-waited-for", "pool:backoff")
async def test_after_a_start_that_ran_out_of_time_nobody_waits_for_the_next(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(
        record(budgets=Budgets(start_timeout_ms=20)),
        grace_seconds=0.0,
        list_failure_seconds=2.0,
    )
    peer.silent |= SILENT
    with pytest.raises(ServerUnavailable, match=r"0\.02 s"):
        await connection.listing()
    peer.silent.clear()
    hanging(peer)
    await clock.advance(2.5)
    with pytest.raises(StillStarting, match=r"before that: .*0\.02 s") as caught:
        await connection.listing(patient=False)
    assert not caught.value.hopeful
    for method in SILENT:
        peer.release(method)
    await clock.advance(2.5)
    assert await listed(connection)
    assert connection.status().state == "connected"


@pytest.mark.requirement("catalogue:not-waited-for", "pool:backoff")
async def test_after_any_failure_a_list_waits_a_moment_for_the_next_start_however_it_works(
    connections: Any, clock: FakeClock
):
    peer = WorkingPeer()
    peer.works = True
    peer.refusals = [ServerUnavailable("there is no network")]
    connection = connections(peer, record("a", stdio=Stdio(command="npx", args=("server",))))
    with pytest.raises(ServerUnavailable, match="no network"):
        await connection.listing()
    hanging(peer)
    await clock.advance(2.5)
    listing = asyncio.create_task(connection.listing(patient=False))
    await clock.advance(1.5)
    assert listing.done()
    with pytest.raises(StillStarting, match="before that: there is no network") as caught:
        await listing
    assert not caught.value.hopeful
    for method in SILENT:
        peer.release(method)
    await clock.settle()
    assert await listed(connection)


# -- work


def test_the_work_of_a_process_counts_its_children():
    spin = "import os, time\nwhile time.process_time() < 0.3: pass\n"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}]); input()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    try:
        while (work_of(process.pid) or 0.0) < 0.3:
            os.sched_yield()
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert work_of(process.pid) is None
