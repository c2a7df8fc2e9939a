"""What a guest sets: its own parameters go through, and nothing that it may not have does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bascule.doors.hostcalls.abi import Errno, Fault
from bascule.doors.hostcalls.parameters import ChatParameters, narrowed
from bascule.loop.budgets import LoopSettings
from bascule.model.session import SessionRequest
from bascule.node.bridge.opening import Opening
from tests.doors.hostcalls import hosts as places
from tests.doors.hostcalls.hosts import Hosts
from tests.doors.hostcalls.talks import ARENA, AUTO, SAYS_42, Talk, Talked, table
from tests.loop.fakes import FakeUpstream, asks, call, says
from tests.loop.talking import error_of, results
from tests.node.fakes import World, text

hosts = places.hosts


async def run(talk: Talk, hosts: Hosts, upstream: FakeUpstream, **options: Any) -> Talked:
    """Run a guest of a task."""
    request = options.pop("request", SessionRequest())
    fields = hosts.fields(options.pop("task", "writer"), request=request)
    return await talk.run(upstream, **fields, **options)


def offered(upstream: FakeUpstream) -> list[str]:
    return [one["function"]["name"] for one in upstream.asked[-1].get("tools", [])]


@pytest.mark.requirement("hostcalls:set-param")
async def test_what_is_not_ours_goes_upstream_as_it_is_and_the_rest_never_does():
    talk = Talk()
    session = talk.create()
    forwarded = {"temperature": 0.25, "seed": None, "metadata": {"a": [1]}}
    kept = {
        "backend": "",
        "timeout_ms": 5000,
        "messages": [{"role": "user", "content": "another"}],
        "tools": [{"type": "function", "function": {"name": "mine"}}],
        "stream": True,
        "tool_arena_ptr": ARENA,
        "tool_arena_len": 4096,
        "max_tool_output_bytes": 99,
        "max_total_tool_calls": 3,
        "max_tool_calls": 3,
        "max_iterations": 3,
        "mcp.enabled": False,
        "mcp.server_ids": [],
        "mcp.tool_allowlist": ["read*"],
        "mcp.tool_denylist": ["write"],
        "mcp.read_only": True,
    }
    calls = [talk.set(session, key, value) for key, value in {**forwarded, **kept}.items()]
    talk.say(session, "hello")
    talk.send(session, AUTO)
    upstream = FakeUpstream(says("hi"))
    talked = await talk.run(upstream)
    assert {talked.answer(one) for one in calls} == {0}
    said = [{"role": "user", "content": "hello"}]
    assert upstream.asked == [{**forwarded, "model": "m", "messages": said, "stream": False}]


async def test_tool_choice_is_the_guest_s_to_say():
    talk = Talk()
    session = talk.create(tool_choice="required", parallel_tool_calls=False)
    talk.tool(session)
    talk.say(session, "hello")
    talk.send(session)
    upstream = FakeUpstream(says("hi"))
    await talk.run(upstream)
    [asked] = upstream.asked
    assert (asked["tool_choice"], asked["parallel_tool_calls"]) == ("required", False)


@pytest.mark.parametrize(
    ("argument", "errno"),
    [
        ("{", Errno.EIO),
        ("[]", Errno.EIO),
        ("{}", Errno.EIO),
        ('{"key":"","value":1}', Errno.EIO),
        ('{"key":1,"value":1}', Errno.EIO),
        (b'{"key":"\xff","value":1}', Errno.EIO),
        ('{"key":"model","value":1}', Errno.EINVAL),
        ('{"key":"model"}', Errno.EINVAL),
        ('{"key":"backend","value":null}', Errno.EINVAL),
        ('{"key":"timeout_ms","value":0}', Errno.EINVAL),
        ('{"key":"timeout_ms","value":"1"}', Errno.EINVAL),
        ('{"key":"max_iterations","value":-1}', Errno.EINVAL),
        ('{"key":"max_iterations","value":true}', Errno.EINVAL),
        ('{"key":"max_total_tool_calls","value":1.5}', Errno.EINVAL),
        ('{"key":"max_tool_output_bytes","value":0}', Errno.EINVAL),
        ('{"key":"tool_arena_ptr","value":"0"}', Errno.EINVAL),
        ('{"key":"mcp.enabled","value":"true"}', Errno.EINVAL),
        ('{"key":"mcp.enabled","value":null}', Errno.EINVAL),
        ('{"key":"mcp.server_ids","value":"fs"}', Errno.EINVAL),
        ('{"key":"mcp.server_ids","value":[1]}', Errno.EINVAL),
        ('{"key":"mcp.tool_denylist","value":[null]}', Errno.EINVAL),
        ('{"key":"mcp.tool_allowlist","value":{}}', Errno.EINVAL),
        ('{"key":"mcp.tool_denylst","value":["x"]}', Errno.EINVAL),
        ('{"key":"MCP.enabled","value":false}', Errno.EINVAL),
        ('{"key":"mcp","value":{}}', Errno.EINVAL),
        ('{"key":"mcp.task_tool_allowlist","value":[]}', Errno.EACCES),
        ('{"key":"mcp.task_x","value":1}', Errno.EACCES),
    ],
)
@pytest.mark.requirement("hostcalls:task-params-read-only")
async def test_a_parameter_that_is_refused_changes_nothing(argument: str | bytes, errno: Errno):
    talk = Talk()
    session = talk.create(model="kept")
    set_ = talk.control(session, argument)
    talk.say(session, "hello")
    talk.receive(talk.send(session))
    talked = await talk.run(FakeUpstream(says("hi")))
    assert talked.answer(set_) == -errno
    assert talked.body["_spear"]["model"] == "kept"


async def test_a_response_takes_parameters_and_does_nothing_with_them():
    talk = Talk()
    session = talk.create()
    talk.say(session, "hello")
    response = talk.send(session)
    nothing = talk.set(response, "model", 7)
    task = talk.set(response, "mcp.task_x", 7)
    unknown = talk.call("cchat_ctl", session, 9, 64, 64)
    talked = await talk.run(FakeUpstream(says("hi")))
    assert talked.answer(nothing) == 0
    assert talked.answer(task) == -Errno.EACCES
    assert talked.answer(unknown) == -Errno.EINVAL


@pytest.mark.requirement("hostcalls:task-defaults")
async def test_a_session_begins_with_its_task_s_servers_and_narrows_them(hosts: Hosts):
    talk = Talk()
    session = talk.create()
    talk.say(session, "hello")
    talk.send(session, AUTO)
    upstream = FakeUpstream(says("hi"))
    await run(talk, hosts, upstream)
    assert offered(upstream) == ["mcp__fs__delete", "mcp__fs__read", "mcp__fs__write"]
    for key, value, expected in (
        ("mcp.tool_allowlist", ["read", "write"], ["mcp__fs__read", "mcp__fs__write"]),
        ("mcp.tool_denylist", ["write"], ["mcp__fs__read"]),
        ("mcp.server_ids", ["", "fs"], ["mcp__fs__read"]),
        ("mcp.server_ids", [], []),
        ("mcp.server_ids", ["spare"], ["mcp__spare__read"]),
        ("mcp.enabled", True, ["mcp__spare__read"]),
        ("mcp.enabled", False, []),
    ):
        set_ = talk.set(session, key, value)
        talk.send(session, AUTO)
        talked = await run(talk, hosts, upstream)
        assert talked.answer(set_) == 0
        assert offered(upstream) == expected


@pytest.mark.requirement("hostcalls:outside-task")
@pytest.mark.parametrize(
    ("task", "request_", "key", "value"),
    [
        ("writer", {}, "mcp.server_ids", ["fs", "other"]),
        ("reader", {}, "mcp.server_ids", ["spare"]),
        ("off", {}, "mcp.enabled", True),
        ("writer", {"server_ids": ("fs",)}, "mcp.server_ids", ["spare"]),
        ("writer", {"enabled": False}, "mcp.enabled", True),
    ],
)
async def test_what_is_outside_the_task_is_refused_at_once(
    hosts: Hosts, task: str, request_: dict[str, Any], key: str, value: Any
):
    talk = Talk()
    session = talk.create()
    wider = talk.set(session, key, value)
    talk.say(session, "hello")
    talk.send(session, AUTO)
    upstream = FakeUpstream(says("hi"))
    talked = await run(talk, hosts, upstream, task=task, request=SessionRequest(**request_))
    assert talked.answer(wider) == -Errno.EACCES
    assert not {name for name in offered(upstream) if "other" in name or "spare" in name}


@pytest.mark.requirement("hostcalls:narrow-only")
async def test_a_tool_list_of_the_guest_never_widens_its_task_s(hosts: Hosts):
    talk = Talk()
    session = talk.create(**{"mcp.tool_allowlist": ["*"]})
    talk.say(session, "hello")
    talk.send(session, AUTO)
    upstream = FakeUpstream(says("hi"))
    await run(talk, hosts, upstream, task="reader")
    assert offered(upstream) == ["mcp__fs__read"]


async def test_without_a_bridge_mcp_is_off_and_chat_works():
    talk = Talk()
    session = talk.create()
    refused = [talk.set(session, "mcp.enabled", True), talk.set(session, "mcp.server_ids", ["fs"])]
    allowed = [talk.set(session, "mcp.enabled", False), talk.set(session, "mcp.server_ids", [])]
    talk.say(session, "hello")
    talk.receive(talk.send(session, AUTO))
    talked = await talk.run(FakeUpstream(asks(call("mcp__fs__read")), says("hi")))
    assert [talked.answer(one) for one in refused] == [-Errno.EACCES] * 2
    assert [talked.answer(one) for one in allowed] == [0, 0]
    assert talked.body["choices"][0]["message"]["content"] == "hi"


@pytest.mark.requirement("hostcalls:narrow-only")
async def test_budgets_only_lower():
    settings = LoopSettings(max_iterations=4, max_total_tool_calls=5, max_seconds=10)
    wide = ChatParameters()
    for key in ("max_iterations", "max_total_tool_calls", "timeout_ms"):
        wide = wide.having(key, 1_000_000)
    assert wide.applied(settings) == settings
    low = ChatParameters().having("max_iterations", 2).having("max_tool_calls", 1)
    low = low.having("timeout_ms", 1500).applied(settings)
    assert (low.max_iterations, low.max_total_tool_calls, low.max_seconds) == (2, 1, 1.5)
    both = ChatParameters().having("max_total_tool_calls", 3).having("max_tool_calls", 1)
    assert both.applied(settings).max_total_tool_calls == 3


@pytest.mark.requirement("hostcalls:narrow-only")
async def test_the_task_s_budgets_bound_a_conversation():
    policy = {"enabled": True, "default_server_ids": ["fs"], "max_total_tool_calls": 1}
    core: Any = World(tasks={"short": policy}).core
    talk = Talk()
    session = talk.create(max_total_tool_calls=9)
    talk.say(session, "hello")
    talk.receive(talk.send(session, AUTO))
    calls = (call("mcp__fs__read", {}, "c1"), call("mcp__fs__write", {}, "c2"))
    upstream = FakeUpstream(asks(*calls), says("one"))
    talked = await talk.run(upstream, bridge=core, opening=Opening(task="short"))
    assert talked.body["error"]["message"] == "exceeded max_total_tool_calls"
    assert talked.body["bascule"]["budgets"]["tool_calls"] == {"used": 1, "limit": 1}


async def test_outputs_are_clamped():
    wide = ChatParameters().having("max_tool_output_bytes", 1 << 40)
    assert (wide.guest_output, wide.narrowing.max_tool_output_bytes) == (1 << 20, 10 << 20)
    assert ChatParameters().guest_output == 65_536
    own = wide.having("mcp.max_tool_output_bytes", 7)
    assert own.narrowing.max_tool_output_bytes == 7


def test_a_list_that_is_too_long_is_refused():
    with pytest.raises(Fault) as refused:
        narrowed(SessionRequest(), "mcp.tool_denylist", ["x"] * 1025)
    assert refused.value.errno == Errno.EINVAL


async def test_a_tool_named_like_one_of_the_task_is_refused(hosts: Hosts):
    talk = Talk()
    session = talk.create(tool_arena_ptr=ARENA, tool_arena_len=4096)
    talk.tool(session, 1, {"name": "mcp__fs__read"})
    talk.say(session, "hello")
    refused = [talk.send(session, AUTO), talk.send(session)]
    upstream = FakeUpstream(says("hi"))
    talked = await run(talk, hosts, upstream, more=SAYS_42 + table("$sum"))
    assert {talked.answer(one) for one in refused} == {-Errno.EEXIST}
    assert upstream.asked == []
    assert talked.ran.exit.reason == "exited"


async def test_a_call_that_needs_approval_is_told_to_the_model_when_nobody_comes(hosts: Hosts):
    hosts.caller.answers("delete", text("gone"))
    talk = Talk()
    session = talk.create()
    talk.say(session, "hello")
    talk.receive(talk.send(session, AUTO))
    upstream = FakeUpstream(asks(call("mcp__fs__delete")), says("not yet"))
    settings = LoopSettings(approval_wait_seconds=0)
    talked = await run(talk, hosts, upstream, settings=settings)
    assert error_of(results(upstream)[0]) == "mcp_approval_required"
    assert talked.body["choices"][0]["message"]["content"] == "not yet"
    assert talked.body["bascule"]["paused"] is None
    assert hosts.caller.sent == []


async def test_results_are_json_to_the_model(hosts: Hosts):
    hosts.caller.answers("read", text("the file"))
    talk = Talk()
    session = talk.create()
    talk.say(session, "hello")
    talk.send(session, AUTO)
    upstream = FakeUpstream(asks(call("mcp__fs__read")), says("read"))
    await run(talk, hosts, upstream)
    [result] = results(upstream)
    assert json.loads(result["content"]) == {"content": [{"type": "text", "text": "the file"}]}
