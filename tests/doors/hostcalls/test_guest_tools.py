"""Tools of a guest's own: found, run through the arena, and stopped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bascule import Bridge, Server
from bascule.audit.ledger import MemoryLedger
from bascule.doors.hostcalls.host import GuestLimits
from bascule.loop.budgets import LoopSettings
from bascule.model.task import TaskPolicy
from bascule.node.bridge.opening import Opening
from bascule.testing import ScriptedServer, do
from tests.doors.hostcalls.talks import ARENA, AUTO, PAGES, SAYS_42, SUM, Talk, Talked, table
from tests.loop.fakes import FakeUpstream, Step, asks, call, says
from tests.loop.talking import results

SIGNATURE = "(param $args i32) (param $n i32) (param $out i32) (param $len i32) (result i32)"
PROC_EXIT = '(import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))'
ASKED = {"a": 7, "b": 35}


def function(body: str, signature: str = SIGNATURE) -> str:
    return f"(func $sum {signature} {body})"


def answering(text: str | bytes, code: int = 0) -> str:
    """Return a tool that writes something, whatever room it has."""
    data = text.encode() if isinstance(text, str) else text
    written = "".join(f"\\{byte:02x}" for byte in data)
    return f"""(data (i32.const 60000) "{written}")""" + function(
        f"""(memory.copy (local.get $out) (i32.const 60000) (i32.const {len(data)}))
        (i32.store (local.get $len) (i32.const {len(data)})) (i32.const {code})"""
    )


async def converse(
    more: str, *steps: Step, arena: int = 4096, index: int = 1, **options: Any
) -> tuple[Talked, FakeUpstream]:
    """Run a guest whose tool ``sum`` is called once; return what it read and who was asked."""
    talk = Talk()
    own = {"tool_arena_ptr": ARENA, "tool_arena_len": arena, **options.pop("set", {})}
    session = talk.create(**own)
    talk.tool(session, index)
    talk.say(session, "add")
    talk.receive(talk.send(session, AUTO))
    upstream = FakeUpstream(*(steps or (asks(call("sum", ASKED)), says("42"))))
    return await talk.run(upstream, more=more, **options), upstream


def content(upstream: FakeUpstream) -> Any:
    [result] = results(upstream)
    return json.loads(result["content"])


@pytest.mark.requirement("hostcalls:wasm-tools", "hostcalls:cchat:auto-tools")
async def test_a_model_calls_a_tool_of_the_guest():
    talked, upstream = await converse(SAYS_42 + table("$sum"))
    assert content(upstream) == {"sum": 42}
    assert talked.body["choices"][0]["message"]["content"] == "42"
    [made] = talked.body["bascule"]["calls"]
    assert (made["name"], made["server"], made["status"]) == ("sum", "", "ok")
    assert upstream.asked[0]["tools"] == [{"type": "function", "function": SUM}]
    assert talked.ran.exit.calls == 1


@pytest.mark.requirement("hostcalls:wasm-tools:by-name")
async def test_a_tool_without_an_index_is_the_export_of_its_name():
    more = SAYS_42 + '(export "sum" (func $sum))'
    _, upstream = await converse(more, index=-1)
    assert content(upstream) == {"sum": 42}


async def test_a_tool_reads_its_arguments_and_the_byte_after_them_is_nothing():
    echo = function(
        """(memory.copy (local.get $out) (local.get $args) (local.get $n))
        (i32.store8 (i32.add (local.get $out) (local.get $n))
          (i32.add (i32.const 65)
            (i32.load8_u (i32.add (local.get $args) (local.get $n)))))
        (i32.store (local.get $len) (i32.add (local.get $n) (i32.const 1)))
        (i32.const 0)"""
    )
    _, upstream = await converse(echo + table("$sum"))
    assert content(upstream) == {"content": [{"type": "text", "text": '{"a":7,"b":35}A'}]}


NEEDS_100 = function(
    """(if (result i32) (i32.ne (i32.load (local.get $len)) (i32.const 100))
      (then (i32.store (local.get $len) (i32.const 100)) (i32.const -28))
      (else (i32.store8 (local.get $out) (i32.const 0x37))
        (i32.store (local.get $len) (i32.const 1)) (i32.const 0)))"""
)
NEVER_ENOUGH = function("(i32.store (local.get $len) (i32.const 16)) (i32.const -28)")


async def test_a_tool_that_names_the_room_it_needs_is_called_once_more():
    _, upstream = await converse(NEEDS_100 + table("$sum"))
    assert content(upstream) == 7


@pytest.mark.parametrize(
    ("more", "options", "message"),
    [
        (NEEDS_100 + table("$sum"), {"set": {"max_tool_output_bytes": 50}}, "tool rc: -28"),
        (NEVER_ENOUGH + table("$sum"), {}, "tool rc: -28"),
        (SAYS_42 + table("$sum"), {"arena": 24}, "tool rc: -28"),
        (SAYS_42 + table("$sum"), {"arena": 0}, "tool rc: -14"),
        (SAYS_42 + table("$sum"), {"set": {"tool_arena_ptr": -1}}, "tool rc: -14"),
        (SAYS_42 + table("$sum"), {"set": {"tool_arena_ptr": PAGES * 65_536}}, "tool rc: -14"),
        (SAYS_42 + table("$sum"), {"index": 2}, "tool rc: -5"),
        (SAYS_42 + table("$sum"), {"index": 8}, "tool rc: -5"),
        (SAYS_42 + table("$sum"), {"index": 0x7FFF_FFFF}, "tool rc: -5"),
        (SAYS_42 + table("$sum"), {"index": -2}, "tool rc: -14"),
        (SAYS_42, {"index": 1}, "tool rc: -5"),
        (SAYS_42 + '(table (export "table") 8 externref)', {}, "tool rc: -5"),
        (table("$cchat_ctl"), {}, "tool rc: -22"),
        (SAYS_42 + table("$sum"), {"index": -1}, "tool rc: -5"),
        (function("", "(param i32 i32 i32 i32)") + table("$sum"), {}, "tool rc: -5"),
        (function("(i64.const 0)", "(result i64)") + table("$sum"), {}, "tool rc: -5"),
        (answering(b"\xff") + table("$sum"), {}, "tool rc: -5"),
        (answering("x", code=7) + table("$sum"), {}, "tool rc: 7"),
        (answering("x", code=-99) + table("$sum"), {}, "tool rc: -99"),
        (function("unreachable") + table("$sum"), {}, "it trapped: unreachable"),
        (
            function("(call $sum (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))")
            + table("$sum"),
            {},
            "it trapped: stack overflow",
        ),
    ],
)
@pytest.mark.requirement("hostcalls:wasm-tools:stopped")
async def test_a_tool_that_fails_is_an_error_that_the_model_reads(
    more: str, options: dict[str, Any], message: str
):
    talked, upstream = await converse(more, **options)
    error = content(upstream)["error"]
    assert (error["code"], error["message"]) == ("tool_exec_failed", message)
    assert talked.body["choices"][0]["message"]["content"] == "42"
    assert talked.ran.exit.reason == "exited"


async def test_a_length_beyond_its_room_is_no_result():
    more = function("(i32.store (local.get $len) (i32.const 0x7fffffff)) (i32.const 0)")
    _, upstream = await converse(more + table("$sum"))
    assert content(upstream)["error"]["message"] == "tool rc: -5"


async def test_memory_that_grows_in_a_tool_is_read_where_it_is_now():
    more = SAYS_42.replace("(memory.copy", "(drop (memory.grow (i32.const 64)))\n(memory.copy")
    talked, upstream = await converse(more + table("$sum"))
    assert content(upstream) == {"sum": 42}
    assert talked.body["choices"][0]["message"]["content"] == "42"


@pytest.mark.requirement("hostcalls:wasm-tools:stopped")
async def test_exit_in_a_tool_ends_the_guest_with_its_code():
    more = function("(call $exit (i32.const 7)) (i32.const 0)") + table("$sum")
    talk = Talk()
    session = talk.create(tool_arena_ptr=ARENA, tool_arena_len=4096)
    talk.tool(session)
    talk.say(session, "add")
    talk.send(session, AUTO)
    upstream = FakeUpstream(asks(call("sum")), says("never"))
    talked = await talk.run(upstream, more=more, imports=PROC_EXIT)
    assert (talked.ran.exit.reason, talked.ran.exit.code) == ("exited", 7)
    assert talked.answers == []
    assert len(upstream.asked) == 1


async def test_time_ends_a_guest_in_a_tool_that_never_returns():
    limits = GuestLimits(seconds=0.2)
    talked, _ = await converse(function("(loop br 0) (i32.const 0)") + table("$sum"), limits=limits)
    assert talked.ran.exit.reason == "timeout"


@pytest.mark.parametrize(
    "body",
    ["(loop br 0) (i32.const 0)", "(call $sleep_ms (i32.const 60000)) (i32.const 0)"],
    ids=["loop", "sleep"],
)
@pytest.mark.requirement("hostcalls:wasm-tools:stopped")
async def test_a_conversation_that_has_no_time_left_stops_its_tool(body: str):
    talk = Talk()
    talk.call("sleep_ms", 0)
    session = talk.create(tool_arena_ptr=ARENA, tool_arena_len=4096, timeout_ms=200)
    talk.tool(session)
    talk.say(session, "add")
    talk.receive(talk.send(session, AUTO))
    talked = await talk.run(FakeUpstream(asks(call("sum"))), more=function(body) + table("$sum"))
    assert talked.body["error"] == {"code": "tool_call_limit", "message": "exceeded max_seconds"}
    assert talked.ran.exit.reason == "exited"


@pytest.mark.requirement("hostcalls:wasm-and-mcp", "budgets:same-for-all-tools")
async def test_one_conversation_uses_a_guest_tool_and_an_mcp_tool_under_one_budget():
    command, args = ScriptedServer(behaviours={"look": do("structured", value={"seen": 1})}).command
    steps = (
        asks(call("sum", ASKED, "c1"), call("mcp__eyes__look", {}, "c2")),
        asks(call("sum", None, "c3")),
        says("both"),
    )
    ledger = MemoryLedger()
    async with Bridge.open([Server.stdio("eyes", command, *args)], ledger=ledger) as bridge:
        talked, upstream = await converse(
            SAYS_42 + table("$sum"),
            *steps,
            bridge=bridge,
            opening=Opening(task=TaskPolicy(enabled=True, default_server_ids=("eyes",))),
            settings=LoopSettings(max_total_tool_calls=2),
        )
    written = [(one.server_id, one.tool_name, one.status) for one in ledger.calls()]
    assert sorted(written) == [("", "sum", "ok"), ("eyes", "look", "ok")]
    said = [json.loads(one["content"]) for one in results(upstream)]
    assert said[:2] == [{"sum": 42}, {"seen": 1}]
    assert said[2]["error"]["code"] == "mcp_budget_exceeded"
    body = talked.body
    assert [(one["server"], one["tool"]) for one in body["bascule"]["calls"]] == [
        ("", "sum"),
        ("eyes", "look"),
        ("", "sum"),
    ]
    assert body["choices"][0]["message"]["content"] == "both"
    message = "exceeded max_total_tool_calls"
    assert body["error"] == {"code": "tool_call_limit", "message": message}


async def test_the_first_tool_of_a_name_stays():
    talk = Talk()
    session = talk.create(tool_arena_ptr=ARENA, tool_arena_len=4096)
    assert talk.tool(session, 1, {"type": "function", "function": SUM})
    talk.tool(session, 5, {**SUM, "description": "another"})
    talk.say(session, "add")
    talk.receive(talk.send(session, AUTO))
    upstream = FakeUpstream(asks(call("sum")), says("42"))
    await talk.run(upstream, more=SAYS_42 + table("$sum"))
    assert content(upstream) == {"sum": 42}
    assert upstream.asked[0]["tools"] == [{"type": "function", "function": SUM}]


@pytest.mark.parametrize("definition", ["{", "[]", "{}", '{"name":""}', '{"function":{}}'])
async def test_what_is_no_tool_is_taken_and_never_offered(definition: str):
    talk = Talk()
    session = talk.create()
    talk.tool(session, 1, definition)
    talk.say(session, "hello")
    talk.receive(talk.send(session, AUTO))
    upstream = FakeUpstream(says("hi"))
    talked = await talk.run(upstream)
    assert talked.answers[2] == 0
    assert "tools" not in upstream.asked[0]


NESTS = """
  (func $sum (param $args i32) (param $n i32) (param $out i32) (param $len i32) (result i32)
    (i32.store (local.get $len) (i32.const 0))
    (drop (call $cchat_send (i32.const 1000) (i32.const 2)))
    (i32.const 0))
"""


@pytest.mark.requirement("hostcalls:wasm-tools:stopped")
async def test_tools_are_nested_eight_deep_and_no_deeper():
    talk = Talk()
    session = talk.create(tool_arena_ptr=ARENA, tool_arena_len=4096)
    talk.tool(session)
    talk.say(session, "go")
    talk.receive(talk.send(session, AUTO))
    upstream = FakeUpstream(*[asks(call("sum"))] * 9, says("enough"))
    talked = await talk.run(upstream, more=NESTS + table("$sum"))
    assert talked.body["choices"][0]["message"]["content"] == "enough"
    [refused] = results(upstream, 9)
    expected = "tools of the guest's own are nested 8 deep already"
    assert json.loads(refused["content"])["error"]["message"] == expected
    assert len(upstream.asked) == 18
