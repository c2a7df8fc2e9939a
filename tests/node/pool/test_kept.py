"""A connection that is kept is tried again by its rule until it is there, and ends when closed."""

from __future__ import annotations

import pytest

from bascule.errors import ServerUnavailable
from bascule.testing import FakeClock
from tests.node.pool.conftest import Make
from tests.node.pool.fake_channel import FakePeer

RULE = {"keep": True, "reconnects": 1, "backoff_seconds": 10.0, "backoff_floor": 0.5}


async def test_a_kept_connection_comes_back_without_being_asked_for(
    make: Make, peer: FakePeer, clock: FakeClock
):
    peer.refusals += [ServerUnavailable("no"), ServerUnavailable("no")]
    connection = make(park_after=2, park_seconds=100.0, **RULE)
    with pytest.raises(ServerUnavailable):
        await connection.client()
    first = connection.status()
    assert (first.state, first.failures) == ("down", 1)
    assert first.next_attempt_at is not None
    assert 5 <= first.next_attempt_at - clock.now() <= 10
    await clock.advance(10)
    assert (connection.state, connection.status().failures) == ("parked", 2)
    await clock.advance(100)
    assert (connection.state, connection.status().next_attempt_at) == ("connected", None)


async def test_a_kept_connection_that_is_closed_is_not_tried_again(
    make: Make, peer: FakePeer, clock: FakeClock
):
    peer.refusals += [ServerUnavailable("no")]
    connection = make(**RULE)
    with pytest.raises(ServerUnavailable):
        await connection.client()
    await connection.close()
    await clock.advance(1000)
    assert (connection.state, peer.opens, clock.sleepers) == ("disconnected", 0, 0)
