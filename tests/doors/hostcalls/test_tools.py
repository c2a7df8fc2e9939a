"""``mcp_*``: what a guest gets of its task's servers, here and over a connected bridge."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bascule import Bridge, Server
from bascule.doors.hostcalls.abi import IMPORTS, Errno
from bascule.doors.hostcalls.host import GuestLimits
from bascule.errors import ServerUnavailable
from bascule.model.session import SessionLimits
from bascule.model.task import TaskPolicy
from bascule.node.bridge.opening import Opening
from bascule.testing import ScriptedServer
from tests.doors.hostcalls.hosts import TASKS, Hosts, hosts
from tests.doors.hostcalls.running import run_wat
from tests.doors.hostcalls.script import Script, too_short
from tests.doors.hostcalls.wat import call, guest
from tests.node.fakes import TEXT_SCHEMA, Doorman, Sent, definition, failed, succeeded, text
from tests.scale import scaled
from tests.waits import until

__all__ = ["hosts"]
GET_KIND, SET_PARAM = 3, 6


# --- opening and closing


@pytest.mark.requirement(
    "hostcalls:mcp-open",
    "hostcalls:open-starts-nothing",
    "hostcalls:open-unknown",
    "hostcalls:outside-task",
    "hostcalls:by-server-id",
    "hostcalls:errno",
    "security:no-arbitrary-spawn",
)
async def test_a_guest_opens_what_its_task_allows_and_nothing_starts(hosts: Hosts):
    script = Script()
    for server_id in ("fs", "spare", "other", "nosuch", "sh -c true", "", b"\xff"):
        script.open(server_id)
    told = await script.run(**hosts.fields())
    expected = [1000, 1001, -Errno.EACCES, *[-Errno.ENOENT] * 3, -Errno.EILSEQ]
    assert told.answers == expected
    assert hosts.caller.listed == []
    assert hosts.caller.trace == []


@pytest.mark.parametrize("task", ["off", None])
async def test_where_mcp_is_off_nothing_can_be_opened(hosts: Hosts, task: str | None):
    script = Script()
    script.open("fs")
    script.open("nosuch")
    told = await script.run(**({} if task is None else hosts.fields(task)))
    assert told.answers == [-Errno.EACCES] * 2


@pytest.mark.requirement("hostcalls:mcp-close")
async def test_a_closed_handle_is_gone(hosts: Hosts):
    script = Script()
    fd = script.open("fs")
    script.call(fd, "read")
    script.make("mcp_close", fd)
    script.make("mcp_close", fd)
    script.list(fd)
    again = script.open("fs")
    script.call(again, "read")
    told = await script.run(**hosts.fields())
    assert told.answers[2:6] == [0, -Errno.EBADF, -Errno.EBADF, 1001]
    assert told.json(6)["content"]
    assert len(hosts.caller.sent) == 2


@pytest.mark.requirement("hostcalls:close-keeps-pool", "hostcalls:open-reuses")
async def test_a_server_that_is_closed_and_opened_again_is_started_once(tmp_path: Path):
    journal = tmp_path / "journal"
    command, args = ScriptedServer(behaviours={"echo": "echo"}, journal=journal).command
    script = Script()
    first = script.open("fs")
    script.call(first, "echo", '{"text": "one"}')
    script.make("mcp_close", first)
    script.call(script.open("fs"), "echo", '{"text": "two"}')
    async with Bridge.open([Server.stdio("fs", command, *args)]) as bridge:
        opening = Opening(task=TaskPolicy(enabled=True, default_server_ids=("fs",)))
        told = await script.run(bridge=bridge, opening=opening)
    assert [told.json(place)["content"][0]["text"] for place in (1, 4)] == ["one", "two"]
    methods = [json.loads(line).get("method") for line in journal.read_bytes().splitlines()]
    assert methods.count("server/discover") == 1
    assert methods.count("tools/call") == 2


@pytest.mark.requirement("hostcalls:fd-kind")
async def test_a_handle_has_a_kind_and_is_refused_where_another_is_due(hosts: Hosts):
    script = Script()
    fd = script.open("fs")
    script.control(fd, GET_KIND)
    script.make("cchat_close", fd)
    script.make("spear_epoll_wait", fd, 16_384, 16, 0)
    epoll = script.make("spear_epoll_create")
    script.list(epoll)
    script.call(epoll, "read")
    script.make("mcp_close", epoll)
    script.make("mcp_close", 7)
    told = await script.run(**hosts.fields())
    assert told.json(1) == {"kind": "McpSession"}
    wrong = [-Errno.EBADF] * 2
    assert told.answers[2:4] == wrong
    assert told.answers[5:] == [*wrong, *wrong]
    assert hosts.caller.sent == []


# --- listing


@pytest.mark.requirement("hostcalls:mcp-list-tools", "hostcalls:list-schema")
async def test_the_list_has_native_names_after_policy_and_of_that_server_alone(hosts: Hosts):
    script = Script()
    script.list(script.open("fs"))
    told = await script.run(**hosts.fields("reader"))
    assert told.json(1) == {
        "server_id": "fs",
        "tools": [
            {"name": "read", "description": "The read tool.", "inputSchema": TEXT_SCHEMA},
        ],
    }
    assert set(hosts.caller.listed) == {"fs"}


async def test_a_server_that_is_allowed_but_no_default_lists_and_runs(hosts: Hosts):
    script = Script()
    fd = script.open("spare")
    script.list(fd)
    script.call(fd, "write")
    told = await script.run(**hosts.fields())
    assert [tool["name"] for tool in told.json(1)["tools"]] == ["delete", "read", "write"]
    assert [(sent.server, sent.tool) for sent in hosts.caller.sent] == [("spare", "write")]


@pytest.mark.requirement("hostcalls:errno")
async def test_a_server_that_cannot_list_gives_the_number_of_its_code(hosts: Hosts):
    hosts.caller.fails("fs", ServerUnavailable("it does not start"))
    script = Script()
    script.list(script.open("fs"))
    told = await script.run(**hosts.fields())
    assert told.answers[1] == -Errno.ENOTCONN


# --- calling


@pytest.mark.requirement("hostcalls:mcp-call-tool", "hostcalls:call-output")
async def test_a_call_answers_with_what_the_tool_said(hosts: Hosts):
    hosts.caller.answers("read", text("hello", structuredContent={"n": 1}))
    script = Script()
    script.call(script.open("fs"), "read", '{"text": "x"}')
    told = await script.run(**hosts.fields())
    assert told.json(1) == {
        "content": [{"type": "text", "text": "hello"}],
        "structured": {"n": 1},
        "truncated": None,
    }
    assert told.exit.calls == 1
    assert [json.loads(sent.payload) for sent in hosts.caller.sent] == [{"text": "x"}]


@pytest.mark.requirement("hostcalls:call-output")
async def test_a_result_that_was_cut_says_so_beside_what_is_left(hosts: Hosts):
    hosts.caller.answers("read", text("x" * 3000))
    script = Script()
    fd = script.open("fs")
    script.set(fd, "max_tool_output_bytes", 100)
    script.call(fd, "read")
    told = await script.run(**hosts.fields())
    found = told.json(2)
    assert found["truncated"]["total"] >= 3000
    assert found["content"]
    assert found["error"]["code"] == "mcp_output_too_large"


@pytest.mark.requirement("hostcalls:bad-arguments", "hostcalls:call-output")
@pytest.mark.parametrize("arguments", [b"\xff", "{", "[1]", '{"a":1,"a":2}', '{"text": 7}'])
async def test_bad_arguments_give_a_structured_error_and_run_nothing(
    hosts: Hosts, arguments: str | bytes
):
    script = Script()
    script.call(script.open("fs"), "read", arguments)
    told = await script.run(**hosts.fields())
    error = told.json(1)["error"]
    assert error["code"] == "mcp_invalid_arguments"
    assert error["retryable"] is False
    assert error["message"]
    assert hosts.caller.sent == []
    assert told.exit.calls == 0


async def test_arguments_that_are_very_long_are_not_read(hosts: Hosts):
    """A few megabytes of empty lists would keep the loop busy for seconds."""
    texts = {100: b"fs", 200: b"read", 300: 4096, 400: b"x" * 4097}
    made = ("mcp_call_tool", "$0", 200, 4)
    text = guest(
        call("mcp_open", 100, 2),
        call(*made, 65_536, 1024 * 1024 + 1, 8192, 300),
        call("mcp_call_tool", "$0", 400, 4097, 0, 0, 8192, 300),
        data=texts,
        shown=(8192, 200),
        pages=20,
    )
    ran = await run_wat(text, **hosts.fields())
    assert b'"message":"arguments: 1048577 bytes, more than 1048576"' in ran.stdout
    assert ran.answers[2] == -Errno.EINVAL
    assert hosts.caller.sent == []


async def test_no_arguments_are_an_empty_object(hosts: Hosts):
    script = Script()
    script.call(script.open("fs"), "read", "")
    told = await script.run(**hosts.fields())
    assert "error" not in told.json(1)


@pytest.mark.parametrize(
    ("tool", "code"),
    [
        ("write", "mcp_policy_denied"),
        ("nosuch", "mcp_invalid_arguments"),
        ("", "mcp_invalid_arguments"),
    ],
)
async def test_a_tool_that_may_not_run_gives_a_structured_error(hosts: Hosts, tool: str, code: str):
    script = Script()
    script.call(script.open("fs"), tool)
    told = await script.run(**hosts.fields("reader"))
    assert told.json(1)["error"]["code"] == code
    assert hosts.caller.sent == []


async def test_a_failed_tool_keeps_its_words(hosts: Hosts):
    hosts.caller.answers("read", text("no such file", isError=True))
    script = Script()
    script.call(script.open("fs"), "read")
    found = (await script.run(**hosts.fields())).json(1)
    assert found["error"]["code"] == "mcp_tool_error"
    assert found["content"] == [{"type": "text", "text": "no such file"}]


async def test_a_name_is_never_taken_apart(hosts: Hosts):
    record = hosts.world.records[0]
    names = ("x", "fs/x", "fs__x", "mcp__fs__x", "fs.x", "a/b")
    hosts.caller.offers(record, *(definition(name) for name in names))
    script = Script()
    fd = script.open("fs")
    for name in ("fs/x", "mcp__fs__x", "a/b", "x", "b"):
        script.call(fd, name)
    await script.run(**hosts.fields())
    assert [sent.tool for sent in hosts.caller.sent] == ["fs/x", "mcp__fs__x", "a/b", "x"]


# --- windows and pointers


@pytest.mark.requirement("hostcalls:buffer")
async def test_a_buffer_that_is_too_short_is_told_the_length_and_loses_nothing(hosts: Hosts):
    hosts.caller.answers("read", text("y" * 500))
    script = Script()
    fd = script.open("fs")
    script.call(fd, "read", capacity=10)
    script.call(fd, "read", capacity=20)
    script.call(fd, "read")
    told = await script.run(**hosts.fields())
    assert told.answers[1:3] == [-Errno.ENOSPC] * 2
    assert told.wanted(1) == told.wanted(2) == told.answers[3] == told.wanted(3)
    assert told.json(3)["content"][0]["text"] == "y" * 500
    assert told.exit.calls == 1


@pytest.mark.requirement("hostcalls:once")
async def test_short_buffers_run_a_tool_once_each(hosts: Hosts):
    times = scaled(1000)
    ran = await run_wat(too_short("fs", "read", times), **hosts.fields())
    assert ran.exit.reason == "exited"
    assert len(hosts.caller.sent) == times == ran.exit.calls


async def test_a_parked_result_is_taken_once(hosts: Hosts):
    script = Script()
    fd = script.open("fs")
    script.call(fd, "read", capacity=1)
    script.call(fd, "read")
    script.call(fd, "read")
    await script.run(**hosts.fields())
    assert len(hosts.caller.sent) == 2


async def test_a_parked_result_is_given_no_more_once_its_tool_is_not_allowed(hosts: Hosts):
    script = Script()
    fd = script.open("fs")
    script.call(fd, "read", capacity=1)
    script.call(fd, "read")
    forbids = {**TASKS["writer"], "tool_denylist": ["fs/read"]}

    async def revokes(sent: Sent) -> Any:
        hosts.world.apply(tasks={**TASKS, "writer": forbids})
        return text("kept secret")

    hosts.caller.answers("read", revokes)
    told = await script.run(**hosts.fields())
    assert told.answers[1] == -Errno.ENOSPC
    assert told.json(2)["error"]["code"] == "mcp_policy_denied"
    assert len(hosts.caller.sent) == 1


async def test_a_parked_result_outlives_its_server(hosts: Hosts):
    script = Script()
    fd = script.open("fs")
    script.call(fd, "read", capacity=1)
    script.call(fd, "read")

    async def fails(sent: Sent) -> Any:
        hosts.caller.fails("fs", ServerUnavailable("it is gone"))
        hosts.caller.epoch += 1
        return text("said")

    hosts.caller.answers("read", fails)
    told = await script.run(**hosts.fields())
    assert told.json(2)["content"] == [{"type": "text", "text": "said"}]


@pytest.mark.parametrize("ends", ["_start", "proc_exit"])
async def test_the_sessions_of_a_guest_end_with_it(ends: str):
    hosts = Hosts(is_connected=False)
    script = Script()
    script.call(script.open("fs"), "read")
    if ends == "proc_exit":
        script.make("wasi.proc_exit", 0)
    await run_wat(guest(*script.calls, data=script.data), **hosts.fields())
    [sent] = hosts.caller.sent
    assert sent.session in hosts.caller.released


async def test_another_call_drops_a_parked_result_and_another_handle_does_not(hosts: Hosts):
    script = Script()
    fd, other = script.open("fs"), script.open("fs")
    script.call(fd, "read", capacity=1)
    script.call(other, "write", capacity=1)
    script.call(fd, "read")
    script.call(other, "read")
    script.call(other, "write")
    await script.run(**hosts.fields())
    assert [sent.tool for sent in hosts.caller.sent] == ["read", "write", "read", "write"]


@pytest.mark.requirement("hostcalls:pointers-first")
async def test_a_bad_pointer_never_runs_a_tool(hosts: Hosts):
    script = Script()
    fd = script.open("fs")
    name, length = script.text("read")
    none = script.text("{}")
    out, room = script.window()
    far, before = 70_000, len(script.calls)
    for numbers in (
        (name, length, *none, far, room),
        (name, length, *none, out, far),
        (name, length, *none, out, -2),
        (name, length, far, 2, out, room),
        (name, length, none[0], -1, out, room),
        (far, length, *none, out, room),
        (name, 70_000, *none, out, room),
        (name, -1, *none, out, room),
    ):
        script.make("mcp_call_tool", fd, *numbers)
    told = await script.run(**hosts.fields())
    fault, wrong = -Errno.EFAULT, -Errno.EINVAL
    expected = [fault, fault, fault, fault, wrong, fault, fault, wrong]
    assert told.answers[before:] == expected
    assert hosts.caller.sent == []


async def test_results_that_wait_for_a_guest_are_bounded_before_another_call_leaves(hosts: Hosts):
    hosts.caller.answers("read", text("y" * 40_000))
    script = Script()
    for _ in range(3):
        script.call(script.open("fs"), "read", capacity=1)
    limits = GuestLimits(memory_bytes=65_536)
    told = await script.run(**hosts.fields(limits=limits))
    assert told.answers[1::2] == [-Errno.ENOSPC, -Errno.ENOSPC, -Errno.ENOMEM]
    assert len(hosts.caller.sent) == 2


async def test_a_guest_that_ends_ends_the_call_it_waits_in(hosts: Hosts):
    doorman = Doorman()
    hosts.caller.answers("read", doorman)
    script = Script()
    script.call(script.open("fs"), "read")
    guest = asyncio.create_task(script.run(**hosts.fields()))
    await doorman.next()
    guest.cancel()
    await asyncio.gather(guest, return_exceptions=True)
    await until(lambda: doorman.inside == 0)
    assert len(hosts.caller.sent) == 1


# --- narrowing


@pytest.mark.requirement("hostcalls:task-params-read-only", "hostcalls:handle-params")
async def test_a_parameter_only_narrows(hosts: Hosts):
    script = Script()
    fd = script.open("fs")
    given: dict[str, tuple[Any, int]] = {
        "mcp.tool_denylist": (["write"], 0),
        "mcp.server_ids": (["fs", "spare"], -Errno.EACCES),
        "mcp.task_tool_allowlist": (["*"], -Errno.EACCES),
        "mcp.tool_allowlist": ("read", -Errno.EINVAL),
        "mcp.nosuch": (1, -Errno.EINVAL),
        "timeout_ms": ("soon", -Errno.EINVAL),
        "temperature": (1, -Errno.EINVAL),
        "mcp.enabled": (True, 0),
    }
    for key, (value, _) in given.items():
        script.set(fd, key, value)
    script.list(fd)
    script.call(fd, "write")
    told = await script.run(**hosts.fields())
    assert told.answers[1:9] == [expected for _, expected in given.values()]
    assert [tool["name"] for tool in told.json(9)["tools"]] == ["delete", "read"]
    assert told.json(10)["error"]["code"] == "mcp_policy_denied"


async def test_one_handle_s_parameters_are_not_another_s(hosts: Hosts):
    script = Script()
    narrow, wide = script.open("fs"), script.open("fs")
    script.set(narrow, "mcp.enabled", value=False)
    script.call(narrow, "read")
    script.call(wide, "read")
    told = await script.run(**hosts.fields())
    assert told.json(3)["error"]["code"] == "mcp_policy_denied"
    assert "error" not in told.json(4)


@pytest.mark.parametrize("where", ["handle", "host"])
async def test_a_used_up_budget_is_a_structured_error(hosts: Hosts, where: str):
    script = Script()
    fd = script.open("fs")
    limits: dict[str, Any] = {}
    if where == "handle":
        script.set(fd, "max_total_tool_calls", 1)
    else:
        limits = {"budget": SessionLimits(max_total_tool_calls=1)}
        script.make("time_now_ms")
    script.call(fd, "read")
    script.call(fd if where == "handle" else script.open("fs"), "read", '{"count":1}')
    told = await script.run(**hosts.fields(**limits))
    assert told.json(len(told.answers) - 1)["error"]["code"] == "mcp_budget_exceeded"
    assert len(hosts.caller.sent) == 1


# --- what a guest may know


@pytest.mark.requirement("hostcalls:registry-list", "hostcalls:registry-get")
async def test_a_guest_is_told_of_its_task_s_servers_and_of_no_secret(hosts: Hosts):
    script = Script()
    script.make("mcp_registry_list", *script.window())
    for name in ("fs", "other", "nosuch"):
        script.make("mcp_registry_get", *script.text(name), *script.window())
    told = await script.run(**hosts.fields())
    listed = told.json(0)["servers"]
    assert [(one["server_id"], one["default"]) for one in listed] == [
        ("fs", True),
        ("spare", False),
    ]
    assert listed[0] == told.json(1)
    assert {"display_name": "Files", "transport": "stdio"}.items() <= listed[0].items()
    known = {"server_id", "default", "display_name", "transport", "tags", "state"}
    assert all(set(one) <= known for one in listed)
    assert told.answers[2:] == [-Errno.EACCES, -Errno.ENOENT]
    assert hosts.caller.listed == []


async def test_without_mcp_there_is_no_registry(hosts: Hosts):
    script = Script()
    script.make("mcp_registry_list", *script.window())
    told = await script.run()
    assert told.answers == [-Errno.EACCES]


@pytest.mark.requirement("security:registry-mutation")
def test_nothing_a_guest_can_import_changes_the_registry():
    of_registry = {name for name in IMPORTS if "registry" in name}
    assert of_registry == {"mcp_registry_list", "mcp_registry_get"}
    assert {name for name in IMPORTS if name.startswith("mcp_")} - of_registry == {
        "mcp_open",
        "mcp_list_tools",
        "mcp_call_tool",
        "mcp_close",
    }


# --- one bridge


@pytest.mark.requirement("call:same-answer:guest")
@pytest.mark.parametrize("tool", ["read", "write", "nosuch"])
async def test_a_guest_gets_the_decision_and_the_rows_of_any_caller(hosts: Hosts, tool: str):
    hosts.caller.answers("read", text("hello"))
    session = hosts.world.core.session(task="reader", caller="alice")
    outcome = await session.call(f"fs/{tool}", {"text": "x"})
    script = Script()
    script.call(script.open("fs"), tool, '{"text": "x"}')
    told = (await script.run(**hosts.fields("reader"))).json(1)
    if tool == "read":
        assert told["content"] == list(succeeded(outcome).content)
    else:
        refusal = failed(outcome, told["error"]["code"]).error
        assert told["error"]["message"] == refusal.message
    of_session, of_guest = map(msgspec.structs.asdict, hosts.world.ledger.calls())
    own = {"timestamp", "request_id", "session_id", "token_id", "duration_ms"}
    assert {key for key in of_session if of_session[key] != of_guest[key]} <= own
