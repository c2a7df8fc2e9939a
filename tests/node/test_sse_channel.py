"""The channel over legacy HTTP+SSE: requests by POST, every answer on one stream."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
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
from bascule.node.pool.transport.channel import Events
from bascule.node.pool.transport.sse import SseChannel, open_sse
from bascule.node.pool.transport.taps import Tap
from bascule.node.pool.transport.upstream import HttpLimits
from bascule.testing import ScriptedHttpServer, do
from tests.node.remote_channels import (
    Keys,
    ask,
    script,
    seen_by,
    sse_channel,
    upstream_to,
    within,
)
from tests.waits import SOON_SECONDS, until

TOKEN = "glpat-0123456789abcdef"  # pragma: allowlist secret
EVENTS = "text/event-stream"


@asynccontextmanager
async def opened(
    settings: dict[str, Any] | None = None, **options: Any
) -> AsyncGenerator[tuple[ScriptedHttpServer, SseChannel]]:
    """Serve, open the stream and shake hands."""
    async with (
        ScriptedHttpServer(server=script(), dialects=("sse",), **settings or {}) as http,
        sse_channel(http, **options) as channel,
    ):
        yield http, channel


async def refused(http: ScriptedHttpServer) -> ServerUnavailable:
    """Return what opening the stream comes to when it comes to nothing."""
    upstream = await upstream_to(http.url)
    try:
        async with asyncio.timeout(SOON_SECONDS):
            with pytest.raises(ServerUnavailable) as caught:
                await open_sse(upstream, Events())
        assert not upstream.closed  # it belongs to whoever made it
    finally:
        await upstream.close()
    return caught.value


# The stream and the endpoint


@pytest.mark.requirement("transport:legacy-sse")
async def test_requests_go_to_the_endpoint_that_the_stream_names():
    async with opened() as (http, channel):
        assert await ask(channel) == "hi"
        opening, *posts = http.requests
        assert (opening.verb, opening.headers["Accept"]) == ("GET", EVENTS)
        assert {(seen.verb, seen.path) for seen in posts} == {("POST", "/mcp/messages")}
        assert posts[-1].headers["Content-Type"] == "application/json"
        assert posts[-1].headers["MCP-Protocol-Version"] == "2025-11-25"
        assert "MCP-Protocol-Version" not in posts[0].headers


@pytest.mark.requirement("transport:auth:bearer", "transport:headers")
async def test_the_credential_and_the_records_headers_are_on_every_kind_of_request():
    options: dict[str, Any] = {"auth_ref": "Bearer ${TOKEN}", "environ": {"TOKEN": TOKEN}}
    options["headers"] = {"X-Team": "blue"}
    async with opened({"token": TOKEN}, **options) as (http, channel):
        assert await ask(channel) == "hi"
    assert {seen.verb for seen in http.requests} == {"GET", "POST"}
    for seen in http.requests:
        assert seen.headers["Authorization"] == f"Bearer {TOKEN}"
        assert seen.headers["X-Team"] == "blue"


@pytest.mark.requirement("transport:egress:redirect")
async def test_an_endpoint_of_another_origin_gets_nothing():
    async with (
        ScriptedHttpServer(server=script()) as other,
        ScriptedHttpServer(server=script(), dialects=("sse",), endpoint=other.url) as http,
    ):
        assert "another origin" in str(await refused(http))
        assert other.requests == []
        assert [seen.verb for seen in http.requests] == ["GET"]


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (do("http", status=404, body="no"), "HTTP 404"),
        (do("http", body="{}"), "no event stream"),
        (do("http", type=EVENTS, body=": hello\n\n"), "before it named an endpoint"),
        (do("http", type=EVENTS, body="data: hello\n\n"), "before it named an endpoint"),
        ("reset", "lost"),
    ],
)
async def test_what_is_no_stream_with_an_endpoint_is_said_to_be_none(step: Any, words: str):
    async with ScriptedHttpServer(server=script(), dialects=("sse",)) as http:
        http.inject(step, verb="GET", times=5)
        upstream = await upstream_to(http.url)
        try:
            async with asyncio.timeout(SOON_SECONDS):
                with pytest.raises((ServerUnavailable, OutcomeUnknown), match=words):
                    await open_sse(upstream, Events())
            assert not upstream.closed
        finally:
            await upstream.close()


async def test_a_closed_port_got_nothing():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    assert isinstance(await refused(ScriptedHttpServer(port=port)), NotDelivered)


# Answers


async def test_answers_find_their_calls_in_any_order(tmp_path: Path):
    gates = [tmp_path / f"gate{number}" for number in range(5)]
    async with opened() as (http, channel):
        calls = [
            asyncio.create_task(ask(channel, do("gate", path=str(gate)), text=gate.name))
            for gate in gates
        ]
        await http.saw("tools/call", len(gates))
        for gate, call in reversed(list(zip(gates, calls, strict=True))):
            gate.touch()
            assert await call == gate.name


@pytest.mark.requirement("call:bad-frame:own-call")
@pytest.mark.parametrize("fault", ["cut_json", "bad_utf8", "duplicate_keys", "nan", "no_version"])
async def test_an_unreadable_answer_fails_its_own_call_only(fault: str):
    async with opened() as (http, channel):
        sibling = asyncio.create_task(ask(channel, "never"))
        await http.saw("tools/call")
        with pytest.raises(MalformedReply):
            await ask(channel, fault)
        assert not sibling.done()
        assert await ask(channel) == "hi"
        sibling.cancel()
        await asyncio.gather(sibling, return_exceptions=True)


@pytest.mark.requirement("call:bad-frame:connection")
async def test_an_answer_that_may_be_anybodys_fails_all_calls_once():
    frame = '{"jsonrpc":"2.0","result":{"content":[NaN]}}'
    async with opened() as (http, channel):
        sibling = asyncio.create_task(ask(channel, "never"))
        await http.saw("tools/call")
        for call in (ask(channel, do("raw", frame=frame)), sibling):
            with pytest.raises(MalformedReply):
                await call
        assert await ask(channel) == "hi"


@pytest.mark.parametrize("fault", ["foreign_id", "wrong_id", "string_id", "not_json"])
async def test_an_answer_for_nobody_is_dropped_and_the_right_one_still_counts(fault: str):
    async with opened() as (_, channel):
        assert await ask(channel, do(fault, then="echo")) == "hi"
        with pytest.raises(DeadlineExceeded):
            await ask(channel, fault, seconds=0.1)
        assert await ask(channel) == "hi"


async def test_a_json_rpc_error_reaches_its_caller_whole():
    async with opened() as (_, channel):
        with pytest.raises(RemoteError) as caught:
            await ask(channel, do("rpc_error", code=-32050, message="no", data={"a": 1}))
        assert (caught.value.rpc_code, caught.value.data) == (-32050, {"a": 1})


async def test_progress_is_heard_in_order_and_ends_with_the_call():
    heard: list[Progress] = []
    async with opened() as (_, channel):
        assert await ask(channel, do("progress", count=3), tap=Tap(7, heard.append))
        stray = {"progressToken": 7, "progress": 9}
        flood = do("flood", count=1, method="notifications/progress", params=stray)
        assert await ask(channel, flood) == "hi"
    assert heard == [Progress(1, 3), Progress(2, 3), Progress(3, 3)]


async def test_a_caller_that_raises_when_it_hears_of_progress_harms_no_other():
    raised: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, what: raised.append(what))

    def told(progress: Progress) -> None:
        raise LookupError(progress)

    async with opened() as (_, channel):
        assert await ask(channel, do("progress", count=2), tap=Tap(7, told)) == "hi"
        assert [type(what["exception"]) for what in raised] == [LookupError, LookupError]
        assert await ask(channel) == "hi"
    asyncio.get_running_loop().set_exception_handler(None)


async def test_an_announcement_is_heard():
    heard: list[str] = []
    events = Events(on_notification=lambda method, _params: heard.append(method))
    async with opened(events=events) as (_, channel):
        await ask(channel, do("change_tools", times=2))
        assert heard == ["notifications/tools/list_changed"] * 2


@pytest.mark.requirement("wire:server-requests-refused")
async def test_what_the_server_asks_is_answered_or_refused():
    async def roots(method: str, params: Any) -> Any:
        return {"method": method, "params": params}

    async with opened() as (_, channel):
        assert json.loads(await ask(channel, "server_request"))["error"]["code"] == -32601
        assert json.loads(await ask(channel, do("server_request", method="ping")))["result"] == {}
    async with opened(events=Events(on_request=roots)) as (_, channel):
        step = do("server_request", method="roots/list", params={"a": 1})
        answer = json.loads(await ask(channel, step))
        assert answer["result"] == {"method": "roots/list", "params": {"a": 1}}


# Delivered or not


@pytest.mark.requirement("call:once:otherwise-unknown")
async def test_a_stream_that_ends_tells_every_caller_that_the_outcome_is_unknown():
    reasons: list[str] = []
    async with opened(events=Events(on_closed=reasons.append)) as (http, channel):
        sibling = asyncio.create_task(ask(channel, "never"))
        await http.saw("tools/call")
        for call in (ask(channel, "die"), sibling):
            with pytest.raises(OutcomeUnknown):
                await call
        assert len(reasons) == 1
        assert not channel.alive
        with pytest.raises(NotDelivered):
            await ask(channel)


@pytest.mark.requirement("call:once:otherwise-unknown", "wire:frame-cap")
async def test_an_event_over_the_cap_ends_the_stream():
    reasons: list[str] = []
    events, limits = Events(on_closed=reasons.append), HttpLimits(event_bytes=9000)
    async with opened(events=events, limits=limits) as (_, channel):
        assert len(await ask(channel, do("big", bytes=8_000))) == 8_000
        with pytest.raises(OutcomeUnknown, match="9000 bytes"):
            await ask(channel, do("big", bytes=9_000))
        assert len(reasons) == 1


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (do("http", status=500, body="oops"), OutcomeUnknown),
        (do("http", status=400, body="no"), RemoteError),
        (do("http", status=404, body="who?"), RemoteError),
        (do("http", status=403, body=""), ServerUnavailable),
        ("reset", OutcomeUnknown),
    ],
)
async def test_a_post_that_fails_is_the_trouble_of_its_own_call(
    step: Any, error: type[Exception], tmp_path: Path
):
    gate = tmp_path / "gate"
    async with opened() as (http, channel):
        sibling = asyncio.create_task(ask(channel, do("gate", path=str(gate)), text="sibling"))
        await http.saw("tools/call")
        http.inject(step, method="tools/call")
        with pytest.raises(error):
            await ask(channel)
        assert channel.alive
        gate.touch()
        assert await sibling == "sibling"
        assert await ask(channel) == "hi"


@pytest.mark.requirement("call:once:otherwise-unknown")
async def test_closing_tells_who_waits_that_the_outcome_is_unknown():
    reasons: list[str] = []
    async with opened(events=Events(on_closed=reasons.append)) as (http, channel):
        calls = [asyncio.create_task(ask(channel, "never")) for _ in range(3)]
        await http.saw("tools/call", 3)
        await channel.close()
        for call in calls:
            with pytest.raises(OutcomeUnknown):
                await call
        with pytest.raises(NotDelivered):
            await ask(channel)
        assert reasons == []


async def test_a_refused_token_is_renewed_once_on_either_way(tmp_path: Path):
    executed, keys = tmp_path / "executed", Keys("oldest", "old", "new")
    async with opened({"token": "old"}, keys=keys) as (http, channel):
        assert [seen.headers["Authorization"] for seen in seen_by(http, "GET")] == [
            "Bearer oldest",
            "Bearer old",
        ]
        http.token = "new"
        assert await ask(channel, do("ledger", path=str(executed))) == "hi"
        assert keys.refusals == 2
        assert executed.read_text(encoding="utf-8").count("\n") == 1
        http.token = "another"
        with pytest.raises(ServerUnavailable, match="refuses our credential"):
            await ask(channel)


# Giving up


@pytest.mark.requirement("call:cancel:upstream")
@pytest.mark.parametrize("ending", ["cancelled", "timed out"])
async def test_giving_up_on_a_call_names_it_to_the_server(ending: str, tmp_path: Path):
    told = tmp_path / "told"
    step = do("sleep_until_cancelled", path=str(told))
    async with opened() as (http, channel):
        if ending == "timed out":
            with pytest.raises(DeadlineExceeded):
                await ask(channel, step, seconds=0.1)
        else:
            calling = asyncio.create_task(ask(channel, step))
            await http.saw("tools/call")
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
        await http.saw("notifications/cancelled")
        await until(told.exists)
        (call,) = seen_by(http, "POST", "tools/call")
        (note,) = seen_by(http, "POST", "notifications/cancelled")
        assert note.message["params"]["requestId"] == call.message["id"]
        assert await ask(channel) == "hi"


async def test_the_handshake_is_never_cancelled():
    served = script(on={"initialize": "never"})
    async with ScriptedHttpServer(server=served, dialects=("sse",)) as http:
        upstream = await upstream_to(http.url)
        channel = await open_sse(upstream, Events())
        try:
            with pytest.raises(DeadlineExceeded):
                await channel.request("initialize", b"{}", deadline=within(0.1))
        finally:
            await channel.close()
        assert http.count("notifications/cancelled") == 0


async def test_a_request_without_time_is_not_sent():
    async with opened() as (http, channel):
        with pytest.raises(DeadlineExceeded):
            await ask(channel, seconds=0)
        assert await ask(channel) == "hi"
        assert len(seen_by(http, "POST", "tools/call")) == 1


async def test_closing_is_not_held_up_by_a_server_that_does_not_answer():
    async with opened() as (http, channel):
        http.choose = lambda _seen: "never"
        channel.notify("notifications/anything", b"{}")
        await http.saw("notifications/anything")
        async with asyncio.timeout(10):
            await channel.close()


async def test_many_calls_at_once_each_get_their_own_answer():
    texts = [f"{number} " * (number * 20) for number in range(100)]
    async with opened() as (_, channel):
        assert await asyncio.gather(*(ask(channel, text=text) for text in texts)) == texts
