"""After every wait a call is decided again, directly before its intent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from bascule.model.outcome import Outcome
from bascule.model.server import ServerRecord
from bascule.model.session import SessionRequest
from bascule.node.bridge.opening import Opening
from bascule.node.bridge.session import Session
from tests.node.fakes import (
    Doorman,
    FakeApprover,
    Json,
    Sent,
    World,
    definition,
    failed,
    succeeded,
    text,
)
from tests.policy.build import server
from tests.waits import SOON_SECONDS

ONE_AT_A_TIME = server("fs", budgets={"max_concurrency": 1})
NEEDS_NUMBER = {"type": "object", "properties": {"text": {"type": "integer"}}}

Meanwhile = Callable[[World, Session], Awaitable[None] | None]


async def settle() -> None:
    for _ in range(10):
        await asyncio.wait({asyncio.create_task(asyncio.Event().wait())}, timeout=0)


async def queued(world: World, session: Session, meanwhile: Meanwhile) -> Outcome:
    """Let a call wait for a place while something happens."""
    doorman = Doorman()
    world.caller.answers("read", doorman)
    busy = asyncio.create_task(world.session().call("mcp__fs__read"))
    door = await doorman.next()
    waiting = asyncio.create_task(session.call("mcp__fs__write", {"text": "x"}))
    await settle()
    await _done(meanwhile(world, session))
    door.set()
    async with asyncio.timeout(SOON_SECONDS):
        succeeded(await busy)
        return await waiting


async def connecting(world: World, session: Session, meanwhile: Meanwhile) -> Outcome:
    """Let a call wait for its server's connection while something happens."""
    await session.tools()
    gate = world.caller.hold_connecting("fs")
    waiting = asyncio.create_task(session.call("mcp__fs__write", {"text": "x"}))
    await settle()
    await _done(meanwhile(world, session))
    gate.set()
    async with asyncio.timeout(SOON_SECONDS):
        return await waiting


async def listing(world: World, session: Session, meanwhile: Meanwhile) -> Outcome:
    """Let a call wait for its server's tools, which nobody has listed yet."""
    gate = world.caller.hold_listing("fs")
    waiting = asyncio.create_task(session.call("mcp__fs__write", {"text": "x"}))
    await settle()
    await _done(meanwhile(world, session))
    gate.set()
    async with asyncio.timeout(SOON_SECONDS):
        return await waiting


async def sent_again(world: World, session: Session, meanwhile: Meanwhile) -> Outcome:
    """Let a call wait between a send that was not delivered and the next."""

    async def again(sent: Sent) -> Json:
        await _done(meanwhile(world, session))
        assert sent.decide is not None
        await sent.decide()
        return text("sent twice")

    world.caller.answers("write", again)
    async with asyncio.timeout(SOON_SECONDS):
        return await session.call("mcp__fs__write", {"text": "x"})


async def approving(world: World, session: Session, meanwhile: Meanwhile) -> Outcome:
    """Let a call wait for a person's decision, who agrees."""
    approver = world.approver
    assert isinstance(approver, FakeApprover)
    approver.think()
    waiting = asyncio.create_task(session.call("mcp__fs__write", {"text": "x"}))
    async with asyncio.timeout(SOON_SECONDS):
        await approver.asked.wait()
        await _done(meanwhile(world, session))
        approver.decided.set()
        return await waiting


async def _done(work: Awaitable[None] | None) -> None:
    if work is not None:
        await work


WAITS = [queued, connecting, listing, sent_again]
ASKS = server(
    "fs", budgets={"max_concurrency": 1}, approval_policy={"per_tool": {"write": "always"}}
)
TASK: Json = {"t": {"enabled": True, "default_server_ids": ["fs"]}}
#: What takes a tool from a session of the task.
TAKEN_AWAY: dict[str, Callable[[World, ServerRecord], None]] = {
    "the server": lambda w, r: w.apply(server("other"), tasks=TASK),
    "the server's leave": lambda w, r: w.apply(replace(r, enabled=False), tasks=TASK),
    "the tool": lambda w, r: w.apply(replace(r, allowed_tools=("read",)), tasks=TASK),
    "the task's server": lambda w, r: w.apply(
        r, tasks={"t": {"enabled": True, "default_server_ids": []}}
    ),
    "the task's tool": lambda w, r: w.apply(
        r, tasks={"t": {**TASK["t"], "tool_allowlist": ["read"]}}
    ),
    "writing": lambda w, r: w.apply(r, tasks={"t": {**TASK["t"], "read_only": True}}),
}


def intents(world: World) -> list[str]:
    return [event.tool_name for event in world.ledger.intents() if event.tool_name == "write"]


def reached(world: World) -> list[str]:
    return [sent.tool for sent in world.sent if sent.tool == "write"]


@pytest.mark.requirement("call:decide-again")
@pytest.mark.parametrize("wait", WAITS)
async def test_a_tool_forbidden_during_a_wait_is_not_called(wait: Any):
    world = World(ONE_AT_A_TIME)
    outcome = await wait(
        world,
        world.session(),
        lambda w, _: w.apply(ONE_AT_A_TIME, platform={"tool_denylist": ["write"]}),
    )
    details = failed(outcome, "mcp_policy_denied").error.details or {}
    assert details["decision"]["reason"] == "platform_denied"
    if wait is not sent_again:
        assert (intents(world), reached(world)) == ([], [])


@pytest.mark.requirement("call:decide-again")
@pytest.mark.parametrize("wait", [*WAITS, approving])
@pytest.mark.parametrize("taken_away", TAKEN_AWAY)
async def test_what_is_taken_away_during_a_wait_is_gone(wait: Any, taken_away: str):
    record = ONE_AT_A_TIME if wait is not approving else ASKS
    world = World(record, tasks=TASK, approver=FakeApprover())
    session = world.session(task="t")
    change = TAKEN_AWAY[taken_away]
    outcome = await wait(world, session, lambda w, _: change(w, record))
    failed(outcome, "mcp_policy_denied")
    if wait is not sent_again:
        assert (intents(world), reached(world)) == ([], [])


@pytest.mark.requirement("call:decide-again")
@pytest.mark.parametrize("wait", WAITS)
async def test_a_session_closed_during_a_wait_sends_nothing(wait: Any):
    world = World(ONE_AT_A_TIME)
    session = world.session()
    outcome = failed(await wait(world, session, lambda _, s: s.close()), "mcp_unavailable")
    assert "closed" in outcome.error.message
    if wait is not sent_again:
        assert (intents(world), reached(world)) == ([], [])


@pytest.mark.requirement("call:decide-again")
@pytest.mark.parametrize("wait", [*WAITS, approving])
async def test_a_token_revoked_during_a_wait_counts_at_once(wait: Any):
    record = ONE_AT_A_TIME if wait is not approving else ASKS
    world = World(record, approver=FakeApprover())
    living = ["token"]

    async def standing() -> bool:
        return bool(living)

    request = SessionRequest(server_ids=("fs",))
    session = world.core.open_session(Opening(request=request), standing=standing)
    outcome = failed(await wait(world, session, lambda *_: living.clear()), "mcp_policy_denied")
    assert "revoked" in outcome.error.message
    if wait is not sent_again:
        assert (intents(world), reached(world)) == ([], [])


@pytest.mark.requirement("call:decide-again")
@pytest.mark.parametrize("wait", [queued, connecting])
async def test_a_rule_added_during_a_wait_that_wants_approval_holds_the_call_back(wait: Any):
    world = World(ONE_AT_A_TIME)
    asks = server("fs", budgets={"max_concurrency": 1}, approval_policy={"default": "always"})
    outcome = await wait(world, world.session(), lambda w, _: w.apply(asks))
    failed(outcome, "mcp_approval_required")
    assert (intents(world), reached(world)) == ([], [])


@pytest.mark.requirement("call:decide-again")
@pytest.mark.parametrize("wait", [queued, connecting])
async def test_arguments_are_judged_by_the_schema_of_the_moment_they_leave(wait: Any):
    world = World(ONE_AT_A_TIME)
    changed = definition("write", inputSchema=NEEDS_NUMBER)
    outcome = await wait(
        world, world.session(), lambda w, _: w.caller.offers(ONE_AT_A_TIME, "read", changed)
    )
    failed(outcome, "mcp_invalid_arguments")
    assert (intents(world), reached(world)) == ([], [])


@pytest.mark.parametrize("wait", [queued, connecting])
async def test_a_change_that_still_allows_the_call_is_the_revision_and_budget_it_carries(wait: Any):
    world = World(ONE_AT_A_TIME)
    quicker = server("fs", budgets={"max_concurrency": 1, "tool_timeout_ms": 1500})
    outcome = succeeded(await wait(world, world.session(), lambda w, _: w.apply(quicker)))
    (intent,) = [event for event in world.ledger.intents() if event.tool_name == "write"]
    assert intent.revision == outcome.revision == 2
    (sent,) = [sent for sent in world.sent if sent.tool == "write"]
    assert sent.timeout == 1.5


async def test_the_connection_is_waited_for_before_the_intent_is_written():
    world = World(ONE_AT_A_TIME)
    succeeded(await connecting(world, world.session(), lambda *_: None))
    assert world.caller.trace == ["connect", "intent", "send", "ok"]


async def test_a_call_that_need_not_wait_is_decided_once():
    world = World(ONE_AT_A_TIME)
    asked: list[str] = []

    async def standing() -> bool:
        asked.append("?")
        return True

    session = world.core.open_session(
        Opening(request=SessionRequest(server_ids=("fs",))), standing=standing
    )
    await session.tools()
    succeeded(await session.call("mcp__fs__write", {"text": "x"}))
    assert asked == []


@pytest.mark.requirement("budgets:turns")
@pytest.mark.parametrize("sessions", [1, 5])
async def test_callers_take_turns_for_a_place_however_much_one_of_them_asks_for(sessions: int):
    world = World(ONE_AT_A_TIME)
    doorman = Doorman()
    world.caller.answers("read", doorman)
    world.caller.answers("write", doorman)
    greedy = [world.session(caller="greedy") for _ in range(sessions)]
    modest = world.session(caller="modest")
    await asyncio.gather(*(session.tools() for session in (*greedy, modest)))
    flood = [asyncio.create_task(one.call("mcp__fs__read")) for one in greedy * 10]
    door = await doorman.next()
    await settle()
    one = asyncio.create_task(modest.call("mcp__fs__write"))
    await settle()
    for _ in range(2):
        door.set()
        door = await doorman.next()
    assert [sent.tool for sent in world.sent][:3] == ["read", "read", "write"]
    door.set()
    async with asyncio.timeout(SOON_SECONDS):
        succeeded(await one)
    for task in flood:
        task.cancel()
    await asyncio.wait(flood)


@pytest.mark.requirement("budgets:turns")
async def test_a_thousand_sessions_of_one_token_delay_another_by_two_services_at_most():
    world = World(ONE_AT_A_TIME)
    doorman = Doorman()
    world.caller.answers("read", doorman)
    world.caller.answers("write", doorman)

    def opened(token: str) -> Session:
        request = SessionRequest(server_ids=("fs",))
        return world.core.open_session(Opening(request=request, caller="same", token_id=token))

    greedy = [opened("tok-greedy") for _ in range(1000)]
    modest = opened("tok-modest")
    await modest.tools()
    flood = [asyncio.create_task(one.call("mcp__fs__read")) for one in greedy]
    door = await doorman.next()
    await settle()
    before = len(world.sent)
    one = asyncio.create_task(modest.call("mcp__fs__write"))
    await settle()
    while world.sent[-1].tool != "write":
        assert len(world.sent) - before < 2
        door.set()
        door = await doorman.next()
    door.set()
    async with asyncio.timeout(SOON_SECONDS):
        succeeded(await one)
    for task in flood:
        task.cancel()
    await asyncio.wait(flood)
