"""Answers as bytes: as uvicorn writes them, and in as few pieces as there can be."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bascule.asgi.bounded_http import Limits
from bascule.asgi.errors import ClientGone
from bascule.asgi.exchange import WHOLE, Exchange
from bascule.asgi.guard import OPEN, direct_route, route
from bascule.asgi.json import json_response, read_body, send_json
from bascule.asgi.presence import while_connected
from bascule.asgi.serve import Serving
from tests.asgi.caller import app_of
from tests.asgi.line import bounded, connected, settled

logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)

PIECES = st.lists(st.sampled_from([b"", b"x", b"hello", b"0123456789" * 20]), max_size=4)
HEADERS = st.lists(
    st.sampled_from(
        [
            (b"content-type", b"text/plain"),
            (b"X-Odd-Case", b"Kept"),
            (b"x-twice", b"1"),
            (b"connection", b"close"),
            (b"x-bad", b"a\r\nb"),
            (b"bad name", b"1"),
        ]
    ),
    max_size=3,
    unique=True,
)


@st.composite
def answers(draw: st.DrawFn) -> dict[str, Any]:
    """What an application sends, which may break off, or lie about its length."""
    pieces, off = draw(PIECES), draw(st.sampled_from([None, None, 0, 0, 0, 1, -1]))
    length = None if off is None else max(0, sum(map(len, pieces)) + off)
    sized = [] if length is None else [(b"Content-Length", b"%d" % length)]
    return {
        "status": draw(st.sampled_from([200, 200, 201, 404, 503])),
        "headers": [*draw(HEADERS), *sized],
        "pieces": pieces,
        "fails_at": draw(st.sampled_from([None, None, None, 0, 1, 2])),
    }


def application(answer: dict[str, Any]) -> Any:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        await receive()
        pieces = [*answer["pieces"], b""]
        start = {"type": "http.response.start", **{k: answer[k] for k in ("status", "headers")}}
        bodies = [
            {"type": "http.response.body", "body": piece, "more_body": place < len(pieces)}
            for place, piece in enumerate(pieces, 1)
        ]
        for place, message in enumerate([start, *bodies]):
            if place == answer["fails_at"]:
                raise KeyError("broken off")
            await send(message)

    return app


async def spoken(answer: dict[str, Any], request: bytes, kind: type[HttpToolsProtocol]) -> Any:
    """Return how a protocol answers: status line, headers, body, and whether it hangs up."""
    protocol, line = connected(application(answer), kind)
    protocol.data_received(request)
    await settled(protocol)
    head, _, body = b"".join(line.writes).partition(b"\r\n\r\n")
    status, *headers = head.split(b"\r\n")
    return status, sorted(headers), body, line.closed


async def test_white_space_around_the_value_of_a_header_is_no_part_of_it():
    seen: list[tuple[bytes, bytes]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        seen.extend(scope["headers"])
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    protocol, _ = connected(app, bounded())
    protocol.data_received(b"GET / HTTP/1.1\r\nHost: x\r\nMCP-Name: \t a b \t \r\nX:  \r\n\r\n")
    await settled(protocol)
    assert seen == [(b"host", b"x"), (b"mcp-name", b"a b"), (b"x", b"")]


@pytest.mark.parametrize("wish", [b"100-continue", b"100-Continue ", b"something"])
async def test_a_caller_who_waits_to_send_a_body_is_told_to_go_on(wish: bytes):
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        assert (await receive())["body"] == b"hi"
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    protocol, line = connected(app, bounded())
    head = b"POST / HTTP/1.1\r\nHost: x\r\nExpect: %b\r\nContent-Length: 2\r\n\r\n" % wish
    protocol.data_received(head + b"hi")
    await settled(protocol)
    told = line.writes[0] == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert told == (wish != b"something")


@settings(max_examples=300)
@given(
    answer=answers(),
    method=st.sampled_from(["GET", "GET", "HEAD"]),
    version=st.sampled_from(["1.1", "1.1", "1.0"]),
    wish=st.sampled_from(["", "connection: close\r\n"]),
)
def test_any_answer_is_written_as_uvicorn_writes_it(
    answer: dict[str, Any], method: str, version: str, wish: str
):
    sized = any(name == b"Content-Length" for name, _ in answer["headers"])
    assume(sized or version != "1.0" or method == "HEAD")  # uvicorn sends chunks to all
    request = f"{method} /a%20b?c=d HTTP/{version}\r\nhost: x\r\n{wish}\r\n".encode()

    async def both() -> tuple[Any, Any]:
        ours = await spoken(answer, request, bounded())
        return ours, await spoken(answer, request, HttpToolsProtocol)

    ours, theirs = asyncio.run(both())
    if theirs[2] and theirs[3] and ours[2] != theirs[2]:
        # the last piece of a body that is too short: we do not send it at all
        assert theirs[2].startswith(ours[2])
        ours, theirs = (*ours[:2], ours[3]), (*theirs[:2], theirs[3])
    assert ours == theirs


async def test_an_answer_of_known_length_leaves_in_one_write():
    async def hot(scope: Scope, receive: Receive, send: Send) -> None:
        await send_json(scope, send, {"got": len(await read_body(receive))})

    async def cold(request: Request) -> Response:
        return json_response({"got": len(await request.body())})

    app = app_of(
        direct_route("/hot", hot, ["POST"], permission=OPEN),
        route("/cold", cold, ["POST"], permission=OPEN),
    )
    protocol, line = connected(app, bounded())
    heads: list[bytes] = []
    for path in (b"/hot", b"/cold"):
        line.writes.clear()
        protocol.data_received(
            b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: 2\r\n\r\n{}" % path
        )
        await settled(protocol)
        [answer] = line.writes
        head, _, body = answer.partition(b"\r\n\r\n")
        assert body == b'{"got":2}'
        heads.append(head)
    names = [sorted(x.partition(b":")[0] for x in head.split(b"\r\n")) for head in heads]
    assert names[0] == names[1]
    assert b"content-security-policy" in names[0]
    assert b"x-request-id" in names[0]


async def test_the_head_of_a_stream_does_not_wait_for_its_first_piece():
    release = asyncio.Event()

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200})
        await release.wait()
        await send({"type": "http.response.body", "body": b"at last"})

    async with asyncio.timeout(20), Serving(stream) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        release.set()
        assert await reader.read() == b"7\r\nat last\r\n0\r\n\r\n"
        writer.close()


async def test_an_older_http_gets_no_chunks():
    answer = {"status": 200, "headers": [], "pieces": [b"one", b"two"], "fails_at": None}
    _, headers, body, closed = await spoken(answer, b"GET / HTTP/1.0\r\n\r\n", bounded())
    assert (body, closed) == (b"onetwo", True)
    assert not any(b"chunked" in line or b"content-length" in line for line in headers)


async def test_an_answer_without_a_body_says_no_length():
    async def said(status: int) -> bytes:
        async def answering(scope: Scope, receive: Receive, send: Send) -> None:
            del scope, receive
            await send({"type": "http.response.start", "status": status, WHOLE: b""})

        protocol, line = connected(answering, bounded())
        protocol.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await settled(protocol)
        return b"".join(line.writes)

    assert b"content-length" not in await said(204)
    assert b"content-length: 0" in await said(202)


async def test_requests_in_one_piece_are_answered_one_after_another():
    async def path(request: Request) -> Response:
        await asyncio.to_thread(lambda: None)
        return json_response(request.query_params["n"])

    app = app_of(route("/", path, ["GET"], permission=OPEN))
    protocol, line = connected(app, bounded())
    protocol.data_received(
        b"".join(b"GET /?n=%d HTTP/1.1\r\nhost: localhost\r\n\r\n" % n for n in range(5))
    )
    async with asyncio.timeout(20):
        while len(line.writes) < 5:
            await settled(protocol)
    bodies = [answer.partition(b"\r\n\r\n")[2] for answer in line.writes]
    assert bodies == [b'"%d"' % n for n in range(5)]


@pytest.mark.parametrize("body", [b"", b"content-length: 9\r\n"], ids=["whole", "unread"])
async def test_whoever_hangs_up_ends_the_work_for_it(body: bytes):
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    gone: list[bool] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del send
        try:
            await while_connected(scope, receive, work())
        except ClientGone:
            gone.append(True)

    protocol, _ = connected(app, bounded())
    protocol.data_received(b"POST / HTTP/1.1\r\nhost: localhost\r\n%b\r\n" % body)
    async with asyncio.timeout(20):
        await begun.wait()
        protocol.connection_lost(None)
        await settled(protocol)
    assert ended.is_set()
    assert gone == [True]


async def test_work_does_not_begin_for_a_caller_who_is_gone():
    begun: list[bool] = []

    async def work() -> None:
        begun.append(True)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del send
        protocol.connection_lost(None)
        with pytest.raises(ClientGone):
            await while_connected(scope, receive, work())

    protocol, _ = connected(app, bounded())
    protocol.data_received(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
    await settled(protocol)
    assert not begun


async def test_a_request_has_one_task_whatever_it_waits_for():
    tasks: list[int] = []

    async def work() -> str:
        tasks.append(len(asyncio.all_tasks() - before))
        return "done"

    async def watched(request: Request) -> Response:
        return json_response(await while_connected(request.scope, request.receive, work()))

    protocol, line = connected(app_of(route("/", watched, ["GET"], permission=OPEN)), bounded())
    before = asyncio.all_tasks()
    protocol.data_received(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
    await settled(protocol)
    assert line.writes[0].endswith(b'"done"')
    assert tasks == [1]


async def test_a_host_application_sees_every_header_of_an_answer():
    seen: list[set[bytes]] = []

    class Looking:
        def __init__(self, app: ASGIApp) -> None:
            self._app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            async def looking(message: Message) -> None:
                if message["type"] == "http.response.start":
                    seen.append({name for name, _ in message["headers"]})
                await send(message)

            await self._app(scope, receive, looking)

    async def hot(scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        await send_json(scope, send, "hot")

    inner = app_of(direct_route("/hot", hot, ["GET"], permission=OPEN))
    host = Starlette(routes=[Mount("/", app=inner)], middleware=[Middleware(Looking)])
    protocol, line = connected(host, bounded())
    protocol.data_received(b"GET /hot HTTP/1.1\r\nhost: localhost\r\n\r\n")
    await settled(protocol)
    assert line.writes[0].endswith(b'\r\n\r\n"hot"')
    assert {b"content-security-policy", b"x-request-id", b"content-length"} <= seen[0]


async def test_a_request_whose_head_came_early_is_not_cut_while_it_is_answered():
    """Its first bytes come before the answer to the one before it, which begins the silence."""
    release = {b"/first": asyncio.Event(), b"/second": asyncio.Event()}
    begun = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        begun.set()
        await release[scope["raw_path"]].wait()
        await send_json(scope, send, scope["path"])

    async def quick(scope: Scope, receive: Receive, send: Send) -> None:
        await (send_json(scope, send, 0) if scope["path"] == "/" else slow(scope, receive, send))

    limits = Limits(keep_alive_seconds=1)
    async with asyncio.timeout(20), Serving(quick, limits=limits) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /first HTTP/1.1\r\n\r\nGET /seco")
        await begun.wait()
        begun.clear()
        release[b"/first"].set()
        assert (await reader.readuntil(b'"/first"')).startswith(b"HTTP/1.1 200")
        writer.write(b"nd HTTP/1.1\r\n\r\n")
        await begun.wait()
        idle, other = await asyncio.open_connection("127.0.0.1", server.port)
        other.write(b"GET / HTTP/1.1\r\n\r\n")
        await idle.read()  # until its silence has lasted too long
        release[b"/second"].set()
        assert (await reader.readuntil(b'"/second"')).startswith(b"HTTP/1.1 200")
        for one in (writer, other):
            one.close()


async def test_an_exchange_leaves_nothing_for_the_garbage_collector():
    async def hot(scope: Scope, receive: Receive, send: Send) -> None:
        await send_json(scope, send, len(await read_body(receive)))

    protocol, line = connected(app_of(direct_route("/", hot, ["GET"], permission=OPEN)), bounded())
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            protocol.data_received(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await settled(protocol)
        left = sum(isinstance(one, Exchange) for one in gc.get_objects())
    finally:
        gc.enable()
    assert len(line.writes) == 20
    assert left <= 1  # the last, which its connection still knows


async def test_a_connection_that_comes_as_the_server_leaves_is_let_go():
    kind = bounded()
    kind.draining.set()
    _, line = connected(app_of(), kind)
    assert line.closed
    assert len(kind.connections_held) == 0
