"""An approval that is kept, on the path of a call: for that call, once, and in time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from bascule.audit.approval_settings import ApprovalSettings
from bascule.audit.approval_steps import Decision
from bascule.audit.approvals import Approvals, MemoryStore
from bascule.audit.events import CallIntent
from bascule.audit.ledger import LedgerUnavailable
from bascule.model.approval import Asking, Decider
from bascule.model.outcome import Outcome
from bascule.node.bridge.session import Session
from bascule.testing.clock import FakeClock
from tests.node.fakes import World, definition, failed, succeeded
from tests.policy.build import server

ASKS = server("fs", approval_policy={"default": "always"})
OTHER = server("other", approval_policy={"default": "always"})
SETTINGS = ApprovalSettings(decide_seconds=100, claim_seconds=50)


class Filling(MemoryStore):
    """A store with room for so many steps."""

    room = sys.maxsize

    async def step(self, work: Callable[[Any], Any]) -> Any:
        if self.room == 0:
            raise LedgerUnavailable("the disk is full")
        self.room -= 1
        return await super().step(work)


class Asked:
    """A bridge over fakes whose approvals are kept, and somebody who decides."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = Filling(self.clock)
        self.approvals = Approvals(self.store, SETTINGS, clock=self.clock)
        self.world = World(ASKS, OTHER, approver=self.approvals, clock=self.clock)

    def session(self, caller: str = "agent") -> Session:
        return self.world.session(caller=caller)

    def rules(self, *rules: dict[str, Any]) -> None:
        """Have the platform ask, and no record."""
        platform = {"default_approval": "never", "rules": [*rules]}
        self.world.apply(server("fs"), OTHER, platform=platform)

    async def waits(self, outcome: Outcome) -> str:
        """Return the question that a call has to wait for; it was not sent."""
        details = failed(outcome, "mcp_approval_required").error.details or {}
        return details["approval_id"]

    async def approve(self, id: str) -> None:
        found = await self.approvals.get(id)
        assert found is not None
        decision = Decision(verb="approve", by=Decider(name="boss"), digest=found.digest)
        await self.approvals.decide(id, decision)

    async def approved(self, session: Session, name: str, text: str = "x") -> str:
        """Ask about a call and have it approved; return the approval."""
        id = await self.waits(await session.call(name, {"text": text}, approval="return"))
        await self.approve(id)
        return id

    async def state(self, id: str) -> str:
        found = await self.approvals.get(id)
        return "gone" if found is None else found.state


@pytest.mark.requirement("approval:grant:single-use")
async def test_an_approval_lets_one_call_through_and_the_next_one_asks_again():
    asked = Asked()
    session = asked.session()
    id = await asked.approved(session, "mcp__fs__write")
    shown = await asked.approvals.shown(id)
    assert shown is not None
    outcome = succeeded(await session.call("mcp__fs__write", {"text": "x"}, approval="return"))
    again = await asked.waits(
        await session.call("mcp__fs__write", {"text": "x"}, approval="return")
    )
    assert again != id
    [sent] = asked.world.sent
    assert sent.payload == shown.arguments, "what was sent is what was shown"
    [intent] = [one for one in asked.store.rows.events if isinstance(one, CallIntent)]
    assert (intent.request_id, intent.approval_id) == (outcome.request_id, id)
    assert not asked.world.ledger.intents(), "the intent was written with the claim, and once"


@pytest.mark.requirement("approval:grant:single-use")
async def test_asking_for_a_used_approval_by_its_id_runs_nothing():
    asked = Asked()
    session = asked.session()
    id = await asked.approved(session, "mcp__fs__write")
    by_id = Asking(wait=0.0, approval_id=id)
    succeeded(await session.call("mcp__fs__write", {"text": "x"}, approval=by_id))
    failed(
        await session.call("mcp__fs__write", {"text": "x"}, approval=by_id), "mcp_outcome_unknown"
    )
    assert len(asked.world.sent) == 1


@pytest.mark.requirement("approval:grant:expires")
async def test_an_approval_that_was_not_used_in_time_is_not_honoured():
    asked = Asked()
    session = asked.session()
    id = await asked.approved(session, "mcp__fs__write")
    asked.clock.jump(50)
    again = await asked.waits(
        await session.call("mcp__fs__write", {"text": "x"}, approval="return")
    )
    assert again != id
    assert await asked.state(id) == "expired"
    by_id = Asking(wait=0.0, approval_id=id)
    failed(
        await session.call("mcp__fs__write", {"text": "x"}, approval=by_id), "mcp_approval_denied"
    )
    assert not asked.world.sent


@pytest.mark.requirement("approval:grant:bound-caller")
async def test_another_caller_cannot_use_it_with_its_id_or_without():
    asked = Asked()
    id = await asked.approved(asked.session(), "mcp__fs__write")
    thief = asked.session("thief")
    await asked.waits(await thief.call("mcp__fs__write", {"text": "x"}, approval="return"))
    by_id = Asking(wait=0.0, approval_id=id)
    failed(await thief.call("mcp__fs__write", {"text": "x"}, approval=by_id), "mcp_approval_denied")
    assert not asked.world.sent
    assert await asked.state(id) == "approved", "nobody else can spoil it"
    succeeded(await asked.session().call("mcp__fs__write", {"text": "x"}))


@pytest.mark.requirement("approval:grant:bound-target")
@pytest.mark.parametrize("name", ["mcp__fs__delete", "mcp__other__write"])
async def test_it_is_for_that_tool_of_that_server(name: str):
    asked = Asked()
    session = asked.session()
    id = await asked.approved(session, "mcp__fs__write")
    await asked.waits(await session.call(name, {"text": "x"}, approval="return"))
    by_id = Asking(wait=0.0, approval_id=id)
    failed(await session.call(name, {"text": "x"}, approval=by_id), "mcp_approval_denied")
    assert await asked.state(id) == "void"
    assert not asked.world.sent


@pytest.mark.requirement("approval:grant:bound-arguments")
async def test_it_is_for_those_arguments():
    asked = Asked()
    session = asked.session()
    id = await asked.approved(session, "mcp__fs__write")
    await asked.waits(await session.call("mcp__fs__write", {"text": "y"}, approval="return"))
    by_id = Asking(wait=0.0, approval_id=id)
    failed(
        await session.call("mcp__fs__write", {"text": "y"}, approval=by_id), "mcp_approval_denied"
    )
    assert await asked.state(id) == "void"
    assert not asked.world.sent


@pytest.mark.requirement("approval:grant:bound-definition")
@pytest.mark.parametrize("by_id", [False, True])
async def test_it_is_void_once_the_tool_is_another(by_id: bool):
    asked = Asked()
    session = asked.session()
    id = await asked.approved(session, "mcp__fs__write")
    asked.world.caller.offers(ASKS, definition("write", description="Formats the disk."))
    asking = Asking(wait=0.0, approval_id=id if by_id else None)
    outcome = await session.call("mcp__fs__write", {"text": "x"}, approval=asking)
    failed(outcome, "mcp_approval_denied" if by_id else "mcp_approval_required")
    assert not asked.world.sent


@pytest.mark.requirement("approval:grant:bound-revision")
async def test_a_revision_that_changed_something_else_does_not_void_it():
    asked = Asked()
    session = asked.session()
    id = await asked.approved(session, "mcp__fs__write")
    asked.world.apply(ASKS, server("other", display_name="Changed"))
    outcome = await session.call(
        "mcp__fs__write", {"text": "x"}, approval=Asking(wait=0.0, approval_id=id)
    )
    assert succeeded(outcome).revision == 2
    assert await asked.state(id) == "claimed"


CHANGES: dict[str, Callable[[World], None]] = {
    "record": lambda world: world.apply(
        server("fs", approval_policy={"default": "always"}, display_name="Changed"), OTHER
    ),
    "verdict": lambda world: world.apply(
        server("fs", approval_policy={"default": "policy"}), OTHER
    ),
    "rule": lambda world: world.apply(
        platform={
            "rules": [{"tools": ["*"], "when": "args.text == 'y'", "effect": "require_approval"}]
        }
    ),
}


@pytest.mark.requirement("approval:grant:bound-revision")
@pytest.mark.parametrize("what", sorted(CHANGES))
async def test_another_record_of_the_server_rule_or_verdict_voids_it(what: str):
    asked = Asked()
    session = asked.session()
    id = await asked.approved(session, "mcp__fs__write")
    CHANGES[what](asked.world)
    outcome = await session.call(
        "mcp__fs__write", {"text": "x"}, approval=Asking(wait=0.0, approval_id=id)
    )
    failed(outcome, "mcp_approval_denied")
    assert await asked.state(id) == "void"
    assert not asked.world.sent


@pytest.mark.requirement("approval:grant:bound-revision")
async def test_a_rule_for_other_tools_before_the_one_that_asks_does_not_matter():
    asks = {"tools": ["write"], "effect": "require_approval"}
    other = {"tools": ["elsewhere/*"], "effect": "deny"}
    asked = Asked()
    asked.rules(asks)
    session = asked.session()
    id = await asked.approved(session, "mcp__fs__write")
    asked.rules(other, asks)
    succeeded(await session.call("mcp__fs__write", {"text": "x"}, approval="return"))
    assert await asked.state(id) == "claimed"


@pytest.mark.requirement("approval:grant:bound-revision")
async def test_another_rule_that_asks_for_the_same_voids_it():
    narrow = {"tools": ["write"], "when": "args.text == 'x'", "effect": "require_approval"}
    wide = {"tools": ["write"], "effect": "require_approval"}
    asked = Asked()
    asked.rules(wide)
    session = asked.session()
    id = await asked.approved(session, "mcp__fs__write")
    asked.rules(narrow, wide)
    await asked.waits(await session.call("mcp__fs__write", {"text": "x"}, approval="return"))
    assert await asked.state(id) == "void"


@pytest.mark.requirement("approval:grant:bound-revision")
@pytest.mark.parametrize("what", sorted(CHANGES))
async def test_the_same_call_after_a_change_voids_what_was_asked_before_for_good(what: str):
    asked = Asked()
    session = asked.session()
    id = await asked.approved(session, "mcp__fs__write")
    CHANGES[what](asked.world)
    await asked.waits(await session.call("mcp__fs__write", {"text": "x"}, approval="return"))
    assert await asked.state(id) == "void"
    asked.world.apply(ASKS, OTHER, platform={})
    await asked.waits(await session.call("mcp__fs__write", {"text": "x"}, approval="return"))
    assert not asked.world.sent


@pytest.mark.parametrize("steps", [0, 1], ids=["asking", "claiming"])
async def test_a_step_that_cannot_be_written_sends_nothing_and_keeps_the_approval(steps: int):
    asked = Asked()
    session = asked.session()
    id = await asked.approved(session, "mcp__fs__write")
    asked.store.room = steps
    outcome = await session.call("mcp__fs__write", {"text": "x"}, approval="return")
    assert "the disk is full" in failed(outcome, "mcp_unavailable").error.message
    assert not asked.world.sent
    assert session.budget.calls == 0
    asked.store.room = sys.maxsize
    assert await asked.state(id) == "approved"
    succeeded(await session.call("mcp__fs__write", {"text": "x"}, approval="return"))
