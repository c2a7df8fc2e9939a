"""A connection that is renewed: new calls over a new channel, those under way on the old one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bascule.errors import OutcomeUnknown, ServerUnavailable
from bascule.node.pool.connection import Connection
from bascule.testing import FakeClock
from tests.node.pool.conftest import Make
from tests.node.pool.fake_channel import FakePeer, outgoing
from tests.waits import SOON_SECONDS


def call(connection: Connection) -> asyncio.Task[Any]:
    return asyncio.create_task(connection.send(outgoing()))


async def held(connection: Connection, peer: FakePeer, clock: FakeClock) -> asyncio.Task[Any]:
    """Return a call that the peer has and does not answer yet."""
    await connection.client()
    peer.hold("tools/call")
    under_way = call(connection)
    await clock.settle()
    assert len(peer.held["tools/call"]) == 1
    return under_way


async def test_the_old_channel_closes_after_its_last_call(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make()
    under_way = await held(connection, peer, clock)
    connection.renew()
    later = call(connection)
    await clock.settle()
    assert (peer.opens, peer.alive, under_way.done()) == (2, 2, False)
    peer.release("tools/call")
    async with asyncio.timeout(SOON_SECONDS):
        await asyncio.gather(under_way, later)
    await clock.settle()
    assert (peer.alive, peer.channels[0].alive, peer.channels[1].alive) == (1, False, True)


async def test_an_old_channel_without_calls_closes_at_once_and_a_new_one_opens(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make()
    await connection.client()
    connection.renew()
    await clock.settle()
    assert (connection.state, peer.opens, peer.alive) == ("connected", 2, 1)


async def test_a_caller_who_leaves_does_not_keep_the_old_channel(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make()
    under_way = await held(connection, peer, clock)
    connection.renew()
    under_way.cancel()
    await asyncio.gather(under_way, return_exceptions=True)
    await clock.settle()
    assert (peer.opens, peer.alive) == (2, 1)


async def test_the_loss_of_the_new_channel_does_not_end_the_calls_of_the_old(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make()
    under_way = await held(connection, peer, clock)
    connection.renew()
    await clock.settle()
    peer.channel.lose()
    await clock.settle()
    assert not under_way.done()
    peer.release("tools/call")
    assert await under_way


@pytest.mark.parametrize("end", ["close", "disconnect", "reconnect"])
async def test_what_ends_a_connection_ends_the_old_channel_as_well(
    make: Make, peer: FakePeer, clock: FakeClock, end: str
):
    connection = make()
    under_way = await held(connection, peer, clock)
    connection.renew()
    await clock.settle()
    async with asyncio.timeout(SOON_SECONDS):
        await getattr(connection, end)()
        with pytest.raises(OutcomeUnknown):
            await under_way
    assert peer.alive == (1 if end == "reconnect" else 0)


async def test_a_start_under_way_begins_anew_and_who_waits_for_it_does_not_notice(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make()
    peer.may_open.clear()
    waiting = call(connection)
    await clock.settle()
    assert peer.opening == 1
    connection.renew()
    await clock.settle()
    peer.may_open.set()
    async with asyncio.timeout(SOON_SECONDS):
        assert await waiting
    assert (peer.opening, peer.opens) == (2, 1)


async def test_a_connection_that_nobody_uses_is_not_opened_for_it(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make()
    await connection.client()
    await connection.disconnect()
    connection.renew()
    await clock.settle()
    assert (connection.state, peer.opens) == ("disconnected", 1)


async def test_it_is_connected_all_the_time_unless_the_new_connection_fails(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(backoff_seconds=1000.0)
    await connection.client()
    peer.may_open.clear()
    connection.renew()
    await clock.settle()
    assert connection.state == "connected"
    peer.refusals = [ServerUnavailable("the secret is not bound", reason="secret_unbound")]
    peer.may_open.set()
    await clock.settle()
    assert (connection.state, peer.alive) == ("down", 0)
    assert connection.status().last_error == "the secret is not bound"


async def test_a_connection_that_failed_may_be_tried_at_once(make: Make, peer: FakePeer):
    connection = make(backoff_seconds=1000.0, patience_seconds=1.0, list_failure_seconds=1000.0)
    peer.refusals = [ServerUnavailable("there is no secret", reason="env_missing")]
    with pytest.raises(ServerUnavailable):
        await connection.listing()
    with pytest.raises(ServerUnavailable, match="there is no secret"):
        await connection.listing()
    connection.renew()
    assert (await connection.listing()).tools
