"""Approval on the path of a call: who is asked, with what, and what counts afterwards."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bascule.model.approval import ApprovalRequest
from bascule.model.outcome import Outcome
from bascule.model.server import ServerRecord
from bascule.node.approvers import AllowAll, AskFunction, DenyAll
from bascule.node.bridge.session import Session
from tests.node.fakes import DIGEST_KEY, FakeApprover, World, definition, failed, succeeded
from tests.policy.build import server
from tests.waits import SOON_SECONDS

ASKS = server("fs", approval_policy={"default": "always"})


@pytest.mark.requirement("approval:approver:absent")
async def test_without_an_approver_a_call_that_needs_one_does_not_run():
    world = World(ASKS)
    session = world.session()
    outcome = failed(await session.call("mcp__fs__write"), "mcp_approval_required")
    assert "approval_policy" in outcome.error.message
    assert not world.sent
    assert session.budget.calls == 0


@pytest.mark.requirement("approval:approver:denied")
async def test_a_refused_approval_does_not_run():
    world = World(ASKS, approver=DenyAll())
    session = world.session()
    failed(await session.call("mcp__fs__write"), "mcp_approval_denied")
    assert not world.sent
    assert session.budget.calls == 0


@pytest.mark.requirement("approval:always")
async def test_always_asks_before_every_call_whatever_the_tool_and_the_answers_before():
    rules = [{"tools": ["*"], "effect": "allow"}]
    always = {"default": "always", "rules": rules}
    record = server("fs", approval_policy=always, effects={"read": ["read"], "idempotent": ["*"]})
    approver = FakeApprover()
    world = World(record, approver=approver)
    session = world.session(caller="alice")
    asked = ["read", "read", "write", "delete", "write"]
    for number, name in enumerate(asked, start=1):
        approver.answer = name != "delete"
        outcome = await session.call(f"mcp__fs__{name}", {"text": "same"})
        assert outcome.ok is approver.answer
        assert len(approver.questions) == number
    assert [question.tool for question in approver.questions] == asked
    assert [sent.tool for sent in world.sent] == ["read", "read", "write", "write"]


@pytest.mark.parametrize(
    "when",
    [
        "args.text == 'x'",
        "caller == 'alice'",
        "server == 'fs'",
        "task == 'job'",
        "tool == 'write'",
    ],
)
@pytest.mark.parametrize("holds", [True, False])
async def test_a_rule_may_look_at_all_that_is_known_of_a_call(when: str, holds: bool):
    condition = when if holds else f"!({when})"
    rules = [{"tools": ["*"], "when": condition, "effect": "deny"}]
    record = server("fs", approval_policy={"default": "never", "rules": rules})
    world = World(record, tasks={"job": {"enabled": True, "default_server_ids": ["fs"]}})
    outcome = await world.session(task="job", caller="alice").call("mcp__fs__write", {"text": "x"})
    assert outcome.ok is not holds
    assert len(world.sent) == (0 if holds else 1)


async def test_an_approved_call_runs_and_its_intent_says_so():
    world = World(ASKS, approver=AllowAll())
    succeeded(await world.session().call("mcp__fs__write"))
    assert [intent.approved for intent in world.ledger.intents()] == [True]


async def test_a_call_that_needs_no_approval_asks_nobody():
    approver = FakeApprover()
    fs = server("fs", approval_policy={"default": "never", "per_tool": {"delete": "always"}})
    world = World(fs, approver=approver)
    session = world.session()
    succeeded(await session.call("mcp__fs__read"))
    assert not approver.questions
    assert [intent.approved for intent in world.ledger.intents()] == [False]
    succeeded(await session.call("mcp__fs__delete"))
    assert [question.tool for question in approver.questions] == ["delete"]


async def test_a_call_that_its_conditions_let_through_is_not_written_as_approved():
    rules = [{"tools": ["*"], "when": "args.text == 'ask'", "effect": "require_approval"}]
    approver = FakeApprover()
    fs = server("fs", approval_policy={"default": "never", "rules": rules})
    world = World(fs, approver=approver)
    session = world.session()
    for text in ("go", "ask"):
        succeeded(await session.call("mcp__fs__write", {"text": text}))
    assert [question.arguments["text"] for question in approver.questions] == ["ask"]
    assert [intent.approved for intent in world.ledger.intents()] == [False, True]


@pytest.mark.requirement("approval:approver:callback")
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_function_is_asked_with_everything_and_its_answer_counts(asynchronous: bool):
    questions: list[ApprovalRequest] = []

    def ask(question: ApprovalRequest) -> bool:
        questions.append(question)
        return question.arguments.get("text") == "please"

    async def ask_later(question: ApprovalRequest) -> bool:
        return ask(question)

    world = World(
        ASKS,
        approver=AskFunction(ask_later if asynchronous else ask),
        tasks={"job": {"enabled": True, "default_server_ids": ["fs"]}},
    )
    session = world.session(task="job", caller="alice")
    outcome = succeeded(await session.call("mcp__fs__write", {"text": "please"}))
    failed(await session.call("mcp__fs__write", {"text": "now"}), "mcp_approval_denied")
    assert len(world.sent) == 1
    [tool] = [tool for tool in await session.tools() if tool.name == "write"]
    assert len(questions[0].policy_digest) == 64
    assert questions[0] == ApprovalRequest(
        request_id=outcome.request_id,
        session_id=session.session_id,
        caller="alice",
        task_id="job",
        server="fs",
        tool="write",
        arguments={"text": "please"},
        arguments_digest=hmac.digest(DIGEST_KEY, b'{"text":"please"}', "sha256").hex(),
        definition_digest=tool.digest,
        revision=1,
        rule="approval_policy is 'always'",
        policy_digest=questions[0].policy_digest,
        payload=b'{"text":"please"}',
        definition=tool.definition,
    )


async def test_whoever_is_asked_sees_the_condition_of_the_rule():
    rules = [{"tools": ["*"], "when": "args.text == 'ask'", "effect": "require_approval"}]
    approver = FakeApprover()
    fs = server("fs", approval_policy={"default": "never", "rules": rules})
    world = World(fs, approver=approver)
    succeeded(await world.session().call("mcp__fs__write", {"text": "ask"}))
    [question] = approver.questions
    assert question.rule == "approval_policy.rules[0]: args.text == 'ask'"


@pytest.mark.parametrize("record", [ASKS, server("fs")], ids=["asks", "does not ask"])
async def test_a_misspelt_word_for_how_to_ask_is_refused_and_nothing_is_sent(record: ServerRecord):
    world = World(record, approver=AllowAll())
    misspelt: Any = "retrun"
    with pytest.raises(ValueError, match="'retrun' is not one of: wait, return"):
        await world.session().call("mcp__fs__write", {"text": "x"}, approval=misspelt)
    assert not world.sent


async def later(answer: Any) -> Any:
    return answer


@pytest.mark.parametrize("answer", [1, "yes", None, [True]])
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_anything_but_true_is_no(answer: Any, asynchronous: bool):
    def ask(question: ApprovalRequest) -> bool | Awaitable[bool]:
        del question
        return later(answer) if asynchronous else answer

    world = World(ASKS, approver=AskFunction(ask))
    failed(await world.session().call("mcp__fs__write"), "mcp_approval_denied")
    assert not world.sent


@pytest.mark.requirement("call:every-exit-written")
async def test_an_approver_that_breaks_lets_nothing_through():
    def ask(question: ApprovalRequest) -> bool:
        raise RuntimeError(question.tool)

    world = World(ASKS, approver=AskFunction(ask))
    with pytest.raises(RuntimeError):
        await world.session().call("mcp__fs__write")
    assert not world.sent
    assert len(world.ledger.calls()) == 1


@pytest.mark.parametrize("approver", [None, AllowAll()])
async def test_a_rule_that_denies_is_a_denial_nobody_can_approve(approver: AllowAll | None):
    rules = [{"tools": ["write"], "when": "args.text == 'x'", "effect": "deny"}]
    world = World(
        server("fs", approval_policy={"default": "never", "rules": rules}), approver=approver
    )
    session = world.session()
    outcome = failed(await session.call("mcp__fs__write", {"text": "x"}), "mcp_policy_denied")
    details = outcome.error.details or {}
    assert details["decision"]["reason"] == "rule_denied"
    assert details["decision"]["rule"] == "approval_policy.rules[0]"
    assert world.ledger.last.reason == "rule_denied"
    assert not world.sent
    succeeded(await session.call("mcp__fs__write", {"text": "y"}))


async def during_the_wait(
    world: World, approver: FakeApprover, change: Callable[[Session], Any]
) -> Outcome:
    """Call, and let something change while the approver thinks."""
    approver.think()
    session = world.session()
    call = asyncio.create_task(session.call("mcp__fs__write", {"text": "x"}))
    async with asyncio.timeout(SOON_SECONDS):
        await approver.asked.wait()
        change(session)
        approver.decided.set()
        return await call


@pytest.mark.requirement("approval:decide-again")
async def test_a_tool_forbidden_during_the_wait_does_not_run():
    approver = FakeApprover()
    world = World(ASKS, approver=approver)
    outcome = await during_the_wait(
        world, approver, lambda _: world.apply(platform={"tool_denylist": ["write"]})
    )
    details = failed(outcome, "mcp_policy_denied").error.details or {}
    assert details["decision"]["reason"] == "platform_denied"
    assert not world.sent


@pytest.mark.requirement("approval:decide-again")
async def test_a_server_removed_during_the_wait_is_not_called():
    approver = FakeApprover()
    world = World(ASKS, approver=approver)
    outcome = await during_the_wait(world, approver, lambda _: world.apply(server("other")))
    failed(outcome, "mcp_policy_denied")
    assert not world.sent


@pytest.mark.requirement("approval:decide-again")
async def test_a_rule_added_during_the_wait_denies_the_call():
    approver = FakeApprover()
    world = World(ASKS, approver=approver)
    rules = [{"tools": ["write"], "when": "args.text == 'x'", "effect": "deny"}]
    outcome = await during_the_wait(
        world, approver, lambda _: world.apply(platform={"rules": rules})
    )
    details = failed(outcome, "mcp_policy_denied").error.details or {}
    assert details["decision"]["reason"] == "rule_denied"
    assert not world.sent


@pytest.mark.requirement("approval:decide-again")
async def test_a_tool_that_became_another_during_the_wait_does_not_run():
    approver = FakeApprover()
    world = World(ASKS, approver=approver)
    outcome = await during_the_wait(
        world,
        approver,
        lambda _: world.caller.offers(ASKS, definition("write", description="Formats the disk.")),
    )
    failed(outcome, "mcp_approval_denied")
    assert not world.sent


@pytest.mark.requirement("approval:decide-again")
async def test_a_tool_gone_during_the_wait_does_not_run():
    approver = FakeApprover()
    world = World(ASKS, approver=approver)
    outcome = await during_the_wait(world, approver, lambda _: world.caller.offers(ASKS, "read"))
    failed(outcome, "mcp_policy_denied")
    assert not world.sent


@pytest.mark.requirement("approval:decide-again")
async def test_a_session_closed_during_the_wait_sends_nothing():
    approver = FakeApprover()
    approver.think()
    world = World(ASKS, approver=approver)
    session = world.session()
    call = asyncio.create_task(session.call("mcp__fs__write"))
    async with asyncio.timeout(SOON_SECONDS):
        await approver.asked.wait()
        await session.close()
        approver.decided.set()
        failed(await call, "mcp_unavailable")
    assert not world.sent


@pytest.mark.requirement("approval:decide-again", "audit:revision")
async def test_a_change_that_still_allows_the_call_is_the_revision_it_carries():
    approver = FakeApprover()
    world = World(ASKS, approver=approver)
    outcome = await during_the_wait(world, approver, lambda _: world.apply())
    assert succeeded(outcome).revision == 2
    assert world.ledger.intents()[0].revision == world.ledger.last.revision == 2
