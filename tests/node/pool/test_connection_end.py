"""The end of a connection: in any state, under any caller, with nothing left of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bascule.errors import OutcomeUnknown, ServerUnavailable
from bascule.node.pool.connection import Connection
from bascule.testing import FakeClock
from tests.node.pool.conftest import Make
from tests.node.pool.fake_channel import FakePeer, our_tasks, outgoing
from tests.waits import SOON_SECONDS


async def call(connection: Connection) -> Any:
    return await connection.send(outgoing())


@pytest.mark.requirement("pool:no-orphans")
async def test_no_task_and_no_timer_is_left_after_closing_in_any_state(
    make: Make, peer: FakePeer, clock: FakeClock
):
    before = our_tasks()
    peer.era = "modern"
    for stage in ("connected", "lost", "parked", "announced", "recovering"):
        connection = make(park_after=1 if stage == "parked" else 6, backoff_seconds=100.0)
        if stage == "parked":
            peer.refusals = [ServerUnavailable("command not found")]
            with pytest.raises(ServerUnavailable):
                await connection.client()
        else:
            await connection.listing()
        if stage == "recovering":
            peer.refusals = [ServerUnavailable("command not found")]
        if stage in ("lost", "recovering"):
            peer.channel.lose()
        if stage == "recovering":
            await clock.settle()
            assert connection.state == "reconnecting"
        if stage == "announced":
            peer.channel.announce()
        await connection.close()
        await clock.settle()
        assert (stage, our_tasks() - before, clock.sleepers) == (stage, set(), 0)
        assert (connection.state, peer.alive) == ("disconnected", 0)


async def test_a_closed_connection_is_not_opened_again(make: Make, peer: FakePeer):
    connection = make()
    await call(connection)
    await connection.close()
    with pytest.raises(ServerUnavailable, match="closed"):
        await call(connection)
    with pytest.raises(ServerUnavailable, match="closed"):
        await connection.reconnect()
    assert peer.opens == 1


async def test_those_who_wait_for_a_connect_are_told_when_it_is_closed_under_them(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make()
    peer.may_open.clear()
    waiting = [asyncio.create_task(call(connection)), asyncio.create_task(connection.listing())]
    await clock.settle()
    await connection.close()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [ServerUnavailable, ServerUnavailable]


async def test_those_who_wait_for_a_connect_get_the_one_a_reconnect_makes(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make()
    peer.may_open.clear()
    waiting = asyncio.create_task(call(connection))
    await clock.settle()
    again = asyncio.create_task(connection.reconnect())
    await clock.settle()
    peer.may_open.set()
    async with asyncio.timeout(SOON_SECONDS):
        await asyncio.gather(waiting, again)
    assert (connection.state, peer.opens, peer.opening) == ("connected", 1, 2)


async def begun_to_close(
    connection: Connection, peer: FakePeer, clock: FakeClock
) -> asyncio.Task[None]:
    """Return a disconnect that waits for its peer."""
    await call(connection)
    peer.may_close.clear()
    closing = asyncio.create_task(connection.disconnect())
    await clock.settle()
    return closing


async def test_a_call_during_a_disconnect_gets_a_connection_of_its_own_afterwards(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make()
    closing = await begun_to_close(connection, peer, clock)
    caller = asyncio.create_task(call(connection))
    await clock.settle()
    assert peer.opens == 1
    peer.may_close.set()
    async with asyncio.timeout(SOON_SECONDS):
        await asyncio.gather(closing, caller)
    assert (connection.state, peer.opens, peer.most_alive) == ("connected", 2, 1)


async def test_a_disconnect_that_is_cancelled_still_happens(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make()
    closing = await begun_to_close(connection, peer, clock)
    closing.cancel()
    await clock.settle()
    peer.may_close.set()
    await clock.settle()
    assert (connection.state, peer.alive) == ("disconnected", 0)


async def test_calls_in_flight_fail_when_the_connection_is_closed(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make()
    peer.hold("tools/call")
    caller = asyncio.create_task(call(connection))
    await clock.settle()
    await connection.close()
    with pytest.raises(OutcomeUnknown):
        await caller
