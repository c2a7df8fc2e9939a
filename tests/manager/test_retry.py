"""A server that fails is tried again and again, ever more slowly, and never given up silently."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bascule.errors import ServerUnavailable
from bascule.manager import McpManager, RetryRules
from bascule.node.backoff import Backoff
from bascule.testing import FakeClock, ScriptedHttpServer, ScriptedServer
from tests.manager.agents import http, states, status_of, stdio
from tests.waits import advanced_until, until


@pytest.fixture
async def remote() -> AsyncIterator[ScriptedHttpServer]:
    """A server that has an address and does not listen there."""
    async with ScriptedHttpServer() as server:
        await server.stop()
        yield server


def delayed(rules: RetryRules, failures: int) -> list[tuple[float, bool]]:
    """Return the delay after each failure in a row, and whether the server is parked then."""
    backoff, found = Backoff(rules.applied(), FakeClock()), list[tuple[float, bool]]()
    for _ in range(failures):
        backoff.failed()
        found.append((backoff.remaining, backoff.parked))
    return found


def test_delays_grow_from_five_seconds_to_sixty_with_jitter():
    def delays() -> list[float]:
        return [delay for delay, _ in delayed(RetryRules(), 11)]

    many = [delays() for _ in range(50)]
    bounds = [(5, 10), (10, 20), (20, 40), *[(30, 60)] * 8]
    for run in many:
        assert all(low <= delay <= high for delay, (low, high) in zip(run, bounds, strict=True))
    assert len({run[0] for run in many}) > 40


def test_after_many_failures_a_server_is_parked_and_tried_slowly():
    first, second, third = delayed(RetryRules(park_after=3), 3)
    assert (first[0] <= 60, second[0] <= 60) == (True, True)
    assert [first[1], second[1]] == [False, False]
    assert 300 <= third[0] <= 600
    assert third[1]


async def waited(manager: McpManager, clock: FakeClock, failures: int) -> float:
    """Wait until a server has failed so often; return how long until its next attempt."""
    await until(lambda: status_of(manager, "a").failures == failures)
    moment = status_of(manager, "a").next_attempt_at
    assert moment is not None
    return moment - clock.now() + 0.001  # what a date of today loses of a second


@pytest.mark.requirement("manager:retry")
async def test_a_failing_server_is_retried_then_parked_and_always_visible(
    remote: ScriptedHttpServer,
):
    clock = FakeClock()
    rules = RetryRules(park_after=4)
    async with McpManager([http("a", remote)], clock=clock, retry=rules) as manager:
        for failures, (low, high) in enumerate([(5, 10), (10, 20), (20, 40)], start=1):
            delay = await waited(manager, clock, failures)
            assert low <= delay <= high + 1
            assert states(manager) == {"a": "down"}
            await clock.advance(delay)
        delay = await waited(manager, clock, 4)
        status = status_of(manager, "a")
        assert (status.state, status.phase) == ("parked", "failed")
        assert status.last_error
        assert 300 <= delay <= 601
        await clock.advance(delay)
        assert 300 <= await waited(manager, clock, 5) <= 601


@pytest.mark.requirement("manager:retry")
async def test_a_server_that_was_mended_is_connected_at_the_next_attempt(
    remote: ScriptedHttpServer,
):
    clock = FakeClock()
    async with McpManager([http("a", remote)], clock=clock) as manager:
        delay = await waited(manager, clock, 1)
        await remote.start()
        await clock.advance(delay - 0.1)
        assert (states(manager), remote.requests) == ({"a": "down"}, [])
        await clock.advance(0.2)
        await until(lambda: states(manager) == {"a": "connected"})
        assert status_of(manager, "a").failures == 0
        assert status_of(manager, "a").last_error is None


async def test_asking_for_a_parked_server_tries_it_at_once_and_from_the_beginning(
    remote: ScriptedHttpServer,
):
    clock = FakeClock()
    rules = RetryRules(park_after=2)
    async with McpManager([http("a", remote)], clock=clock, retry=rules) as manager:
        await clock.advance(await waited(manager, clock, 1))
        await waited(manager, clock, 2)
        assert states(manager) == {"a": "parked"}
        with pytest.raises(ServerUnavailable):
            await manager.reconnect("a")
        assert states(manager) == {"a": "down"}
        assert await waited(manager, clock, 1) <= 11
        await remote.start()
        assert (await manager.reconnect("a")).state == "connected"


async def test_a_reload_tries_a_parked_server_at_once(remote: ScriptedHttpServer):
    clock = FakeClock()
    config = http("a", remote)
    async with McpManager([config], clock=clock, retry=RetryRules(park_after=1)) as manager:
        await waited(manager, clock, 1)
        assert states(manager) == {"a": "parked"}
        await remote.start()
        await manager.reconcile([config])
        await until(lambda: states(manager) == {"a": "connected"})


@pytest.mark.requirement("manager:retry", "manager:reload:no-orphans")
async def test_there_is_one_retry_however_often_it_is_asked_for(remote: ScriptedHttpServer):
    clock = FakeClock()
    config = http("a", remote)
    async with McpManager([config], clock=clock) as manager:
        await waited(manager, clock, 1)
        sleepers = clock.sleepers
        for _ in range(5):
            await manager.reconcile([config])
            await waited(manager, clock, 1)
        assert clock.sleepers == sleepers == 1


@pytest.mark.requirement("manager:reload:no-orphans")
async def test_a_removed_server_is_not_brought_back_by_an_old_retry(remote: ScriptedHttpServer):
    clock = FakeClock()
    async with McpManager([http("a", remote)], clock=clock) as manager:
        await waited(manager, clock, 1)
        await manager.reconcile([])
        await remote.start()
        await clock.advance(10_000)
        assert (remote.requests, manager.statuses(), clock.sleepers) == ([], [], 0)


@pytest.mark.requirement("manager:reload:no-orphans")
async def test_a_retry_in_the_middle_of_its_attempt_ends_with_its_server(
    remote: ScriptedHttpServer,
):
    clock = FakeClock()
    await remote.start()
    remote.inject("never", times=100)
    config = http("a", remote)
    async with McpManager([config], clock=clock, startup_seconds=0.2) as manager:
        assert states(manager) == {"a": "connecting"}
        await manager.reconcile([])
        seen = len(remote.requests)
        await clock.advance(10_000)
        assert (len(remote.requests), manager.statuses()) == (seen, [])


async def test_a_server_lost_for_good_is_noticed_and_retried(remote: ScriptedHttpServer):
    clock = FakeClock()
    await remote.start()
    async with McpManager([http("a", remote)], clock=clock) as manager:
        assert states(manager) == {"a": "connected"}
        [echo] = await manager.get_tools()
        await remote.stop()
        failing = asyncio.create_task(echo.call({"text": "x"}))
        await advanced_until(  # until signs of life are missed, twice
            clock,
            lambda: states(manager)["a"] == "down" and failing.done(),
            seconds=1.0,
        )
        assert (await failing).is_error
        assert status_of(manager, "a").last_error
        assert await manager.get_tools() == []
        delay = await waited(manager, clock, 1)
        await remote.start()
        await clock.advance(delay)
        await until(lambda: states(manager)["a"] == "connected")
        assert await echo.call({"text": "back"}) == "back"


@pytest.mark.requirement("manager:reload:no-orphans")
@pytest.mark.parametrize("end", ["disconnect", "remove"])
async def test_a_reconnect_under_way_holds_neither_a_removal_nor_the_end_up(end: str):
    silent = stdio("a", ScriptedServer(on={"server/discover": "never", "initialize": "never"}))
    manager = McpManager([silent], startup_seconds=0.1)
    await manager.connect_all()
    reconnecting = asyncio.create_task(manager.reconnect("a"))
    await until(lambda: status_of(manager, "a").state == "connecting")
    async with asyncio.timeout(5):  # it would be tried for fifteen
        if end == "remove":
            await manager.reconcile([])
        await manager.disconnect_all()
        with pytest.raises(ServerUnavailable, match="was stopped meanwhile"):
            await reconnecting


async def test_a_reconnect_before_the_start_is_refused_and_begins_nothing():
    manager = McpManager([stdio("a")])
    tasks = asyncio.all_tasks()
    with pytest.raises(ServerUnavailable, match="is not connected"):
        await manager.reconnect("a")
    assert asyncio.all_tasks() == tasks
    await manager.connect_all()
    assert status_of(manager, "a").state == "connected"
    await manager.disconnect_all()
