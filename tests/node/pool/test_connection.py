"""One connection: when it opens, how it is shared, and how it comes back or goes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bascule.errors import (
    BasculeError,
    DeadlineExceeded,
    NotDelivered,
    OutcomeUnknown,
    ServerUnavailable,
)
from bascule.model.server import Budgets
from bascule.node.pool.connection import Connection
from bascule.testing import FakeClock
from tests.node.pool.conftest import Make
from tests.node.pool.fake_channel import FakePeer, our_tasks, outgoing, record
from tests.waits import SOON_SECONDS


async def call(connection: Connection, *, until: float | None = None) -> Any:
    return await connection.send(outgoing(until=until))


async def refused(connection: Connection) -> ServerUnavailable:
    with pytest.raises(ServerUnavailable) as caught:
        await connection.client()
    return caught.value


def refusals(count: int) -> list[BaseException]:
    return [ServerUnavailable("command not found") for _ in range(count)]


# -- opening -----------------------------------------------------------------------------


@pytest.mark.requirement("pool:lazy")
async def test_nothing_is_opened_before_the_first_use(make: Make, peer: FakePeer):
    connection = make()
    assert (connection.state, peer.opening) == ("disconnected", 0)
    assert (await call(connection))["content"]
    assert (connection.state, peer.opens) == ("connected", 1)


@pytest.mark.requirement("pool:reuse")
@pytest.mark.requirement("transport:protocol")
async def test_calls_reuse_the_open_connection(make: Make, peer: FakePeer):
    connection = make()
    for _ in range(10):
        await call(connection)
    assert (peer.opens, peer.count("initialize"), peer.count("tools/call")) == (1, 1, 10)


@pytest.mark.requirement("pool:single-flight")
async def test_many_callers_cause_one_connect(make: Make, peer: FakePeer, clock: FakeClock):
    connection = make()
    peer.may_open.clear()
    callers = [asyncio.create_task(call(connection)) for _ in range(50)]
    await clock.settle()
    assert (connection.state, peer.opening) == ("connecting", 1)
    peer.may_open.set()
    async with asyncio.timeout(SOON_SECONDS):
        await asyncio.gather(*callers)
    assert (peer.opens, peer.count("tools/call")) == (1, 50)


async def test_cancelling_one_waiter_leaves_the_others_their_connect(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make()
    peer.may_open.clear()
    callers = [asyncio.create_task(call(connection)) for _ in range(3)]
    await clock.settle()
    callers[0].cancel()
    await clock.settle()
    peer.may_open.set()
    async with asyncio.timeout(SOON_SECONDS):
        await asyncio.gather(*callers[1:])
    assert callers[0].cancelled()
    assert (peer.opens, peer.count("tools/call")) == (1, 2)


async def test_an_attempt_that_everybody_left_ends_with_the_connection(
    make: Make, peer: FakePeer, clock: FakeClock
):
    before = our_tasks()
    connection = make()
    peer.may_open.clear()
    caller = asyncio.create_task(call(connection))
    await clock.settle()
    caller.cancel()
    await clock.settle()
    await connection.close()
    assert our_tasks() == before
    assert connection.state == "disconnected"


async def test_a_caller_waits_for_a_connect_no_longer_than_its_own_limit(
    make: Make, peer: FakePeer
):
    connection = make()
    peer.may_open.clear()
    with pytest.raises(DeadlineExceeded, match="connecting"):
        await call(connection, until=asyncio.get_running_loop().time() + 0.01)
    peer.may_open.set()
    assert await call(connection)
    assert peer.opens == 1


@pytest.mark.requirement("pool:connect-timeout")
async def test_a_connect_over_its_budget_is_down_with_the_reason(make: Make, peer: FakePeer):
    connection = make(record(budgets=Budgets(connect_timeout_ms=20)))
    peer.may_open.clear()
    error = await refused(connection)
    assert "0.02 s" in str(error)
    status = connection.status()
    assert (status.state, status.last_error) == ("down", str(error))


async def test_a_handshake_that_is_refused_is_down_and_its_channel_is_closed(
    make: Make, peer: FakePeer
):
    connection = make()
    peer.era = "modern"
    peer.silent.add("server/discover")
    await refused(connection)
    assert (connection.state, peer.alive) == ("down", 0)


async def test_a_fault_of_the_machine_is_the_servers_failure_alone(make: Make, peer: FakePeer):
    connection = make()
    peer.refusals = [OSError(28, "No space left on device")]
    assert "No space left" in str(await refused(connection))
    assert connection.state == "down"


async def test_a_server_that_dies_right_after_the_handshake_has_failed(make: Make, peer: FakePeer):
    connection = make(patience_seconds=0.0, park_after=100)
    peer.dies_after = "initialize"
    assert "a last word" in str(await refused(connection))
    assert (connection.state, connection.watch, peer.alive) == ("down", None, 0)


async def test_the_reason_of_a_failure_stays_with_those_who_are_told_later(
    make: Make, peer: FakePeer
):
    connection = make(park_after=1)
    peer.refusals = [ServerUnavailable("the variable X is not set", reason="env_missing")]
    assert (await refused(connection)).reason == "env_missing"
    later = await refused(connection)
    assert later.reason == "env_missing"
    assert "the variable X is not set (next attempt in" in str(later)
    assert peer.opening == 1


# -- failures ----------------------------------------------------------------------------


@pytest.mark.requirement("pool:backoff")
async def test_a_caller_waits_out_a_short_backoff(make: Make, peer: FakePeer, clock: FakeClock):
    connection = make(patience_seconds=2.0, backoff_seconds=1.0)
    peer.refusals = refusals(1)
    await refused(connection)
    waiting = asyncio.create_task(call(connection))
    await clock.advance(1.0)
    async with asyncio.timeout(SOON_SECONDS):
        assert await waiting
    assert peer.opens == 1


@pytest.mark.requirement("pool:parked")
async def test_a_server_that_keeps_failing_is_parked_and_retried_slowly(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(park_after=3, park_seconds=100.0, backoff_seconds=0.0)
    peer.refusals = refusals(4)
    for state in ("down", "down", "parked"):
        await refused(connection)
        assert connection.state == state
    assert "next attempt in" in str(await refused(connection))
    await clock.advance(49.0)
    await refused(connection)
    assert peer.opening == 3
    await clock.advance(51.0)
    await refused(connection)
    assert (peer.opening, connection.state) == (4, "parked")
    await clock.advance(100.0)
    await call(connection)
    assert connection.state == "connected"


async def test_reconnect_forgives_a_parked_server(make: Make, peer: FakePeer):
    connection = make(park_after=1)
    peer.refusals = refusals(1)
    await refused(connection)
    assert connection.state == "parked"
    await connection.reconnect()
    assert (connection.state, peer.opens) == ("connected", 1)


async def test_reconnect_says_what_went_wrong(make: Make, peer: FakePeer):
    connection = make()
    await connection.client()
    peer.refusals = refusals(1)
    with pytest.raises(ServerUnavailable, match="command not found"):
        await connection.reconnect()
    assert (connection.state, peer.alive) == ("down", 0)


# -- losses ------------------------------------------------------------------------------


@pytest.mark.requirement("pool:restart-on-disconnect")
async def test_a_lost_connection_comes_back_without_being_asked(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make()
    await call(connection)
    peer.may_open.clear()
    peer.channel.lose()
    assert (connection.state, connection.watch) == ("reconnecting", None)
    await clock.settle()
    assert connection.state == "reconnecting"
    peer.may_open.set()
    await clock.settle()
    assert (connection.state, peer.opens, peer.most_alive) == ("connected", 2, 1)
    assert connection.status().reconnects == 1


async def test_a_loss_during_a_call_is_told_and_the_next_call_works(make: Make, peer: FakePeer):
    connection = make()
    peer.hold("tools/call")
    lost = asyncio.create_task(call(connection))
    while not peer.held["tools/call"]:
        await asyncio.wait({lost}, timeout=0.001)
    peer.channel.lose()
    with pytest.raises(OutcomeUnknown):
        await lost
    peer.release("tools/call")
    assert await call(connection)


async def test_after_its_reconnects_a_lost_server_is_down_and_the_next_caller_tries(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(reconnects=3, backoff_seconds=1.0)
    await call(connection)
    peer.refusals = refusals(3)
    peer.channel.lose()
    seen = set[str]()
    for _ in range(100):
        seen.add(connection.state)
        await clock.advance(0.1)
    assert seen == {"reconnecting", "down"}
    assert (connection.state, peer.opening) == ("down", 4)
    await call(connection)
    assert connection.state == "connected"


async def test_a_caller_joins_a_recovery_that_is_under_way(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(reconnects=3, backoff_seconds=1.0)
    await call(connection)
    peer.may_close.clear()
    peer.refusals = refusals(2)
    peer.channel.lose()
    caller = asyncio.create_task(call(connection))
    await clock.settle()
    assert peer.opening == 1  # the old one is not gone yet
    peer.may_close.set()
    await clock.advance(4.0)
    async with asyncio.timeout(SOON_SECONDS):
        assert await caller
    assert (peer.opens, peer.opening, peer.most_alive) == (2, 4, 1)


async def test_a_caller_is_told_at_once_when_a_recovery_waits_beyond_its_patience(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(
        reconnects=3, backoff_seconds=1000.0, backoff_limit_seconds=1000.0, patience_seconds=0.0
    )
    await call(connection)
    peer.refusals = refusals(3)
    peer.channel.lose("it is gone")
    await clock.settle()
    assert "next attempt in" in str(await refused(connection))
    assert connection.state == "reconnecting"


@pytest.mark.requirement("pool:parked")
async def test_too_many_losses_in_a_minute_park_a_server(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(losses_per_minute=3, park_seconds=100.0)
    for _ in range(3):
        await call(connection)
        peer.channel.lose("it crashed")
        await clock.settle()
    assert (connection.state, peer.opens, peer.alive) == ("parked", 3, 0)
    error = await refused(connection)
    assert "it crashed (next attempt in" in str(error)
    await clock.advance(100.0)
    await call(connection)
    assert connection.state == "connected"


async def test_a_server_that_was_parked_once_is_not_parked_by_its_next_loss(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(losses_per_minute=2, park_seconds=100.0)
    for _ in range(2):
        await call(connection)
        peer.channel.lose()
        await clock.settle()
    assert connection.state == "parked"
    await clock.advance(100.0)
    await call(connection)
    peer.channel.lose()
    await clock.settle()
    assert connection.state == "connected"


async def test_losses_spread_over_time_do_not_park(make: Make, peer: FakePeer, clock: FakeClock):
    connection = make(losses_per_minute=3, idle_seconds=1e6, keepalive_seconds=1e6)
    for _ in range(12):
        await call(connection)
        peer.channel.lose()
        await clock.advance(30.0)
    assert connection.state == "connected"


async def test_a_loss_that_was_our_own_doing_does_not_count(
    make: Make, peer: FakePeer, clock: FakeClock
):
    """A server that dies while it is being closed is closed, not lost."""
    connection = make(losses_per_minute=1)
    await call(connection)
    channel = peer.channel
    closing = asyncio.create_task(connection.disconnect())
    await clock.settle(1)
    channel.lose("it died meanwhile")
    await closing
    assert (connection.state, connection.status().last_error) == ("disconnected", None)
    assert await call(connection)


# -- keepalive and idleness --------------------------------------------------------------


@pytest.mark.requirement("pool:health-checks")
async def test_a_quiet_connection_is_asked_for_a_sign_of_life(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(keepalive_seconds=10.0, idle_seconds=1000.0)
    await call(connection)
    await clock.advance(35.0)
    assert (peer.count("ping"), connection.state) == (3, "connected")


@pytest.mark.requirement("pool:health-checks")
async def test_one_missed_sign_of_life_degrades_and_a_second_reconnects(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(keepalive_seconds=10.0, idle_seconds=1000.0)
    await call(connection)
    peer.silent.add("ping")
    await clock.advance(10.0)
    assert (connection.state, peer.opens) == ("degraded", 1)
    assert "no sign of life" in (connection.status().last_error or "")
    await clock.advance(10.0)
    assert (connection.state, peer.opens, peer.most_alive) == ("connected", 2, 1)
    assert connection.status().reconnects == 1


async def test_a_degraded_connection_that_answers_again_is_connected(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(keepalive_seconds=10.0, idle_seconds=1000.0)
    await call(connection)
    peer.silent.add("ping")
    await clock.advance(10.0)
    peer.silent.clear()
    await clock.advance(10.0)
    assert (connection.state, peer.opens) == ("connected", 1)


async def test_misses_with_answered_calls_between_them_are_not_two_in_a_row(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(keepalive_seconds=10.0, idle_seconds=1000.0)
    await call(connection)
    peer.silent.add("ping")
    await clock.advance(10.0)
    assert connection.state == "degraded"
    await call(connection)
    assert connection.state == "connected"
    await clock.advance(19.0)
    assert (connection.state, peer.opens) == ("degraded", 1)


async def test_a_busy_connection_is_neither_asked_nor_ended(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(keepalive_seconds=10.0, idle_seconds=20.0)
    peer.hold("tools/call")
    caller = asyncio.create_task(call(connection))
    await clock.advance(100.0)
    assert (connection.state, peer.count("ping")) == ("connected", 0)
    peer.release("tools/call")
    assert await caller


async def test_a_connection_that_lists_is_busy(make: Make, peer: FakePeer, clock: FakeClock):
    connection = make(keepalive_seconds=10.0, idle_seconds=20.0)
    peer.hold("tools/list")
    lister = asyncio.create_task(connection.listing())
    await clock.advance(100.0)
    assert (connection.state, connection.in_flight) == ("connected", 1)
    peer.release("tools/list")
    assert (await lister).tools


@pytest.mark.requirement("process:idle-reaping")
async def test_an_idle_connection_is_closed_and_opens_again_on_demand(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(keepalive_seconds=10.0, idle_seconds=30.0)
    await call(connection)
    await clock.advance(31.0)
    assert (connection.state, connection.watch, peer.alive) == ("disconnected", None, 0)
    assert clock.sleepers == 0
    await call(connection)
    assert (connection.state, peer.opens) == ("connected", 2)


async def test_a_call_during_the_closing_of_an_idle_connection_waits_for_its_end(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(keepalive_seconds=10.0, idle_seconds=30.0)
    await call(connection)
    peer.may_close.clear()
    await clock.advance(31.0)
    caller = asyncio.create_task(call(connection))
    await clock.settle()
    assert peer.opens == 1
    peer.may_close.set()
    async with asyncio.timeout(SOON_SECONDS):
        assert await caller
    assert (peer.opens, peer.most_alive, connection.state) == (2, 1, "connected")


# -- what is known about it --------------------------------------------------------------


@pytest.mark.requirement("pool:status", "pool:health:last-error")
async def test_the_status_says_what_is_known(make: Make, peer: FakePeer, clock: FakeClock):
    connection = make(backoff_seconds=0.0)
    fresh = connection.status()
    assert (fresh.state, fresh.last_error, fresh.last_connected_at) == ("disconnected", None, None)
    assert (fresh.reconnects, fresh.latency_ms, fresh.tool_count) == (0, None, None)

    peer.refusals = refusals(1)
    await refused(connection)
    assert connection.status().last_error == "command not found"

    await connection.listing()
    peer.hold("tools/call")
    caller = asyncio.create_task(call(connection))
    await clock.settle()
    await clock.advance(0.25)
    peer.release("tools/call")
    await caller
    known = connection.status()
    assert (known.state, known.tool_count, known.latency_ms) == ("connected", 1, 250.0)
    await call(connection)
    known = connection.status()
    assert (known.latency_ms, known.average_latency_ms) == (0.0, 125.0)
    assert known.last_connected_at == clock.now() - 0.25

    peer.channel.lose("the server ended with status 9")
    assert connection.status().last_error == "the server ended with status 9"
    await clock.settle()
    assert connection.status().reconnects == 1


@pytest.mark.parametrize("error", [NotDelivered("x"), OutcomeUnknown("x")])
async def test_trouble_in_the_handshake_never_looks_like_trouble_in_a_call(
    make: Make, peer: FakePeer, error: BasculeError
):
    connection = make()
    peer.refusals = [error]
    caught = await refused(connection)
    assert type(caught) is ServerUnavailable
