"""The channel over streamable HTTP, both generations, against a real socket."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bascule.errors import (
    DeadlineExceeded,
    MalformedReply,
    NotDelivered,
    OutcomeUnknown,
    RemoteError,
    ServerUnavailable,
)
from bascule.model.call import Progress
from bascule.node.pool.client import connect
from bascule.node.pool.transport.channel import Channel, Events
from bascule.node.pool.transport.http import HttpChannel
from bascule.node.pool.transport.taps import Tap
from bascule.node.pool.transport.upstream import HttpLimits
from bascule.testing import FakeClock, ScriptedHttpServer, do
from bascule.testing.server import tool
from bascule.wire.era import LIST_CHANGED, initialize_params, modern_meta, with_meta
from tests.node.remote_channels import (
    MODERN_PEER,
    Keys,
    ask,
    greet,
    http_channel,
    script,
    seen_by,
    within,
)
from tests.waits import Heard, advanced_until, until

TOKEN = "glpat-0123456789abcdef"  # pragma: allowlist secret
VERSION = "2025-11-25"
ERAS = ["modern", "legacy"]
WAYS = [("modern", "json"), ("modern", "sse"), ("legacy", "json"), ("legacy", "sse")]


@asynccontextmanager
async def spoken(
    era: str, settings: dict[str, Any] | None = None, **options: Any
) -> AsyncGenerator[tuple[ScriptedHttpServer, HttpChannel]]:
    """Serve, open a channel and agree on the generation."""
    served = options.pop("served", script())
    how: dict[str, Any] = {"dialects": (era,), **(settings or {})}
    async with (
        ScriptedHttpServer(server=served, **how) as http,
        http_channel(http, **options) as channel,
    ):
        await greet(channel, era)
        yield http, channel


# Headers


@pytest.mark.requirement("transport:http:both-generations")
async def test_a_modern_request_names_itself_in_headers_and_carries_no_session():
    async with spoken("modern") as (http, channel):
        assert await ask(channel, era="modern") == "hi"
        (seen,) = seen_by(http, "POST", "tools/call")
        assert seen.headers["MCP-Protocol-Version"] == "2026-07-28"
        assert (seen.headers["Mcp-Method"], seen.headers["Mcp-Name"]) == ("tools/call", "any")
        assert seen.headers["Accept"] == "application/json, text/event-stream"
        assert seen.headers["Content-Type"] == "application/json"
        assert "Mcp-Session-Id" not in seen.headers
        channel.notify("notifications/anything", b"{}")
    assert [seen.verb for seen in http.requests] == ["POST"]  # no GET, DELETE or notification


async def test_what_no_header_can_hold_is_named_in_base64():
    odd = "größe\n"
    served = script(tools=[tool(odd)])
    async with spoken("modern", served=served) as (http, channel):
        body = b'"name":%b,"arguments":{"text":"a"}' % json.dumps(odd).encode()
        params = with_meta(body, modern_meta())
        await channel.request("tools/call", params, deadline=within(10), name=odd)
        assert seen_by(http, "POST", "tools/call")[0].headers["Mcp-Name"].startswith("=?base64?")


async def test_arguments_that_a_tool_wants_in_headers_are_repeated_there():
    schema = {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {
                "type": "object",
                "properties": {"count": {"type": "integer", "x-mcp-header": "Count"}},
            },
            "text": {"type": "string"},
        },
    }
    served = script(tools=[tool("echo", inputSchema=schema)])
    async with ScriptedHttpServer(server=served, dialects=("modern",)) as http:
        async with http_channel(http) as channel:

            async def reuse(_events: Events) -> Channel:
                return channel

            client = await connect(reuse, deadline=within(10))
            assert len((await client.list_tools(deadline=within(10))).tools) == 1
            arguments = b'{"region":"M\xc3\xbcnchen","deep":{"count":3},"text":"x"}'
            await client.call_tool("echo", arguments, deadline=within(10))
            await client.call_tool("echo", b'{"text":"y"}', deadline=within(10))
        both, none = seen_by(http, "POST", "tools/call")
    assert both.headers["Mcp-Param-Count"] == "3"
    assert both.headers["Mcp-Param-Region"].startswith("=?base64?")
    assert not [name for name in none.headers if name.lower().startswith("mcp-param")]


@pytest.mark.requirement("transport:http:both-generations")
async def test_a_legacy_session_is_named_on_everything_after_the_handshake_and_ended():
    async with spoken("legacy") as (http, channel):
        assert await ask(channel) == "hi"
        await http.saw_verb("GET")
        (session,) = http.sessions
    assert http.sessions == []
    first, *rest = http.requests
    assert first.method == "initialize"
    assert not {"Mcp-Session-Id", "MCP-Protocol-Version"} & set(first.headers)
    assert {seen.verb for seen in rest} == {"POST", "GET", "DELETE"}
    for seen in rest:
        assert seen.headers["Mcp-Session-Id"] == session
        assert seen.headers["MCP-Protocol-Version"] == VERSION
        assert "Mcp-Method" not in seen.headers
    assert http.requests[-1].verb == "DELETE"


async def test_a_legacy_server_without_sessions_gets_neither_stream_nor_goodbye():
    async with spoken("legacy", {"stateful": False}) as (http, channel):
        assert await ask(channel) == "hi"
    assert {seen.verb for seen in http.requests} == {"POST"}
    assert not [seen for seen in http.requests if "Mcp-Session-Id" in seen.headers]


async def test_nothing_overtakes_the_end_of_the_handshake(tmp_path: Path):
    gate = tmp_path / "gate"
    held = do("gate", path=str(gate), then=do("http", status=202, body=""))
    async with ScriptedHttpServer(server=script(), dialects=("legacy",)) as http:
        http.inject(held, method="notifications/initialized")
        async with http_channel(http) as channel:
            await greet(channel)
            calling = asyncio.create_task(ask(channel))
            await http.saw("notifications/initialized")
            await FakeClock().settle()
            assert [seen.method for seen in http.requests] == [
                "initialize",
                "notifications/initialized",
            ]
            gate.touch()
            assert await calling == "hi"


# Credentials


@pytest.mark.requirement("transport:auth:bearer", "transport:headers")
@pytest.mark.parametrize("written", [TOKEN, f"Bearer {TOKEN}", f"bearer Bearer  {TOKEN}"])
async def test_the_credential_and_the_records_headers_are_on_every_kind_of_request(written: str):
    options: dict[str, Any] = {"auth_ref": "${TOKEN}", "environ": {"TOKEN": written}}
    options["headers"] = {"X-Team": "blue"}
    async with spoken("legacy", {"token": TOKEN}, **options) as (http, channel):
        assert await ask(channel) == "hi"
        await http.saw_verb("GET")
    assert {seen.verb for seen in http.requests} == {"POST", "GET", "DELETE"}
    for seen in http.requests:
        assert seen.headers["Authorization"] == f"Bearer {TOKEN}"
        assert seen.headers["X-Team"] == "blue"


@pytest.mark.parametrize("era", ERAS)
async def test_a_refused_token_is_renewed_once_and_the_call_carried_out_once(
    era: str, tmp_path: Path
):
    executed, keys = tmp_path / "executed", Keys("old", "new")
    async with spoken(era, {"token": "old"}, keys=keys) as (http, channel):
        assert await ask(channel, era=era) == "hi"
        http.token = "new"
        assert await ask(channel, do("ledger", path=str(executed)), era=era) == "hi"
        assert keys.refusals == 1
        assert executed.read_text(encoding="utf-8").count("\n") == 1
        shown = [seen.headers["Authorization"] for seen in seen_by(http, "POST", "tools/call")]
        assert shown == ["Bearer old", "Bearer old", "Bearer new"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_token_refused_again_is_not_tried_for_ever(era: str):
    keys = Keys("old", "newer", "newest")
    async with spoken(era, {"token": "old"}, keys=keys) as (http, channel):
        assert await ask(channel, era=era) == "hi"
        http.token = "something else"
        with pytest.raises(ServerUnavailable, match="refuses our credential: HTTP 401"):
            await ask(channel, era=era)
        assert len(seen_by(http, "POST", "tools/call")) == 1 + 2


@pytest.mark.parametrize("era", ERAS)
async def test_a_record_with_its_own_credential_asks_nobody_for_another(era: str):
    options: dict[str, Any] = {"auth_ref": "${TOKEN}", "environ": {"TOKEN": TOKEN}}
    async with (
        ScriptedHttpServer() as issuer,
        spoken(era, {"token": TOKEN}, **options) as (http, channel),
    ):
        challenge = {"WWW-Authenticate": f'Bearer resource_metadata="{issuer.url}"'}
        http.inject(do("http", status=401, headers=challenge, body=""), method="tools/call")
        with pytest.raises(ServerUnavailable, match="refuses our credential: HTTP 401"):
            await ask(channel, era=era)
        assert len(seen_by(http, "POST", "tools/call")) == 1
        assert issuer.requests == []


async def test_the_stream_of_a_session_is_opened_with_a_fresh_token_too():
    heard = Heard[str]()
    events = Events(on_notification=lambda method, _params: heard.hear(method))
    refused = do("http", status=401, body="")
    async with ScriptedHttpServer(server=script(), dialects=("legacy",)) as http:
        http.inject(refused, verb="GET")
        async with http_channel(http, events=events, keys=Keys("a", "b")) as channel:
            await greet(channel)
            await http.saw_verb("GET", 2)
            await ask(channel, do("change_tools"))
            assert LIST_CHANGED in await heard.reach(1)
        shown = [seen.headers["Authorization"] for seen in seen_by(http, "GET")]
        assert shown == ["Bearer a", "Bearer b"]


# The stream of a session


async def test_a_session_has_one_stream_of_announcements():
    heard = Heard[str]()
    events = Events(on_notification=lambda method, _params: heard.hear(method))
    async with spoken("legacy", events=events) as (http, channel):
        peer: Any = await channel.request("initialize", initialize_params(), deadline=within(10))
        assert peer["protocolVersion"] == VERSION
        channel.settle(replace_version(VERSION))
        channel.settle(replace_version(VERSION))
        await http.saw_verb("GET")
        await ask(channel, do("change_tools", times=3))
        assert await heard.reach(3) == [LIST_CHANGED] * 3
        assert len(seen_by(http, "GET")) == 1


def replace_version(version: str) -> Any:
    """Return a legacy peer of this version."""
    return type(MODERN_PEER)("legacy", version, {}, {}, None)


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_a_server_without_that_stream_is_not_asked_again(status: int):
    clock = FakeClock()
    async with ScriptedHttpServer(server=script(), dialects=("legacy",)) as http:
        http.inject(do("http", status=status, body=""), verb="GET", times=100)
        async with http_channel(http, clock=clock) as channel:
            await greet(channel)
            await http.saw_verb("GET")
            assert await ask(channel) == "hi"
            await clock.advance(1000)
            assert await ask(channel) == "hi"
            assert len(seen_by(http, "GET")) == 1


@pytest.mark.parametrize("retry_ms", [None, 250])
async def test_a_stream_that_ended_is_opened_again_after_the_pause_the_server_asks_for(
    retry_ms: int | None,
):
    heard = Heard[str]()
    events = Events(on_notification=lambda method, _params: heard.hear(method))
    clock, pause = FakeClock(), (1.0 if retry_ms is None else 0.25)
    hint = "" if retry_ms is None else f"retry: {retry_ms}\n\n"
    ended = do("http", type="text/event-stream", body=f": hello\n\n{hint}")
    async with ScriptedHttpServer(server=script(), dialects=("legacy",)) as http:
        http.inject(ended, verb="GET")
        async with http_channel(http, clock=clock, events=events) as channel:
            await greet(channel)
            await clock.asleep()
            await clock.advance(pause - 0.01)
            assert len(seen_by(http, "GET")) == 1
            await clock.advance(0.02)
            await http.saw_verb("GET", 2)
            assert heard == [LIST_CHANGED]  # what was said in between nobody knows


async def test_a_stream_with_event_ids_is_taken_up_where_it_broke_off():
    heard = Heard[str]()
    events = Events(on_notification=lambda method, _params: heard.hear(method))
    clock = FakeClock()
    frame = json.dumps({"jsonrpc": "2.0", "method": "vendor/tick"})
    ended = do("http", type="text/event-stream", body=f"id: 7\nretry: 10\ndata: {frame}\n\n")
    async with ScriptedHttpServer(server=script(), dialects=("legacy",)) as http:
        http.inject(ended, verb="GET")
        async with http_channel(http, clock=clock, events=events) as channel:
            await greet(channel)
            await clock.asleep()
            await clock.advance(0.01)
            await http.saw_verb("GET", 2)
        assert [seen.headers.get("Last-Event-ID") for seen in seen_by(http, "GET")] == [None, "7"]
        assert heard == ["vendor/tick"]  # nothing was missed, so nothing has to be read anew


async def test_a_question_on_that_stream_is_answered_in_the_session():
    async def roots(method: str, params: Any) -> Any:
        return {"method": method, "params": params}

    async with spoken("legacy", events=Events(on_request=roots)) as (http, channel):
        await http.saw_verb("GET")
        step = do("server_request", on="get", method="roots/list", params={"a": 1})
        answer = json.loads(await ask(channel, step))
        assert answer["result"] == {"method": "roots/list", "params": {"a": 1}}


@pytest.mark.requirement("wire:server-requests-refused")
async def test_a_question_that_was_not_offered_is_refused_and_a_ping_answered():
    async with spoken("legacy") as (_, channel):
        assert json.loads(await ask(channel, "server_request"))["error"]["code"] == -32601
        assert json.loads(await ask(channel, do("server_request", method="ping")))["result"] == {}


async def test_a_renewed_session_has_its_own_version_and_its_own_stream():
    async with spoken("legacy") as (http, channel):
        await http.saw_verb("GET")
        http.server = replace(http.server, version="2025-06-18")
        await http.restart()
        http.requests.clear()
        assert await ask(channel) == "hi"
        await http.saw_verb("GET")
        (session,) = http.sessions
        assert await ask(channel) == "hi"
        for seen in (seen_by(http, "POST", "tools/call")[-1], seen_by(http, "GET")[-1]):
            assert seen.headers["Mcp-Session-Id"] == session
            assert seen.headers["MCP-Protocol-Version"] == "2025-06-18"
        assert http.count("initialize") == http.count("notifications/initialized") == 1


# Delivered or not


@pytest.mark.requirement("call:once:resend-unsent")
async def test_a_closed_port_got_nothing():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    nobody = ScriptedHttpServer(port=port)
    async with http_channel(nobody) as channel:
        with pytest.raises(NotDelivered, match="cannot connect"):
            await channel.request("initialize", initialize_params(), deadline=within(10))


@pytest.mark.requirement("transport:http:reconnect", "call:once:resend-unsent")
@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_had_answered_is_waited_for_a_moment(era: str, tmp_path: Path):
    executed, clock = tmp_path / "executed", FakeClock()
    async with spoken(era, clock=clock) as (http, channel):
        assert await ask(channel, era=era) == "hi"
        await http.stop()
        step = do("ledger", path=str(executed))
        calling = asyncio.create_task(ask(channel, step, era=era))
        await clock.asleep()
        await http.start()
        await clock.advance(0.05)
        assert await calling == "hi"
        assert executed.read_text(encoding="utf-8").count("\n") == 1


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_stays_away_got_nothing(era: str):
    clock = FakeClock()
    async with spoken(era, clock=clock) as (http, channel):
        assert await ask(channel, era=era) == "hi"
        await http.stop()
        calling = asyncio.create_task(ask(channel, era=era))
        await advanced_until(clock, calling.done)
        with pytest.raises(NotDelivered):
            await calling


@pytest.mark.requirement("call:once:otherwise-unknown")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", ["reset", "die", do("progress", count=1, then="reset")])
async def test_what_was_sent_and_lost_has_an_unknown_outcome(way: tuple[str, str], end: Any):
    async with spoken(way[0], {"answer": way[1]}) as (_, channel):
        with pytest.raises(OutcomeUnknown):
            await ask(channel, end, era=way[0], tap=Tap(1, lambda _heard: None))
        assert channel.alive
        assert await ask(channel, era=way[0]) == "hi"


@pytest.mark.parametrize("way", WAYS)
async def test_closing_tells_who_waits_that_the_outcome_is_unknown(way: tuple[str, str]):
    reasons: list[str] = []
    before = open_descriptors()
    events = Events(on_closed=reasons.append)
    async with spoken(way[0], {"answer": way[1]}, events=events) as (http, channel):
        calls = [asyncio.create_task(ask(channel, "never", era=way[0])) for _ in range(3)]
        await http.saw("tools/call", 3)
        await channel.close()
        for call in calls:
            with pytest.raises(OutcomeUnknown):
                await call
        with pytest.raises(NotDelivered):
            await ask(channel, era=way[0])
        await channel.close()
        assert reasons == []
    await closed_again(before)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - one call, no directory kept open


async def closed_again(before: int) -> None:
    """Wait until no more descriptors are open than before."""
    await until(lambda: open_descriptors() <= before)


async def test_closing_is_not_held_up_by_a_server_that_does_not_answer():
    async with spoken("legacy") as (http, channel):
        http.choose = lambda _seen: "never"
        channel.notify("notifications/anything", b"{}")
        async with asyncio.timeout(10):
            await channel.close()


@pytest.mark.parametrize("era", ERAS)
async def test_a_request_without_time_is_not_sent(era: str):
    async with spoken(era) as (http, channel):
        with pytest.raises(DeadlineExceeded):
            await ask(channel, era=era, seconds=0)
        assert await ask(channel, era=era) == "hi"
        assert len(seen_by(http, "POST", "tools/call")) == 1


@pytest.mark.requirement("call:once:resend-unsent")
@pytest.mark.parametrize("way", WAYS)
async def test_a_connection_the_server_closed_while_nobody_used_it_costs_nothing(
    way: tuple[str, str], tmp_path: Path
):
    executed, clock = tmp_path / "executed", FakeClock()
    async with spoken(way[0], {"answer": way[1]}, clock=clock) as (http, channel):
        for number in range(1, 6):
            step = do("ledger", path=str(executed))
            assert await ask(channel, step, era=way[0]) == "hi"
            assert executed.read_text(encoding="utf-8").count("\n") == number
            http.close_idle()
            await clock.advance(5)  # time enough to read that it was closed


@pytest.mark.requirement("transport:http:one-session")
@pytest.mark.parametrize("way", WAYS)
async def test_one_connection_serves_call_after_call(way: tuple[str, str]):
    async with spoken(way[0], {"answer": way[1], "stateful": False}) as (http, channel):
        await ask(channel, era=way[0])
        before = http.connections_made
        for _ in range(20):
            await ask(channel, era=way[0])
            await FakeClock().settle(4)
        assert http.connections_made == before


@pytest.mark.requirement("transport:http:one-session")
async def test_a_stream_that_goes_on_after_its_answer_is_let_end_and_serves_again():
    tail = {"jsonrpc": "2.0", "method": "vendor/tail", "params": "x" * 500_000}
    frame = '{"jsonrpc":"2.0","id":@ID@,"result":@RESULT@}' + "\n" + json.dumps(tail)
    async with spoken("modern", {"answer": "sse"}) as (http, channel):
        for _ in range(5):
            assert await ask(channel, do("raw", frame=frame), era="modern") == "hi"
            await FakeClock().settle(500)
        assert http.connections_made == 1


# Giving up


async def test_giving_up_on_a_legacy_call_names_it_to_the_server(tmp_path: Path):
    told = tmp_path / "told"
    async with spoken("legacy") as (http, channel):
        with pytest.raises(DeadlineExceeded):
            await ask(channel, do("sleep_until_cancelled", path=str(told)), seconds=0.1)
        await http.saw("notifications/cancelled")
        (call,) = seen_by(http, "POST", "tools/call")
        (note,) = seen_by(http, "POST", "notifications/cancelled")
        assert note.message["params"]["requestId"] == call.message["id"]
        assert note.headers["Mcp-Session-Id"] == call.headers["Mcp-Session-Id"]
        assert await ask(channel) == "hi"
        assert told.read_text(encoding="utf-8") == "cancelled\n"


@pytest.mark.parametrize("answer", ["json", "sse"])
async def test_giving_up_on_a_modern_call_ends_its_request(answer: str, tmp_path: Path):
    told = tmp_path / "told"
    async with spoken("modern", {"answer": answer}) as (http, channel):
        step = do("sleep_until_cancelled", path=str(told))
        calling = asyncio.create_task(ask(channel, step, era="modern"))
        await http.saw("tools/call")
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await until(told.exists)
        assert http.count("notifications/cancelled") == 0
        assert await ask(channel, era="modern") == "hi"


async def test_the_handshake_is_never_cancelled():
    async with (
        ScriptedHttpServer(server=script(on={"initialize": "never"}), dialects=("legacy",)) as http,
        http_channel(http) as channel,
    ):
        with pytest.raises(DeadlineExceeded):
            await channel.request("initialize", initialize_params(), deadline=within(0.1))
        assert http.count("notifications/cancelled") == 0


async def test_a_handshake_in_vain_leaves_the_channel_usable():
    """An endpoint that knows neither the greeting nor HTTP+SSE may still be a modern one."""
    async with (
        ScriptedHttpServer(server=script(), dialects=("modern",)) as http,
        http_channel(http) as channel,
    ):
        http.inject(do("http", status=405, body="what?", type="text/plain"), method="initialize")
        with pytest.raises(RemoteError, match="HTTP 405"):
            await channel.request("initialize", initialize_params(), deadline=within(10))
        probe = with_meta(b"", modern_meta())
        found: Any = await channel.request("server/discover", probe, deadline=within(10))
        assert found["supportedVersions"] == ["2026-07-28"]


# Sizes and shapes


@pytest.mark.parametrize("answer", ["json", "sse"])
async def test_an_answer_just_over_the_cap_fails_and_one_just_under_is_read(answer: str):
    limits = HttpLimits(body_bytes=10_000, event_bytes=10_000)
    async with spoken("modern", {"answer": answer}, limits=limits) as (_, channel):
        with pytest.raises(MalformedReply):
            await ask(channel, do("big", bytes=10_000), era="modern")
        assert len(await ask(channel, do("big", bytes=9_000), era="modern")) == 9_000


async def test_a_batch_is_read_for_the_one_answer_in_it():
    async with spoken("legacy") as (_, channel):
        assert await ask(channel, "batch") == "hi"


async def test_progress_is_heard_by_the_call_it_is_for_and_by_no_other():
    heard: list[Progress] = []
    async with spoken("legacy", {"answer": "sse"}) as (_, channel):
        assert await ask(channel, do("progress", count=2), tap=Tap(7, heard.append))
        stray = do("flood", count=1, method="notifications/progress", params=tick(8))
        assert await ask(channel, stray, tap=Tap(7, heard.append)) == "hi"
        own = do("flood", count=1, method="notifications/progress", params=tick(7))
        assert await ask(channel, own) == "hi"  # nobody asked for it
    assert heard == [Progress(1, 2), Progress(2, 2)]


def tick(token: int) -> dict[str, int]:
    return {"progressToken": token, "progress": 99}


async def test_a_flood_on_one_channel_does_not_stop_another():
    async with (
        spoken("modern", {"answer": "sse"}) as (_, flooded),
        spoken("modern") as (_, other),
    ):
        flood = asyncio.create_task(
            ask(flooded, do("flood", count=20_000), era="modern", seconds=20)
        )
        calls = 0
        while not flood.done():
            assert await ask(other, era="modern") == "hi"
            calls += 1
        assert await flood == "hi"
        assert calls > 3


@pytest.mark.parametrize("way", WAYS)
async def test_many_calls_at_once_each_get_their_own_answer(way: tuple[str, str]):
    texts = [f"{number} " * (number * 20) for number in range(100)]
    async with spoken(way[0], {"answer": way[1]}) as (_, channel):
        calls = (ask(channel, text=text, era=way[0]) for text in texts)
        assert await asyncio.gather(*calls) == texts
