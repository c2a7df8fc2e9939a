"""When a server is doubted, who has to wait for that, and what its status says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bascule.errors import DeadlineExceeded, OutcomeUnknown
from bascule.model.server import Budgets, ServerRecord
from bascule.node.pool.connection import Connection
from bascule.node.pool.health import DOUBT_SECONDS, LEFT_BEHIND, Debts
from bascule.node.pool.inspection import inspect
from bascule.testing import FakeClock
from tests.node.pool.conftest import Make
from tests.node.pool.fake_channel import FakePeer, outgoing, record
from tests.waits import SOON_SECONDS


def call(connection: Connection, *, timeout: float = 20.0, whose: str = "alice") -> Any:
    return asyncio.create_task(connection.send(outgoing(timeout=timeout, whose=whose)))


def quick(milliseconds: int = 50) -> ServerRecord:
    return record(budgets=Budgets(tool_timeout_ms=milliseconds, list_timeout_ms=milliseconds))


async def timed_out(task: asyncio.Task[Any]) -> None:
    with pytest.raises(DeadlineExceeded):
        await task


async def doubted(connection: Connection, clock: FakeClock) -> None:
    """Let time pass until the server is doubted."""
    async with asyncio.timeout(10):
        while connection.state != "degraded":
            await clock.advance(DOUBT_SECONDS)
            await asyncio.wait({asyncio.create_task(clock.settle())}, timeout=0.01)


@pytest.mark.requirement("pool:doubt:record-timeout")
@pytest.mark.parametrize("leaving", ["timeout", "cancel"])
async def test_a_caller_who_leaves_early_does_not_end_the_calls_of_others(
    make: Make, peer: FakePeer, clock: FakeClock, leaving: str
):
    connection = make()
    await connection.client()
    peer.hold("tools/call")
    peer.hold("ping")
    others = [call(connection, whose=f"client {number}") for number in range(8)]
    hostile = call(connection, timeout=0.01, whose="hostile")
    await clock.settle()
    if leaving == "cancel":
        hostile.cancel()
    await asyncio.wait({hostile})
    await clock.advance(30.0)
    assert (connection.state, peer.opens) == ("connected", 1)
    peer.release("tools/call")
    async with asyncio.timeout(SOON_SECONDS):
        assert len(await asyncio.gather(*others)) == 8
    peer.release("ping")


@pytest.mark.requirement("pool:doubt:nobody-waits", "pool:health:which")
async def test_a_silent_server_is_let_go_only_when_nobody_waits_on_it_within_its_time(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(quick())
    await connection.client()
    peer.hold("tools/call")
    peer.silent.add("ping")
    patient = call(connection)
    await timed_out(call(connection, timeout=0.05, whose="bob"))
    await doubted(connection, clock)
    assert (connection.status().trouble, peer.opens) == ("slow", 1)
    later = call(connection, whose="carol")
    await clock.settle()
    assert peer.count("tools/call") == 2  # nothing more is sent to a server in doubt
    patient.cancel()
    peer.held.clear()
    async with asyncio.timeout(SOON_SECONDS):
        while peer.opens == 1:
            await clock.advance(DOUBT_SECONDS)
        assert await later
    status = connection.status()
    assert (status.state, status.trouble, status.reconnects) == ("connected", None, 1)
    assert (status.last_error or "").startswith("dead: neither a call nor a sign of life")


async def test_a_silent_server_that_answers_after_all_is_trusted_again(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(quick())
    await connection.client()
    peer.hold("tools/call")
    peer.silent.add("ping")
    patient = call(connection)
    await timed_out(call(connection, timeout=0.05, whose="bob"))
    await doubted(connection, clock)
    held = call(connection, whose="carol")
    await clock.settle()
    peer.release("tools/call")
    async with asyncio.timeout(SOON_SECONDS):
        assert await patient
        assert await held
    assert (connection.state, peer.opens) == ("connected", 1)


@pytest.mark.requirement("pool:health:which")
async def test_a_slow_tool_of_a_server_that_gives_signs_of_life_is_slow_and_not_dead(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(quick())
    await connection.client()
    assert connection.status().trouble is None
    peer.hold("tools/call")
    await timed_out(call(connection, timeout=0.06))
    await clock.settle()
    status = connection.status()
    assert (status.state, status.trouble, peer.opens) == ("connected", "slow", 1)
    assert "echo was not answered within 0.05 s" in (status.last_error or "")
    peer.release("tools/call")
    await clock.advance(61.0)
    assert connection.status().trouble is None


@pytest.mark.requirement("pool:health:which")
async def test_a_server_that_ended_is_dead_until_it_is_back(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make()
    assert connection.status().trouble is None
    await connection.client()
    peer.may_open.clear()
    peer.channel.lose()
    assert connection.status().trouble == "dead"
    peer.may_open.set()
    await clock.settle()
    assert (connection.state, connection.status().trouble) == ("connected", None)


@pytest.mark.requirement("pool:health:which")
async def test_a_server_that_says_too_much_is_flooding_for_a_minute(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make()
    await connection.client()
    peer.channel.flood(0.2)
    assert (connection.state, connection.status().trouble) == ("connected", "flooding")
    await clock.advance(61.0)
    assert connection.status().trouble is None


@pytest.mark.requirement("pool:doubt:left-behind")
async def test_whoever_leaves_calls_behind_waits_for_them_and_others_do_not(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make()
    await connection.client()
    peer.hold("tools/call")
    peer.hold("ping")
    for _ in range(LEFT_BEHIND):
        await timed_out(call(connection, timeout=0.01, whose="hostile"))
    assert [connection.admitting(who) is not None for who in ("hostile", "alice")] == [False, True]
    waiting = call(connection, whose="hostile")
    other = call(connection)
    await clock.settle()
    assert peer.count("tools/call") == LEFT_BEHIND + 1
    peer.release("ping")
    await clock.settle()
    assert peer.count("tools/call") == LEFT_BEHIND + 2
    peer.release("tools/call")
    async with asyncio.timeout(SOON_SECONDS):
        assert await waiting
        assert await other


async def test_a_second_missed_sign_of_life_does_not_end_a_connection_in_use(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(keepalive_seconds=10.0, idle_seconds=1000.0)
    await connection.client()
    peer.silent.add("ping")
    await clock.advance(10.0)
    assert connection.state == "degraded"
    peer.silent.clear()
    peer.hold("ping")
    await clock.advance(10.0)
    peer.hold("tools/call")
    busy = call(connection)
    await clock.settle()
    for ping in peer.held["ping"]:
        ping.set_exception(DeadlineExceeded("no answer to ping in time"))
    await clock.settle()
    assert peer.opens == 1
    peer.release("tools/call")
    assert await busy
    peer.release("ping")


async def test_a_list_that_nobody_answers_ends_nobodys_call(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(quick(200))
    await connection.client()
    peer.hold("tools/call")
    peer.hold("tools/list")
    peer.silent.add("ping")
    busy = call(connection)
    with pytest.raises(Exception, match="no tool list in time"):
        await inspect(connection, afresh=True)
    for _ in range(5):
        await clock.advance(DOUBT_SECONDS)
    assert peer.opens == 1
    peer.release("tools/call")
    async with asyncio.timeout(SOON_SECONDS):
        assert await busy
    peer.silent.clear()
    peer.release("tools/list")


async def test_those_who_wait_out_a_doubt_get_the_next_connection_when_it_is_closed(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make()
    await connection.client()
    peer.hold("tools/call")
    peer.hold("ping")
    for _ in range(LEFT_BEHIND):
        await timed_out(call(connection, timeout=0.01, whose="hostile"))
    waiting = call(connection, whose="hostile")
    in_flight = call(connection)
    await clock.settle()
    peer.held.clear()
    await connection.disconnect()
    with pytest.raises(OutcomeUnknown):
        await in_flight
    async with asyncio.timeout(SOON_SECONDS):
        assert await waiting
    assert peer.opens == 2


def test_doubt_is_due_by_the_records_times_counted_from_the_last_answer():
    now = 140.0
    debts = Debts(lambda: now, lambda: None)
    assert debts.due(60.0, 12.0) == float("inf")
    first = debts.asked(100.0, "list", "")
    assert debts.due(60.0, 12.0) == 112.0
    second = debts.asked(101.0, "call", "alice")
    assert debts.due(60.0, 12.0) == 161.0
    debts.abandoned(second)
    assert debts.due(60.0, 12.0) == 161.0
    third = debts.asked(130.0, "call", "bob")
    debts.answered(third)
    assert not debts.left
    assert debts.due(60.0, 12.0) == 152.0
    now = 141.0
    debts.answered(first)
    assert debts.due(60.0, 12.0) == float("inf")
