"""The scripted server over HTTP at its best: dialects, sessions, streams and what its tools do."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
from mcp import Client
from mcp.client.sse import sse_client

from bascule.testing import ScriptedHttpServer, ScriptedServer, do, tool
from tests.testing.http_caller import META, MODERN_META, Caller, events, next_frame

Start = Callable[..., Awaitable[Caller]]
ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])
HEADERED = tool(
    "headered",
    inputSchema={
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    },
)


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Serve a script and be its client, past the handshake if there is one."""
    async with asyncio.timeout(20), AsyncExitStack() as stack:

        async def begin(era: str = "modern", settings: Any = None, /, **script: Any) -> Caller:
            served = ScriptedHttpServer(ScriptedServer(**script), **(settings or {}))
            http = await stack.enter_async_context(served)
            web = await stack.enter_async_context(aiohttp.ClientSession())
            caller = Caller(http, web, era)
            await caller.greet()
            return caller

        yield begin


def test_a_server_over_http_has_no_start_of_its_own():
    with pytest.raises(ValueError, match="at_start"):
        ScriptedHttpServer(ScriptedServer(at_start=["die"]))


@pytest.mark.parametrize(
    ("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25"), ("sse", "2025-11-25")]
)
@pytest.mark.parametrize("answer", ["json", "sse"])
async def test_the_official_client_lists_and_calls(answer, mode, version):
    settings: dict[str, Any] = {"answer": answer, "resumable": answer == "sse"}
    if mode == "sse":
        settings = {"dialects": ("sse",)}
    async with asyncio.timeout(20), ScriptedHttpServer(**settings) as http:
        wire = sse_client(http.url) if mode == "sse" else http.url
        async with Client(wire, mode="legacy" if mode == "sse" else mode) as client:
            assert client.protocol_version == version
            assert [tool.name for tool in (await client.list_tools()).tools] == ["echo"]
            result = await client.call_tool("echo", {"text": "hi"})
            assert result.content[0].model_dump()["text"] == "hi"
        if mode == "legacy":
            assert http.requests[-1].verb == "DELETE"
            assert http.sessions == []


@ERAS
@pytest.mark.parametrize("answer", ["json", "sse"])
@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("echo", {"content": [{"type": "text", "text": "hi"}]}),
        (do("structured", value=1), {"content": [{"type": "text", "text": "1"}]}),
        (do("error", text="no"), {"content": [{"type": "text", "text": "no"}], "isError": True}),
        (do("progress", count=3), {"content": [{"type": "text", "text": "hi"}]}),
        ("unknown_fields", {"vendorResult": {"kept": True}}),
        (do("turns", steps=["error", "echo"]), {"isError": True}),
    ],
)
async def test_a_tool_answers_as_its_script_says(start, era, answer, step, expected):
    caller = await start(era, {"answer": answer}, behaviours={"t": step})
    result = (await caller.call("t", text="hi"))["result"]
    assert expected.items() <= result.items()
    assert ("resultType" in result) == (era == "modern")


@ERAS
async def test_an_answer_that_is_all_comes_as_json_and_more_comes_as_events(start, era):
    caller = await start(era, behaviours={"echo": "echo", "p": do("progress", count=2)})
    async with caller.post(caller.message("tools/call", name="echo", arguments={})) as response:
        assert response.content_type == "application/json"
    frames = await caller.frames("tools/call", name="p", _meta={"progressToken": "t"})
    assert [frame.get("params", {}).get("progress") for frame in frames] == [1, 2, None]
    listed = (await caller.ask("tools/list"))["result"]
    assert ("ttlMs" in listed, "cacheScope" in listed) == (
        (True, True) if era == "modern" else (False, False)
    )


async def test_a_result_of_many_megabytes_comes_as_one_event(start):
    caller = await start("modern", {"answer": "sse"}, behaviours={"t": do("big", bytes=2_000_000)})
    message = caller.message("tools/call", name="t", arguments={})
    async with caller.post(message) as response:
        assert response.content_type == "text/event-stream"
        assert len(await response.read()) > 2_000_000


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"MCP-Protocol-Version": "2025-11-25"}, -32020),
        ({"MCP-Protocol-Version": "2027-01-01"}, -32020),
        ({"Mcp-Method": "tools/list"}, -32020),
        ({"Mcp-Name": "another"}, -32020),
        ({"Mcp-Name": "=?base64?!?="}, -32020),
        ({"Mcp-Param-Region": "north"}, -32020),
    ],
)
async def test_headers_that_do_not_repeat_the_body_are_refused(start, changed, code):
    caller = await start(behaviours={"echo": "echo"})
    message = caller.message("tools/call", name="echo", arguments={})
    async with caller.post(message, **changed) as response:
        assert response.status == 400
        assert (await response.json())["error"]["code"] == code


async def test_an_argument_that_wants_a_header_must_have_it(start):
    caller = await start(behaviours={"headered": "echo"}, tools=[HEADERED])
    message = caller.message("tools/call", name="headered", arguments={"region": "süd"})
    for headers, status in (
        ({}, 400),
        ({"Mcp-Param-Region": "north"}, 400),
        ({"Mcp-Param-Region": "=?base64?c8O8ZA==?="}, 200),
    ):
        async with caller.post(message, **headers) as response:
            assert response.status == status
    assert await caller.text("headered", text="no region, no header") == "no region, no header"


async def test_modern_errors_have_their_status(start):
    caller = await start(behaviours={"echo": "echo"})
    old = {**MODERN_META, META + "protocolVersion": "2027-01-01"}
    for message, headers, status, code in (
        (caller.message("nothing/known"), {}, 404, -32601),
        (caller.message("tools/call", name="nobody"), {}, 400, -32602),
        (caller.message("ping", _meta=old), {"MCP-Protocol-Version": "2027-01-01"}, 400, -32022),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, {}, 400, -32602),
    ):
        async with caller.post(message, **headers) as response:
            assert response.status == status
            assert (await response.json())["error"]["code"] == code


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Accept": "application/json"}, b"{}", 406),
        ({"Content-Type": "text/plain"}, b"{}", 415),
        ({}, b"{", 400),
        ({}, b"[]", 400),
    ],
)
async def test_what_is_not_a_request_is_refused(start, headers, body, status):
    caller = await start()
    sent = {**caller.headers({}), "Content-Type": "application/json", **headers}
    async with caller.web.post(caller.http.url, data=body, headers=sent) as response:
        assert response.status == status


async def test_an_endpoint_says_which_dialects_it_does_not_speak(start):
    legacy = await start("legacy", era="legacy")
    modern = Caller(legacy.http, legacy.web, "modern")
    async with modern.post(modern.message("server/discover")) as response:
        assert response.status == 400
        assert (await response.json())["error"]["code"] == -32000
    only = await start("modern", {"dialects": ("modern",)})
    greeting = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
    sent = {"Accept": "*/*"}
    async with only.web.post(only.http.url, json=greeting, headers=sent) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (400, -32022)
    for verb in ("GET", "DELETE"):
        async with only.web.request(verb, only.http.url) as response:
            assert response.status == 405
    async with only.web.get(only.http.url + "/elsewhere") as response:
        assert response.status == 404


async def test_a_session_is_needed_known_and_forgotten(start):
    caller = await start("legacy")
    assert caller.session["Mcp-Session-Id"] in caller.http.sessions
    good = dict(caller.session)
    for session, status in (({}, 400), ({"Mcp-Session-Id": "x"}, 404), (good, 200)):
        caller.session = session
        async with caller.post(caller.message("ping")) as response:
            assert response.status == status
    async with caller.web.delete(caller.http.url, headers=good) as response:
        assert response.status == 200
    async with caller.post(caller.message("ping")) as response:
        assert response.status == 404


async def test_a_server_without_sessions_gives_none_and_has_no_stream(start):
    caller = await start("legacy", {"stateful": False})
    assert caller.session == {}
    assert await caller.text("echo", text="hi") == "hi"
    async with caller.listen() as response:
        assert response.status == 405


@ERAS
async def test_calls_are_open_side_by_side(start, era, tmp_path):
    gate, ledger = tmp_path / "gate", tmp_path / "ledger"
    slow = do("ledger", path=str(ledger), then=do("gate", path=str(gate)))
    caller = await start(era, behaviours={"slow": slow, "echo": "echo"})
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(caller.text("slow", text="late"))
        assert await caller.text("echo", text="first") == "first"
        assert not waiting.done()
        gate.touch()
    assert waiting.result() == "late"
    assert json.loads(ledger.read_text(encoding="utf-8")) == {"text": "late"}


async def test_two_sessions_with_equal_ids_do_not_meet(start, tmp_path):
    one = await start("legacy", behaviours={"slow": do("gate", path=str(tmp_path / "gate"))})
    other = Caller(one.http, one.web, "legacy")
    await other.greet()
    assert (one.last_id, len(one.http.sessions)) == (other.last_id, 2)
    async with asyncio.TaskGroup() as group:
        answers = [group.create_task(each.text("slow", text=each.era)) for each in (one, other)]
        cancelled = {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": 9},
        }
        async with one.post(cancelled) as response:
            assert response.status == 202
        (tmp_path / "gate").touch()
    assert [answer.result() for answer in answers] == ["legacy", "legacy"]


async def test_input_is_asked_for_in_rounds(start):
    caller = await start(behaviours={"t": do("input_required", rounds=2)})
    state: dict[str, Any] = {}
    for turn in (1, 2):
        result = (await caller.ask("tools/call", name="t", **state))["result"]
        assert (result["resultType"], result["requestState"]) == ("input_required", f"round-{turn}")
        state = {"requestState": result["requestState"], "inputResponses": {"who": turn}}
    assert '"who": 2' in json.dumps(await caller.ask("tools/call", name="t", **state)).replace(
        "\\", ""
    )


@pytest.mark.parametrize("on", ["post", "get"])
async def test_a_legacy_server_asks_on_the_stream_of_the_call_or_of_the_session(start, on):
    caller = await start("legacy", behaviours={"t": do("server_request", on=on)})
    message = caller.message("tools/call", name="t", arguments={})
    async with asyncio.TaskGroup() as group, caller.listen() as listening:
        answer = group.create_task(caller.post(message).__aenter__())
        stream = events(listening if on == "get" else await answer)
        question = await next_frame(stream)
        assert question["method"] == "sampling/createMessage"
        async with caller.post({"jsonrpc": "2.0", "id": question["id"], "result": {"x": 1}}):
            pass
        response = await answer
        reply = await (response.json() if on == "get" else next_frame(stream))
        assert '"x": 1' in reply["result"]["content"][0]["text"]
        response.close()


async def test_a_changed_list_is_told_on_the_stream_of_each_session(start):
    change = do("change_tools", tools=[tool("new")], times=2)
    caller = await start("legacy", behaviours={"change": change})
    async with caller.listen() as listening:
        assert await caller.text("change", text="done") == "done"
        stream = events(listening)
        for _ in range(2):
            assert (await next_frame(stream))["method"] == "notifications/tools/list_changed"
    assert [tool["name"] for tool in (await caller.ask("tools/list"))["result"]["tools"]] == ["new"]


async def test_a_modern_subscription_hears_of_changes_until_it_ends(start):
    steps = {"change": do("change_tools", tools=[tool("end")]), "end": "end_subscriptions"}
    caller = await start(behaviours=steps)
    listen = caller.message("subscriptions/listen", notifications={"toolsListChanged": True})
    async with caller.post(listen) as response:
        stream = events(response)
        assert (await next_frame(stream))["method"] == "notifications/subscriptions/acknowledged"
        await caller.call("change")
        told = await next_frame(stream)
        assert told["params"]["_meta"] == {META + "subscriptionId": listen["id"]}
        await caller.call("end")
        assert (await next_frame(stream))["id"] == listen["id"]
        with pytest.raises(AssertionError):
            await next_frame(stream)


@ERAS
async def test_a_call_is_cancelled_in_the_way_of_its_era(start, era, tmp_path):
    path = str(tmp_path / "cancelled")
    steps = {"sleep": do("sleep_until_cancelled", path=path), "told": do("gate", path=path)}
    caller = await start(era, {"answer": "sse"}, behaviours=steps)
    message = caller.message("tools/call", name="sleep", arguments={})
    async with caller.post(message) as response:
        if era == "legacy":
            cancelled = {
                "method": "notifications/cancelled",
                "params": {"requestId": message["id"]},
            }
            async with caller.post({"jsonrpc": "2.0", **cancelled}):
                pass
        response.close()
    assert await caller.text("told", text="yes") == "yes"


async def test_a_stream_is_taken_up_where_it_was_left(start):
    step = do("progress", count=2, then=do("stream_ends", then="echo"))
    settings = {"resumable": True, "retry_ms": 5}
    caller = await start("legacy", settings, behaviours={"t": step})
    message = caller.message(
        "tools/call", name="t", arguments={"text": "hi"}, _meta={"progressToken": 1}
    )
    async with caller.post(message) as response:
        told = [fields async for fields, _ in events(response)]
    assert [bool(fields["data"]) for fields in told] == [False, True, True]
    assert told[0]["retry"] == "5"
    assert len({fields["id"] for fields in told}) == 3
    for told_last, count in ((told[-1]["id"], 1), (told[1]["id"], 2)):
        async with caller.listen(**{"Last-Event-ID": told_last}) as response:
            frames = [json.loads(data) async for _, data in events(response) if data]
        assert len(frames) == count
        assert frames[-1]["result"]["content"][0]["text"] == "hi"


async def test_the_oldest_dialect_names_an_endpoint_and_answers_on_its_stream(start):
    settings = {"dialects": ("modern", "legacy", "sse")}
    caller = await start("modern", settings, behaviours={"echo": "echo", "die": "die"})
    async with caller.web.get(caller.http.url) as response:
        stream = events(response)
        fields, place = await anext(stream)
        assert fields["event"] == "endpoint"
        url = caller.http.url.removesuffix("/mcp") + place
        for name in ("echo", "die"):
            params = {"name": name, "arguments": {"text": "hi"}}
            message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
            async with caller.web.post(url, json=message) as posted:
                assert posted.status == 202
            if name == "echo":
                assert (await next_frame(stream))["result"]["content"][0]["text"] == "hi"
        with pytest.raises((aiohttp.ClientPayloadError, AssertionError)):
            await next_frame(stream)
    assert await caller.text("echo", text="modern beside it") == "modern beside it"


async def test_every_request_is_on_record(start, tmp_path):
    journal = tmp_path / "journal"
    caller = await start(behaviours={"echo": "echo"}, journal=journal)
    await caller.text("echo", text="hi")
    seen = caller.http.requests[-1]
    assert (seen.verb, seen.path, seen.headers["mcp-name"]) == ("POST", "/mcp", "echo")
    assert (seen.method, seen.message["params"]["arguments"]) == ("tools/call", {"text": "hi"})
    assert json.loads(journal.read_text(encoding="utf-8")) == seen.message
    assert caller.http.count("tools/call") == 1


def test_only_what_speaks_http_needs_aiohttp():
    program = (
        "import sys; sys.modules['aiohttp'] = None\n"
        "from bascule.testing import FakeClock, ScriptedServer\n"
        "try:\n    from bascule.testing import ScriptedUpstream\n"
        "except ImportError as error:\n    print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=60,
    )
    assert ran.stdout == "ScriptedUpstream needs aiohttp: pip install 'bascule[testing]'\n"
