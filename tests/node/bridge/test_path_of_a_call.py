"""The path of a call: the order of its steps, and what each failure looks like."""

from __future__ import annotations

import asyncio
import hmac
from types import MappingProxyType
from typing import Any

import pytest

from bascule.errors import (
    BasculeError,
    DeadlineExceeded,
    LaunchDenied,
    MalformedReply,
    NotDelivered,
    OutcomeUnknown,
    RemoteError,
    ServerUnavailable,
)
from bascule.model.call import Progress
from bascule.model.session import SessionLimits
from tests.node.fakes import (
    DIGEST_KEY,
    FakeApprover,
    Sent,
    World,
    definition,
    failed,
    succeeded,
    text,
)
from tests.policy.build import server
from tests.waits import SOON_SECONDS

ALWAYS = {"default": "always"}


@pytest.mark.requirement("call:every-exit-written")
async def test_a_call_is_written_before_it_leaves_and_after_it_ends():
    world = World()
    succeeded(await world.session().call("mcp__fs__read", {"text": "a"}))
    assert world.caller.trace == ["intent", "send", "ok"]


@pytest.mark.requirement(
    "call:decide-before-validate", "outcomes:policy-denied", "budgets:denied-burns-nothing"
)
async def test_a_denied_call_is_neither_validated_nor_asked_about_nor_counted():
    approver = FakeApprover()
    fs = server("fs", allowed_tools=["read"], approval_policy=ALWAYS)
    world = World(fs, approver=approver)
    session = world.session(limits=SessionLimits(max_total_tool_calls=1))
    await session.tools()
    outcome = failed(await session.call("mcp__fs__write", {"text": 7}), "mcp_policy_denied")
    details = outcome.error.details or {}
    assert details["decision"]["reason"] == "not_in_allowed_tools"
    assert details["decision"]["layer"] == "platform"
    assert not world.sent
    assert not approver.questions
    assert world.caller.trace == ["denied"]
    succeeded(await session.call("mcp__fs__read"))


@pytest.mark.requirement("call:decide-before-validate")
@pytest.mark.parametrize("name", ["mcp__fs__write", "mcp.fs.write", "fs/write", "mcp__other__read"])
async def test_a_call_that_policy_vetoes_touches_no_server(name: str):
    world = World(server("fs"), server("other"))
    session = world.session("fs", tool_denylist=["write"])
    failed(await session.call(name), "mcp_policy_denied")
    assert not world.caller.listed


@pytest.mark.requirement("call:decide-before-validate", "names:unknown:told")
async def test_a_name_that_no_pattern_covers_is_told_from_one_that_does_not_exist():
    world = World(server("fs", allowed_tools=["read"]))
    failed(await world.session().call("fs/write", {"count": "many"}), "mcp_policy_denied")
    outcome = failed(await world.session().call("fs/raed"), "mcp_invalid_arguments")
    details = outcome.error.details or {}
    assert (details["reason"], details["did_you_mean"]) == ("unknown_tool", ["mcp__fs__read"])
    assert "did you mean mcp__fs__read?" in outcome.error.message
    assert not world.sent


async def test_a_name_with_a_hash_is_looked_up_before_it_is_judged():
    fs = server("fs", allowed_tools=["read file"])
    world = World(fs)
    world.caller.offers(fs, "read file")
    [tool] = await world.session().tools()
    fresh = world.session()
    succeeded(await fresh.call(tool.model_name))
    assert [sent.tool for sent in world.sent] == ["read file"]


@pytest.mark.requirement("call:validate-before-send", "outcomes:invalid-arguments")
async def test_invalid_arguments_never_leave_and_nobody_is_asked_about_them():
    approver = FakeApprover()
    world = World(server("fs", approval_policy=ALWAYS), approver=approver)
    session = world.session(limits=SessionLimits(max_total_tool_calls=1))
    outcome = failed(await session.call("mcp__fs__read", {"count": "x"}), "mcp_invalid_arguments")
    assert "arguments.count" in outcome.error.message
    assert not world.sent
    assert not approver.questions
    assert world.caller.trace == ["failed"]
    assert session.budget.calls == session.budget.reserved == 0


@pytest.mark.requirement("wire:arguments-object")
@pytest.mark.parametrize(
    "arguments",
    [["a"], "text", {"text": float("nan")}, {"text": "\ud800"}, {7: "text"}, {"x": object()}],
    ids=["list", "string", "nan", "surrogate", "number-key", "object"],
)
async def test_arguments_that_are_no_json_object_never_leave(arguments: Any):
    world = World()
    outcome = failed(
        await world.session().call("mcp__fs__read", arguments), "mcp_invalid_arguments"
    )
    assert outcome.error.message
    assert not world.sent


async def test_no_arguments_are_an_empty_object_and_any_mapping_will_do():
    world = World()
    session = world.session()
    succeeded(await session.call("mcp__fs__read"))
    succeeded(await session.call("mcp__fs__read", MappingProxyType({"text": "a"})))
    assert [sent.payload for sent in world.sent] == [b"{}", b'{"text":"a"}']


@pytest.mark.requirement("call:arguments-bytes")
async def test_what_was_decided_on_and_digested_is_what_is_sent():
    arguments = {"text": "before"}
    approver = FakeApprover()
    approver.think()
    world = World(server("fs", approval_policy=ALWAYS), approver=approver)
    call = asyncio.create_task(world.session().call("mcp__fs__read", arguments))
    async with asyncio.timeout(SOON_SECONDS):
        await approver.asked.wait()
        arguments["text"] = "after"
        approver.decided.set()
        succeeded(await call)
    [sent] = world.sent
    assert sent.payload == b'{"text":"before"}'
    digest = hmac.digest(DIGEST_KEY, sent.payload, "sha256").hex()
    assert approver.questions[0].arguments_digest == digest
    assert world.ledger.intents()[0].arguments_digest == digest
    assert world.ledger.last.arguments_digest == digest


@pytest.mark.requirement("call:once")
async def test_a_call_is_sent_once_whatever_comes_of_it():
    world = World()
    session = world.session()
    for error in (OutcomeUnknown("lost"), NotDelivered("unsent"), DeadlineExceeded("late")):
        world.caller.answers("read", error)
        assert not (await session.call("mcp__fs__read")).ok
    assert len(world.sent) == 3


@pytest.mark.requirement("call:once:resend-idempotent")
async def test_only_a_tool_the_record_calls_harmless_may_be_sent_again():
    fs = server("fs", effects={"read": ["read"], "idempotent": ["write"]})
    world = World(fs)
    hinted = definition("delete", annotations={"readOnlyHint": True, "idempotentHint": True})
    world.caller.offers(fs, "read", "write", hinted)
    session = world.session()
    for name in ("read", "write", "delete"):
        await session.call(f"mcp__fs__{name}")
    assert [(sent.tool, sent.again) for sent in world.sent] == [
        ("read", True),
        ("write", True),
        ("delete", False),
    ]


@pytest.mark.requirement("call:resolve-exact")
@pytest.mark.parametrize(
    "name", ["mcp__fs__read", "mcp.fs.read", "fs/read", "fs.read", "read", "files.read"]
)
async def test_every_accepted_spelling_reaches_the_same_tool(name: str):
    world = World(server("fs", tool_namespace="files" if name.startswith("files") else "mcp.fs"))
    succeeded(await world.session().call(name))
    assert [(sent.server, sent.tool) for sent in world.sent] == [("fs", "read")]


@pytest.mark.requirement("call:resolve-exact", "security:registered-only")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("mcp__git__read", "unknown_tool"),
        ("git/read", "unknown_tool"),
        ("mcp__fs__rename", "unknown_tool"),
        ("mcp__fs__read__", "unknown_tool"),
        ("mcp__fs__READ", "unknown_tool"),
        ("fs__read", "unknown_tool"),
        ("mcp_fs_read", "unknown_tool"),
        ("raed", "unknown_tool"),
        ("other/read", "not_requested"),
        ("fs/../other/read", "unknown_tool"),
        ("", "unknown_tool"),
    ],
)
async def test_a_made_up_name_reaches_nothing_and_says_why(name: str, reason: str):
    world = World(server("fs"), server("other"))
    session = world.session("fs")
    await session.tools()
    code = "mcp_invalid_arguments" if reason == "unknown_tool" else "mcp_policy_denied"
    outcome = failed(await session.call(name, {}), code)
    details = outcome.error.details or {}
    assert details["decision"]["reason"] == reason
    assert not world.sent
    assert world.ledger.last.reason == reason


@pytest.mark.requirement("call:resolve-exact")
async def test_a_tool_whose_own_name_looks_like_another_server_stays_where_it_is():
    fs, other = server("fs"), server("other")
    world = World(fs, other)
    world.caller.offers(fs, "other__read", "../other/read")
    session = world.session()
    for tool in await session.tools():
        if tool.server_id == "fs":
            succeeded(await session.call(tool.model_name))
    assert {sent.server for sent in world.sent} == {"fs"}


@pytest.mark.requirement("outcomes:unavailable", "outcomes:timeout", "outcomes:unknown")
@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        (ServerUnavailable("down"), "mcp_unavailable", True),
        (NotDelivered("unsent"), "mcp_unavailable", True),
        (LaunchDenied("not here"), "mcp_unavailable", False),
        (DeadlineExceeded("late"), "mcp_timeout", False),
        (OutcomeUnknown("lost"), "mcp_outcome_unknown", False),
        (RemoteError(-32603, "broken"), "mcp_tool_error", False),
        (RemoteError(-32602, "bad"), "mcp_invalid_arguments", False),
        (MalformedReply("garbled"), "mcp_tool_error", False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BasculeError) else "",
)
async def test_each_failure_of_a_server_has_its_code(
    error: BasculeError, code: str, retryable: bool
):
    world = World()
    world.caller.answers("read", error)
    outcome = failed(await world.session().call("mcp__fs__read"), code)
    assert outcome.error.retryable is retryable
    assert outcome.error.message
    assert world.ledger.last.code == code


async def test_a_timeout_may_be_tried_again_only_where_repeating_does_no_harm():
    world = World(server("fs", effects={"idempotent": ["read"]}))
    world.caller.answers("read", DeadlineExceeded("late"))
    outcome = failed(await world.session().call("mcp__fs__read"), "mcp_timeout")
    assert outcome.error.retryable


@pytest.mark.requirement("outcomes:tool-error", "bridge:outcome:unwrap")
async def test_a_failure_the_tool_reports_carries_the_tools_own_text():
    world = World()
    world.caller.answers("read", text("no such file", isError=True))
    outcome = failed(await world.session().call("mcp__fs__read"), "mcp_tool_error")
    assert outcome.error.message == outcome.text == "no such file"
    assert [block["text"] for block in outcome.content] == ["no such file"]


async def test_a_silent_tool_error_still_says_something():
    world = World()
    world.caller.answers("read", {"content": [], "isError": True})
    outcome = failed(await world.session().call("mcp__fs__read"), "mcp_tool_error")
    assert outcome.error.message


@pytest.mark.requirement("audit:cancelled", "call:every-exit-written")
async def test_a_cancelled_call_is_written_as_such_and_the_caller_stays_cancelled():
    world = World()
    reached = asyncio.Event()

    async def never(sent: Sent) -> dict[str, Any]:
        reached.set()
        return await asyncio.get_running_loop().create_future()

    world.caller.answers("read", never)
    session = world.session()
    call = asyncio.create_task(session.call("mcp__fs__read"))
    async with asyncio.timeout(SOON_SECONDS):
        await reached.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert world.caller.trace == ["intent", "send", "cancelled"]
    assert world.ledger.last.code is None
    world.caller.answers("read", text("again"))
    assert succeeded(await session.call("mcp__fs__read")).text == "again"


@pytest.mark.requirement("call:every-exit-written")
async def test_a_call_cancelled_while_it_waits_for_approval_never_leaves():
    approver = FakeApprover()
    approver.think()
    world = World(server("fs", approval_policy=ALWAYS), approver=approver)
    call = asyncio.create_task(world.session().call("mcp__fs__read"))
    async with asyncio.timeout(SOON_SECONDS):
        await approver.asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert world.caller.trace == ["cancelled"]


@pytest.mark.requirement("call:progress:reported")
async def test_progress_is_told_to_the_caller_in_harmless_words():
    world = World()
    world.caller.hide("s3cret-value")

    async def work(sent: Sent) -> dict[str, Any]:
        assert sent.on_progress is not None
        sent.on_progress(Progress(1, 2))
        sent.on_progress(Progress(2, 2, "\x1b[2Jdone with s3cret-value"))
        return text("done")

    world.caller.answers("read", work)
    heard: list[Progress] = []
    succeeded(await world.session().call("mcp__fs__read", on_progress=heard.append))
    assert heard[0] == Progress(1, 2)
    assert heard[1].progress == 2
    message = heard[1].message or ""
    assert "\x1b" not in message
    assert "s3cret-value" not in message
    assert "done" in message


@pytest.mark.requirement("call:deadline")
@pytest.mark.parametrize("seconds", [0.01, 1e-9])
async def test_the_callers_timeout_bounds_the_wait_for_approval_too(seconds: float):
    approver = FakeApprover()
    approver.think()
    world = World(server("fs", approval_policy=ALWAYS), approver=approver)
    async with asyncio.timeout(SOON_SECONDS):
        outcome = await world.session().call("mcp__fs__read", timeout=seconds)
    failed(outcome, "mcp_approval_required")
    assert not world.sent
    assert world.ledger.last.code == "mcp_approval_required"


@pytest.mark.requirement("call:deadline")
async def test_the_callers_timeout_bounds_the_wait_for_a_list_too():
    world = World()
    world.caller.hold_listing("fs")
    async with asyncio.timeout(SOON_SECONDS):
        outcome = await world.session().call("mcp__fs__read", timeout=0.01)
    failed(outcome, "mcp_timeout")
    assert not world.sent


@pytest.mark.requirement("call:remote-ref")
async def test_arguments_that_cannot_be_checked_by_a_remote_schema_do_not_leave():
    world = World()
    remote = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema"}}}
    world.caller.offers(world.records[0], definition("read", inputSchema=remote))
    assert not (await world.session().call("mcp__fs__read", {"a": 1})).ok
    assert not world.sent


@pytest.mark.requirement("call:schema:defaults")
async def test_a_required_property_with_a_default_may_be_missing_and_is_not_filled_in():
    schema = {
        "type": "object",
        "properties": {"q": {"type": "string"}, "n": {"type": "integer", "default": 10}},
        "required": ["q", "n"],
    }
    world = World()
    world.caller.offers(world.records[0], definition("read", inputSchema=schema))
    session = world.session()
    succeeded(await session.call("mcp__fs__read", {"q": "x"}))
    assert world.sent[0].payload == b'{"q":"x"}'
    failed(await session.call("mcp__fs__read", {"n": 1}), "mcp_invalid_arguments")
