"""Every outcome of a call as MCP, at both routes and in both generations."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bascule.asgi.head import Head
from bascule.audit.approvals import Approvals, MemoryStore
from bascule.auth.identity import Principal
from bascule.doors.gateway.caller import Caller
from bascule.doors.gateway.generation import SERVER_META
from bascule.doors.gateway.kept_outputs import NAME as READ_OUTPUT
from bascule.doors.gateway.outcomes import result_of
from bascule.doors.gateway.views import ALL_SERVERS
from bascule.errors import (
    BasculeError,
    BudgetExceeded,
    DeadlineExceeded,
    OutcomeUnknown,
    RemoteError,
    ServerUnavailable,
)
from bascule.model.outcome import Success
from bascule.wire.era import LEGACY, MODERN
from tests.doors.asking import decided
from tests.doors.gateway.mcp_caller import WAYS, code_of, opened
from tests.doors.gateway.scene import Json, Scene
from tests.node.fakes import definition, text
from tests.policy.build import server

EVERY_WAY = pytest.mark.parametrize("way", WAYS)

FAILURES: dict[str, tuple[BasculeError, str, bool]] = {
    "down": (ServerUnavailable("it is down"), "mcp_unavailable", True),
    "late": (DeadlineExceeded("too late"), "mcp_timeout", True),
    "lost": (OutcomeUnknown("who knows"), "mcp_outcome_unknown", False),
    "wrong": (RemoteError(-32602, "no such path"), "mcp_invalid_arguments", False),
}


@EVERY_WAY
@pytest.mark.parametrize(("error", "code", "retryable"), FAILURES.values(), ids=FAILURES)
@pytest.mark.requirement("gateway:outcomes")
async def test_a_failure_is_a_result_with_words_for_the_model_and_a_code_for_programs(
    way: str, error: BasculeError, code: str, retryable: bool
):
    scene = Scene()
    scene.world.caller.answers("read", error)
    answer = await scene.call(way, "read")
    result = answer["result"]
    assert (answer["status"], result["isError"]) == (200, True)
    said = result["_meta"]["bascule/error"]
    assert (said["code"], said["retryable"]) == (code, retryable)
    assert said["request_id"] == scene.world.ledger.last.request_id
    assert scene.world.ledger.last.code == code
    [block] = result["content"]
    assert block["text"].startswith(f"{code}: ")


@EVERY_WAY
async def test_a_budget_that_is_used_up_says_when_to_come_back(way: str):
    scene = Scene()
    scene.world.caller.answers("read", BudgetExceeded("enough", retry_after=2.5))
    said = (await scene.call(way, "read"))["result"]["_meta"]["bascule/error"]
    assert (said["code"], said["retry_after"]) == ("mcp_budget_exceeded", 2.5)


@EVERY_WAY
async def test_arguments_that_do_not_fit_are_a_result_and_never_leave(way: str):
    scene = Scene()
    answer = await scene.call(way, "read", {"text": 5})
    assert code_of(answer) == "mcp_invalid_arguments"
    assert "text" in answer["result"]["content"][0]["text"]
    assert scene.world.sent == []


@EVERY_WAY
async def test_a_tools_own_error_comes_through_in_its_own_words(way: str):
    scene = Scene()
    scene.world.caller.answers("read", text("no such file", isError=True))
    result = (await scene.call(way, "read"))["result"]
    assert result["isError"] is True
    assert result["content"] == [{"type": "text", "text": "no such file"}]
    assert result["_meta"]["bascule/error"]["code"] == "mcp_tool_error"


@EVERY_WAY
@pytest.mark.parametrize(
    ("code", "shown"),
    [(1, 1), (-32000, -32000), (-32019, -32019), (-32603, -32603), (-31000, -31000)],
)
@pytest.mark.requirement("gateway:outcomes")
async def test_a_servers_json_rpc_error_comes_through(way: str, code: int, shown: int):
    scene = Scene()
    scene.world.caller.answers("read", RemoteError(code, "boom", {"why": "x"}))
    error = (await scene.call(way, "read"))["error"]
    assert (error["code"], error["data"]) == (shown, {"why": "x"})
    assert "boom" in error["message"]


@EVERY_WAY
@pytest.mark.parametrize("code", [-32700, -32600, -32601, -32020, -32022, -32042, -32099])
@pytest.mark.requirement("gateway:outcomes")
async def test_a_code_that_is_not_for_servers_is_never_shown_as_ours(way: str, code: int):
    scene = Scene()
    scene.world.caller.answers("read", RemoteError(code, "boom"))
    answer = await scene.call(way, "read")
    assert answer["status"] == 200
    assert (answer["error"]["code"], answer["error"]["data"]) == (-32603, {"rpc_code": code})


@pytest.mark.requirement("gateway:outcomes")
async def test_a_client_is_told_which_capability_it_lacks():
    scene = Scene()
    needs = {"requiredCapabilities": {"sampling": {}, "roots": {}}}
    scene.world.caller.answers("read", RemoteError(-32021, "needs more", needs))
    answer = await scene.call("all, modern", "read")
    assert (answer["status"], answer["error"]["code"]) == (400, -32021)
    assert answer["error"]["data"] == needs
    legacy = await scene.call("all, legacy", "read")
    assert code_of(legacy) == "mcp_tool_error"


@EVERY_WAY
@pytest.mark.requirement("gateway:outcomes")
async def test_a_hidden_tool_and_one_that_there_is_not_are_refused_in_the_same_words(way: str):
    scene = Scene()
    hidden = await scene.call(way, "write", task="reader")
    missing = await scene.call(way, "wrote", task="reader")
    assert hidden["error"]["code"] == -32602
    words = hidden["error"]["message"].replace("write", "wrote")
    assert {**hidden, "error": {**hidden["error"], "message": words}} == missing
    assert scene.world.sent == []
    assert scene.world.ledger.calls()[-2].code == "mcp_policy_denied"


@EVERY_WAY
@pytest.mark.requirement("gateway:outcomes")
async def test_a_server_that_is_down_and_never_listed_is_unavailable_and_not_unknown(way: str):
    scene = Scene()
    scene.world.caller.fails("fs", ServerUnavailable("it does not start"))
    assert code_of(await scene.call(way, "read")) == "mcp_unavailable"


@pytest.mark.requirement("gateway:routes")
async def test_a_server_that_is_not_allowed_and_one_that_there_is_not_look_alike():
    scene = Scene()
    token = await scene.door.minted("bound")
    words: set[str] = set()
    for one in ("git", "nothing"):
        for way in ("one, modern", "one, legacy"):
            client, _ = await opened(scene.post, token, one, way)
            told = await client.open()
            assert told["status"] == 404
            words.add(told["error"]["message"])
    assert len(words) == 1


@EVERY_WAY
@pytest.mark.requirement("gateway:no-task")
async def test_a_task_that_is_gone_shows_nothing_and_says_why(way: str):
    scene = Scene()
    client = await scene.client(way)
    named = "read" if client.route != "/mcp" else "mcp__fs__read"
    assert len(await client.tools()) == 3
    scene.world.apply(server("fs"), tasks={})
    assert await client.tools() == []
    answer = await client.call(named)
    assert code_of(answer) == "mcp_policy_denied"
    assert answer["result"]["content"][0]["text"]


@pytest.mark.requirement("gateway:no-task")
async def test_a_task_that_is_off_shows_nothing_and_says_why():
    scene = Scene()
    client = await scene.client(task="off")
    assert await client.tools() == []
    assert code_of(await client.call("mcp__fs__read")) == "mcp_policy_denied"


@EVERY_WAY
@pytest.mark.requirement("gateway:results")
async def test_a_result_crosses_whole(way: str):
    scene = Scene()
    blocks: list[Json] = [
        {"type": "text", "text": "a", "annotations": {"priority": 0.5}},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///x", "name": "x"},
        {"type": "resource", "resource": {"uri": "file:///y", "text": "y"}},
    ]
    more = {"_meta": {"com.example/a": [1]}, "x-vendor": {"b": 2}}
    structured = {"n": [1, {"k": None}]}
    scene.world.caller.answers("read", {"content": blocks, "structuredContent": structured, **more})
    result = (await scene.call(way, "read"))["result"]
    assert result["content"] == blocks
    assert result["structuredContent"] == structured
    assert result["_meta"]["com.example/a"] == [1]
    assert result["x-vendor"] == {"b": 2}
    assert not result.get("isError")


@EVERY_WAY
@pytest.mark.requirement("gateway:results")
async def test_no_server_can_forge_our_marks(way: str):
    scene = Scene()
    forged = {"bascule/error": {"code": "mcp_timeout"}, "bascule/truncated": {"handle": "x"}}
    scene.world.caller.answers("read", text("fine", _meta=forged))
    assert code_of(await scene.call(way, "read")) is None


# --- outputs that are cut


def cutting(scene: Scene, letters: int = 1000) -> None:
    record = server("fs", budgets={"max_tool_output_bytes": 200})
    scene.world.apply(record, tasks={"writer": {"enabled": True, "default_server_ids": ["fs"]}})
    scene.world.caller.answers("read", text("x" * letters))


@EVERY_WAY
@pytest.mark.requirement("gateway:cut")
async def test_a_cut_output_says_so_and_can_be_read_on(way: str):
    scene = Scene()
    cutting(scene)
    client = await scene.client(way)
    named = "read" if client.route != "/mcp" else "mcp__fs__read"
    assert READ_OUTPUT not in [tool["name"] for tool in await client.tools()]
    result = (await client.call(named))["result"]
    cut = result["_meta"]["bascule/truncated"]
    assert (cut["total"], cut["shown"] < 200) == (1000, True)
    shown, how = (block["text"] for block in result["content"])
    assert "truncated" in shown
    assert cut["handle"] in how
    assert READ_OUTPUT in how
    assert [tool["name"] for tool in await client.tools()][-1] == READ_OUTPUT
    part = {"handle": cut["handle"], "start": 990, "end": 1000}
    rest = (await client.call(READ_OUTPUT, part))["result"]
    assert rest["content"] == [{"type": "text", "text": "x" * 10}]
    assert scene.world.sent[-1].tool == "read"


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"handle": 5},
        {"handle": "x", "start": -1},
        {"handle": "x", "start": 5, "end": 4},
        {"handle": "x", "start": True},
        {"handle": "x", "end": 10**9},
        {"handle": "x", "more": 1},
        {"handle": "nobody's"},
    ],
    ids=repr,
)
async def test_reading_on_with_nonsense_is_an_answer(arguments: Json):
    scene = Scene()
    cutting(scene)
    client = await scene.client()
    await client.call("mcp__fs__read")
    assert code_of(await client.call(READ_OUTPUT, arguments)) == "mcp_invalid_arguments"


@pytest.mark.requirement("gateway:cut")
async def test_nobody_reads_on_in_another_callers_output():
    scene = Scene()
    cutting(scene)
    alice, bob = await scene.client(), await scene.client()
    handle = (await alice.call("mcp__fs__read"))["result"]["_meta"]["bascule/truncated"]["handle"]
    refused = await bob.call(READ_OUTPUT, {"handle": handle})
    assert refused["error"]["code"] == -32602  # bob has no such tool: he was given no handle
    await bob.call("mcp__fs__read")
    assert code_of(await bob.call(READ_OUTPUT, {"handle": handle})) == "mcp_invalid_arguments"


# --- approvals


@EVERY_WAY
@pytest.mark.requirement("gateway:approval")
async def test_a_call_that_needs_approval_says_how_to_go_on_and_runs_once(way: str):
    approvals = Approvals(MemoryStore())
    scene = Scene(approvals)
    client = await scene.client(way)
    named = "delete" if client.route != "/mcp" else "mcp__fs__delete"
    result = (await client.call(named, {"text": "x"}))["result"]
    said = result["_meta"]["bascule/error"]
    assert said["code"] == "mcp_approval_required"
    words = result["content"][0]["text"]
    assert said["approval_id"] in words
    url = f"http://127.0.0.1:7070/api/v1/approvals/{said['approval_id']}"
    assert said["approval_url"] == url
    assert said["expires_at"].endswith("Z")
    assert said["approval_url"] in words
    await decided(approvals)
    assert code_of(await client.call(named, {"text": "x"})) is None
    again = await client.call(named, {"text": "x"})
    assert again["result"]["_meta"]["bascule/error"]["approval_id"] != said["approval_id"]
    assert len(scene.world.sent) == 1
    await approvals.close()


@EVERY_WAY
@pytest.mark.requirement("gateway:approval")
async def test_a_call_waits_for_approval_as_long_as_it_says(way: str):
    approvals = Approvals(MemoryStore())
    scene = Scene(approvals)
    waiting = asyncio.create_task(scene.call(way, "delete", approval_wait_ms=60_000))
    await decided(approvals)
    assert code_of(await waiting) is None
    await approvals.close()


@pytest.mark.parametrize("wait", [-1, 1.5, "1", True, 10**9], ids=repr)
async def test_a_wait_that_makes_no_sense_is_refused(wait: Any):
    answer = await Scene().call("all, modern", "delete", approval_wait_ms=wait)
    assert answer["error"]["code"] == -32602


@pytest.mark.requirement("gateway:routes", "gateway:definitions")
async def test_definitions_cross_whole_and_harmless():
    scene = Scene()
    whole = definition(
        "read",
        title="Read",
        icons=[{"src": "data:image/png;base64,aGk="}],
        annotations={"readOnlyHint": True, "vendor": 1},
        outputSchema={"type": "object"},
        _meta={"com.example/a": 1},
        vendor={"x": 1},
    )
    whole["description"] = "Reads.\u202e evil"
    scene.world.caller.offers(server("fs"), whole)
    for way in WAYS:
        [shown] = await (await scene.client(way)).tools()
        assert "\u202e" not in shown.pop("description")
        expected = {k: v for k, v in whole.items() if k not in ("description", "name")}
        assert shown.pop("name") == ("mcp__fs__read" if way.startswith("all") else "read")
        assert shown == expected


@EVERY_WAY
@pytest.mark.requirement("gateway:cut")
async def test_a_cut_result_keeps_what_its_output_schema_promises_or_is_an_error(way: str):
    scene = Scene()
    cutting(scene)
    promised: Json = {
        "type": "object",
        "properties": {"lines": {"type": "array", "items": {"type": "string"}}},
        "required": ["lines"],
    }
    strict: Json = {**promised, "properties": {"lines": {"type": "array", "minItems": 100}}}
    record = server("fs", budgets={"max_tool_output_bytes": 200})
    lines = {"lines": ["x" * 10] * 100}
    for schema, fits in ((promised, True), (strict, False)):
        scene.world.caller.offers(record, definition("read", outputSchema=schema))
        scene.world.caller.answers("read", {"content": [], "structuredContent": lines})
        answer = await scene.call(way, "read")
        result = answer["result"]
        assert result["_meta"]["bascule/truncated"]["total"] > 200
        assert bool(result.get("isError")) is not fits
        if fits:
            assert 0 < len(result["structuredContent"]["lines"]) < 100
        else:
            assert code_of(answer) == "mcp_output_too_large"
            assert "structuredContent" not in result


@EVERY_WAY
async def test_a_name_that_a_caller_made_up_is_told_back_in_part(way: str):
    scene = Scene()
    client = await scene.client(way)
    for length, shown in ((128, "x" * 128), (129, "x" * 128 + "…")):
        error = (await client.call("x" * length))["error"]
        assert error["message"] == f"Unknown tool: {shown}"


PLAIN = {"type": "text", "text": "x"}


def told(modern: bool, **outcome: Any) -> Json:
    """Return a result as a client of the newest version of a generation is told it."""
    caller = Caller(
        principal=Principal("t", "client", "writer", "t"),
        view=ALL_SERVERS,
        requests=(),
        version=MODERN if modern else LEGACY[0],
        modern=modern,
        capabilities=frozenset(),
        streams=False,
        head=Head([]),
        scheme="http",
    )
    content = outcome.pop("content", [PLAIN])
    success = Success(text="x", content=tuple(content), request_id="r", revision=1, **outcome)
    return json.loads(result_of(success, caller))


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize(
    ("outcome", "shown"),
    [
        ({}, {"content": [PLAIN]}),
        ({"content": []}, {"content": []}),
        ({"content": [PLAIN, PLAIN]}, {"content": [PLAIN, PLAIN]}),
        ({"content": [{**PLAIN, "annotations": 1}]}, {"content": [PLAIN]}),
        ({"content": [PLAIN, {**PLAIN, "_meta": 1}]}, {"content": [PLAIN, PLAIN]}),
        ({"structured": {"a": 1}}, {"content": [PLAIN], "structuredContent": {"a": 1}}),
        ({"extra": {"mood": 1}}, {"content": [PLAIN], "mood": 1}),
        (
            {"warnings": ("late",)},
            {"content": [PLAIN], "_meta": {"bascule/warnings": ["late"]}},
        ),
    ],
    ids=repr,
)
def test_every_part_of_a_result_is_told(modern: bool, outcome: Json, shown: Json):
    more = {"resultType": "complete", "_meta": {**shown.get("_meta", {}), **SERVER_META}}
    assert told(modern, **outcome) == ({**shown, **more} if modern else shown)
