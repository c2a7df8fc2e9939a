"""Room for a call: time, output, places on a server and on the node, and the session's totals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bascule.errors import DeadlineExceeded, ServerUnavailable
from bascule.model.call import Progress
from bascule.model.session import SessionLimits
from bascule.node.bridge.budgets import Limiter
from bascule.node.bridge.session import Session
from bascule.node.settings import NodeSettings
from bascule.testing import FakeClock
from tests.node.fakes import Doorman, Sent, World, cut, failed, succeeded, text
from tests.policy.build import server
from tests.waits import SOON_SECONDS


def calling(session: Session, name: str = "mcp__fs__read", **options: Any) -> asyncio.Task[Any]:
    return asyncio.create_task(session.call(name, **options))


async def settle() -> None:
    """Let every task run as far as it can."""
    await FakeClock().settle()


@pytest.mark.requirement("budgets:limits-only-lower")
@pytest.mark.parametrize(("asked", "given"), [(None, 8.0), (3.0, 3.0), (60.0, 8.0)])
async def test_a_callers_timeout_may_only_lower_the_records(asked: float | None, given: float):
    world = World(server("fs", budgets={"tool_timeout_ms": 8000}))
    succeeded(await world.session().call("mcp__fs__read", timeout=asked))
    [sent] = world.sent
    assert sent.timeout == given
    assert (sent.until is None) == (asked is None)


async def test_the_platforms_ceiling_stands_above_record_and_caller():
    world = World(platform={"ceilings": {"tool_timeout_ms": 1500, "max_tool_output_bytes": 200}})
    world.caller.answers("read", text("x" * 300))
    outcome = await world.session().call("mcp__fs__read", timeout=5, max_output_bytes=10_000)
    assert len(cut(outcome).text) <= 200
    assert world.sent[0].timeout == 1.5


@pytest.mark.requirement("budgets:limits-only-lower", "budgets:server:output")
@pytest.mark.parametrize(("asked", "cap"), [(None, 400), (200, 200), (10_000, 400)])
async def test_a_callers_output_cap_may_only_lower_the_records(asked: int | None, cap: int):
    world = World(server("fs", budgets={"max_tool_output_bytes": 400}))
    world.caller.answers("read", text("x" * 1000))
    outcome = await world.session().call("mcp__fs__read", max_output_bytes=asked)
    assert cap - 4 <= len(cut(outcome).text) <= cap


@pytest.mark.requirement("budgets:server:timeout", "outcomes:timeout")
async def test_a_call_that_exceeds_its_time_is_a_timeout():
    world = World()
    world.caller.answers("read", DeadlineExceeded("no answer within 8 s"))
    failed(await world.session().call("mcp__fs__read"), "mcp_timeout")


@pytest.mark.requirement("budgets:server:concurrency")
async def test_a_server_has_as_many_places_as_its_record_says_for_all_sessions_together():
    world = World(server("fs", budgets={"max_concurrency": 2}), server("other"))
    doorman = Doorman()
    world.caller.answers("read", doorman)
    calls = [calling(world.session()) for _ in range(5)]
    first, second = await doorman.next(), await doorman.next()
    await settle()
    assert doorman.inside == 2
    succeeded(await world.session().call("mcp__other__write"))
    first.set()
    third = await doorman.next()
    await settle()
    assert doorman.inside == 2
    for door in (second, third):
        door.set()
    for _ in range(2):
        (await doorman.next()).set()
    async with asyncio.timeout(SOON_SECONDS):
        for call in calls:
            succeeded(await call)
    assert doorman.most == 2


@pytest.mark.requirement("budgets:node:concurrency")
async def test_a_node_has_as_many_places_as_its_settings_say_for_all_servers_together():
    world = World(server("a"), server("b"), settings=NodeSettings(max_concurrency=1))
    doorman = Doorman()
    world.caller.answers("read", doorman)
    session = world.session()
    calls = [calling(session, f"mcp__{name}__read") for name in ("a", "b", "a", "b")]
    for _ in calls:
        door = await doorman.next()
        await settle()
        assert doorman.inside == 1
        door.set()
    async with asyncio.timeout(SOON_SECONDS):
        for call in calls:
            succeeded(await call)
    assert doorman.most == 1


@pytest.mark.requirement("call:timeout:names-setting")
@pytest.mark.parametrize(
    ("limits", "platform", "words"),
    [
        ({}, {}, "the limit is 2 s: raise budgets.tool_timeout_ms of server 'fs'"),
        (
            {"timeout": 0.5},
            {},
            "the caller's own timeout is 0.5 s; budgets.tool_timeout_ms of server 'fs' allows 2 s",
        ),
        (
            {},
            {"ceilings": {"tool_timeout_ms": 1500}},
            "the limit is 1.5 s: raise ceilings.tool_timeout_ms of the platform",
        ),
        ({"timeout": 5.0}, {}, "the limit is 2 s: raise budgets.tool_timeout_ms of server 'fs'"),
    ],
)
async def test_a_timeout_names_the_setting_to_raise(
    limits: dict[str, Any], platform: dict[str, Any], words: str
):
    world = World(server("fs", budgets={"tool_timeout_ms": 2000}), platform=platform)
    world.caller.answers("read", DeadlineExceeded("no answer to tools/call in time"))
    outcome = failed(await world.session().call("mcp__fs__read", **limits), "mcp_timeout")
    assert outcome.error.message == f"no answer to tools/call in time ({words})"


@pytest.mark.requirement("call:timeout:names-setting")
async def test_an_idle_timeout_says_that_it_was_the_callers_own():
    world = World()
    world.caller.answers("read", Doorman())
    outcome = await world.session().call("mcp__fs__read", idle_timeout=0.01)
    message = failed(outcome, "mcp_timeout").error.message
    assert "(the caller's own idle timeout; budgets.tool_timeout_ms of server 'fs'" in message


@pytest.mark.requirement("budgets:exceeded", "call:deadline")
async def test_a_call_waits_for_a_place_until_its_deadline_and_no_longer():
    world = World(server("fs", budgets={"max_concurrency": 1}))
    doorman = Doorman()
    world.caller.answers("read", doorman)
    session = world.session()
    busy = calling(session)
    door = await doorman.next()
    async with asyncio.timeout(SOON_SECONDS):
        outcome = failed(await session.call("mcp__fs__read", timeout=0.01), "mcp_budget_exceeded")
    assert outcome.error.retry_after is not None
    assert outcome.error.retry_after > 0
    assert len(world.sent) == 1
    door.set()
    async with asyncio.timeout(SOON_SECONDS):
        succeeded(await busy)
    assert session.budget.calls == 1
    assert session.budget.reserved == 0


async def test_whoever_gives_up_waiting_leaves_the_place_to_the_next():
    world = World(server("fs", budgets={"max_concurrency": 1}))
    doorman = Doorman()
    world.caller.answers("read", doorman)
    session = world.session()
    calls = [calling(session) for _ in range(3)]
    door = await doorman.next()
    await settle()
    calls[1].cancel()
    await settle()
    assert doorman.inside == 1  # who waited had no place to give back
    door.set()
    (await doorman.next()).set()
    async with asyncio.timeout(SOON_SECONDS):
        succeeded(await calls[0])
        succeeded(await calls[2])
        with pytest.raises(asyncio.CancelledError):
            await calls[1]
    succeeded(await session.call("mcp__fs__write"))
    assert (doorman.most, session.budget.reserved) == (1, 0)


async def test_a_place_given_to_someone_who_just_left_is_not_lost():
    limiter = Limiter(1)
    assert limiter.enter()
    until = asyncio.get_running_loop().time() + 5
    waiting = asyncio.create_task(limiter.wait(until))
    await settle()
    limiter.leave()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert limiter.active == 0
    assert limiter.enter()


async def test_those_who_wait_are_served_in_order_and_nobody_overtakes():
    limiter = Limiter(1)
    assert limiter.enter()
    order: list[int] = []

    async def visit(number: int) -> None:
        assert await limiter.wait(asyncio.get_running_loop().time() + 5)
        order.append(number)
        limiter.leave()

    visits = [asyncio.create_task(visit(number)) for number in range(3)]
    await settle()
    assert not limiter.enter()
    limiter.leave()
    async with asyncio.timeout(SOON_SECONDS):
        await asyncio.gather(*visits)
    assert order == [0, 1, 2]
    assert limiter.active == 0


async def test_places_are_given_back_however_a_call_ends():
    world = World(server("fs", budgets={"max_concurrency": 1}))
    session = world.session()
    leaky = "AKIA" + "IOSFODNN7EXAMPLQ"
    answers = [ServerUnavailable("down"), DeadlineExceeded("late"), text(leaky), {"content": 7}]
    for answer in answers:
        world.caller.answers("read", answer)
        async with asyncio.timeout(SOON_SECONDS):
            await session.call("mcp__fs__read", timeout=1)
    world.caller.answers("read", text("well"))
    async with asyncio.timeout(SOON_SECONDS):
        succeeded(await session.call("mcp__fs__read", timeout=1))


@pytest.mark.requirement("budgets:session:total-calls", "budgets:exceeded")
async def test_a_sessions_calls_are_counted_and_then_refused():
    world = World()
    session = world.session(limits=SessionLimits(max_total_tool_calls=2))
    for _ in range(2):
        succeeded(await session.call("mcp__fs__read"))
    outcome = failed(await session.call("mcp__fs__read"), "mcp_budget_exceeded")
    assert "max_total_tool_calls" in outcome.error.message
    assert outcome.error.retry_after is not None
    assert len(world.sent) == 2
    succeeded(await world.session().call("mcp__fs__read"))


async def test_calls_under_way_count_before_they_have_ended():
    world = World()
    doorman = Doorman()
    world.caller.answers("read", doorman)
    session = world.session(limits=SessionLimits(max_total_tool_calls=1))
    busy = calling(session)
    door = await doorman.next()
    failed(await session.call("mcp__fs__write"), "mcp_budget_exceeded")
    door.set()
    async with asyncio.timeout(SOON_SECONDS):
        succeeded(await busy)


async def test_a_call_that_never_left_costs_nothing():
    world = World()
    session = world.session(limits=SessionLimits(max_total_tool_calls=1))
    world.caller.answers("read", ServerUnavailable("down"))
    for _ in range(3):
        failed(await session.call("mcp__fs__read"), "mcp_unavailable")
    world.caller.answers("read", text("well"))
    succeeded(await session.call("mcp__fs__read"))
    failed(await session.call("mcp__fs__read"), "mcp_budget_exceeded")


@pytest.mark.requirement("budgets:session:output-bytes")
async def test_a_sessions_output_is_counted_in_bytes_and_then_refused():
    world = World()
    world.caller.answers("read", text("é" * 30))
    session = world.session(limits=SessionLimits(max_tool_output_bytes=100))
    succeeded(await session.call("mcp__fs__read"))
    assert session.budget.output_bytes == 60
    succeeded(await session.call("mcp__fs__read"))
    outcome = failed(await session.call("mcp__fs__read"), "mcp_budget_exceeded")
    assert "max_tool_output_bytes" in outcome.error.message
    assert len(world.sent) == 2


async def reports(sent: Sent, times: int, seconds: float) -> None:
    """Report progress, each time a little later on the event loop's own clock."""
    loop = asyncio.get_running_loop()
    for step in range(times):
        turn = asyncio.Event()
        loop.call_later(seconds, turn.set)
        await turn.wait()
        if sent.on_progress is not None:
            sent.on_progress(Progress(step))


@pytest.mark.requirement("call:progress:extends-idle")
async def test_progress_keeps_a_slow_call_alive_past_its_idle_timeout():
    world = World()

    async def slow(sent: Sent) -> dict[str, Any]:
        await reports(sent, 12, 0.05)
        return text("at last")

    world.caller.answers("read", slow)
    async with asyncio.timeout(SOON_SECONDS):
        outcome = await world.session().call("mcp__fs__read", idle_timeout=0.5)
    assert succeeded(outcome).text == "at last"


async def test_a_call_without_progress_ends_at_its_idle_timeout():
    world = World()
    doorman = Doorman()
    world.caller.answers("read", doorman)
    async with asyncio.timeout(SOON_SECONDS):
        outcome = await world.session().call("mcp__fs__read", idle_timeout=0.01)
    assert "neither answer nor progress" in failed(outcome, "mcp_timeout").error.message
    assert doorman.inside == 0


@pytest.mark.requirement("call:progress:never-cap")
async def test_progress_moves_neither_the_timeout_nor_the_deadline_of_what_is_sent():
    world = World(server("fs", budgets={"tool_timeout_ms": 2000}))
    before = asyncio.get_running_loop().time()
    await world.session().call("mcp__fs__read", timeout=1, idle_timeout=60, on_progress=print)
    [sent] = world.sent
    assert sent.timeout == 1
    assert sent.until is not None
    assert before + 1 <= sent.until <= asyncio.get_running_loop().time() + 1


async def test_progress_that_comes_too_late_disturbs_nobody():
    world = World()

    async def stubborn(sent: Sent) -> dict[str, Any]:
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            assert sent.on_progress is not None
            sent.on_progress(Progress(1))

    world.caller.answers("read", stubborn)
    async with asyncio.timeout(SOON_SECONDS):
        outcome = await world.session().call("mcp__fs__read", idle_timeout=0.01)
    failed(outcome, "mcp_timeout")
