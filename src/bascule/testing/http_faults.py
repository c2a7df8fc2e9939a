"""What only a server over HTTP can do wrong: each entry is one ``kind`` of a script's steps.

``http`` (status, type, body, headers), ``redirect`` (to, status), ``reset``, ``session_lost``,
``stream_ends`` (ids, retry_ms, abrupt; ``then`` is said after the end), ``slow_head``,
``slow_body`` and ``comments`` (seconds), ``gzip_bomb`` (bytes), ``close_after`` (then). Some kinds
of stdio have another body here: ``die`` and ``close_output`` close the connection. What goes on
for ever goes on until the client hangs up.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web

from bascule.testing.http_outlet import JSON, Exchange, Fate, Outlet
from bascule.testing.peer.faults import GOOD, MEGABYTE, TEXT, fill, flood_frame, go_on_if_told
from bascule.testing.peer.frames import Call, Server

if TYPE_CHECKING:
    from bascule.testing.peer.frames import Behaviour, Json

PACE_SECONDS = 0.01
BLOCK = 1 << 20


def outlet_of(call: Call) -> Outlet:
    """Return the wire of a call; every call over HTTP has one."""
    outlet = getattr(call, "outlet", None)
    if not isinstance(outlet, Outlet):
        raise TypeError("this behaviour needs HTTP")
    return outlet


def fated(
    act: Callable[[Json, Exchange], Awaitable[None]],
    *,
    head: bool = False,
    after: Behaviour | None = None,
) -> Behaviour:
    """Make a behaviour that does something to the connection, and then says what comes after."""

    def behave(server: Server, call: Call, spec: Json) -> None:
        outlet_of(call).add(Fate(partial(act, spec), head))
        if after is not None:
            after(server, call, spec)

    return behave


def http(server: Server, call: Call, spec: Json) -> None:
    """Answer with any response; without a ``body``, a good one under the wrong flag."""
    body = fill(server, call, spec.get("body", GOOD)).removesuffix(b"\n")
    headers = {"Content-Type": spec.get("type", JSON), **spec.get("headers", {})}

    async def answer(exchange: Exchange) -> None:
        await exchange.send(
            web.Response(status=spec.get("status", 200), body=body, headers=headers)
        )

    outlet_of(call).add(Fate(answer, head=True))


def redirect(server: Server, call: Call, spec: Json) -> None:
    """Send the client elsewhere (``to``)."""
    location = {"Location": spec["to"]}
    http(server, call, {"status": spec.get("status", 307), "body": "", "headers": location})


async def _reset(spec: Json, exchange: Exchange) -> None:
    exchange.reset()


async def _hang_up(spec: Json, exchange: Exchange) -> None:
    exchange.hang_up()


def session_lost(server: Server, call: Call, spec: Json) -> None:
    """Forget every session, and this request's with them."""
    forget = getattr(server, "forget_sessions", None)
    if forget is not None:
        forget()
    error = {"code": -32600, "message": "Session not found"}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error})
    http(server, call, {"status": 404, "body": body})


def stream_ends(server: Server, call: Call, spec: Json) -> None:
    """End the stream before the answer; with ``ids`` the rest (``then``) can be fetched."""
    outlet = outlet_of(call)
    outlet.resumable = bool(spec.get("ids", outlet.resumable))
    outlet.retry_ms = spec.get("retry_ms", outlet.retry_ms)
    outlet.add(Fate(partial(_end_stream, spec)))
    go_on_if_told(server, call, spec)


async def _end_stream(spec: Json, exchange: Exchange) -> None:
    await exchange.open_stream()
    if spec.get("abrupt"):
        exchange.reset()
    else:
        await exchange.finish()


async def _slow_head(spec: Json, exchange: Exchange) -> None:
    """Send the head of a response a byte at a time, and never its end."""
    head = b"HTTP/1.1 200 OK\r\nX-Slow: "
    while exchange.transport is not None and not exchange.transport.is_closing():
        exchange.transport.write(head[:1] or b"x")
        head = head[1:]
        await exchange.clock.sleep(spec.get("seconds", PACE_SECONDS))
    exchange.over = True


async def _slow_body(spec: Json, exchange: Exchange) -> None:
    """Send a good head, and a body a byte at a time that never comes to the point."""
    await exchange.open_json()
    while True:
        await exchange.write(b" ")
        await exchange.clock.sleep(spec.get("seconds", PACE_SECONDS))


async def _comments(spec: Json, exchange: Exchange) -> None:
    """Keep the stream alive with comments and say nothing."""
    await exchange.open_stream()
    await exchange.write(b": still here\n\n")
    exchange.later(spec.get("seconds", PACE_SECONDS), Fate(partial(_comments, spec)))


def gzip_bomb(server: Server, call: Call, spec: Json) -> None:
    """Answer well, in a thousandth of the size: ``bytes`` (a gigabyte) of text in gzip."""
    before, _, after = fill(server, call, TEXT).partition(b"%s")
    blocks = max(1, spec.get("bytes", 1 << 30) // BLOCK)

    async def explode(exchange: Exchange) -> None:
        await exchange.open_json({"Content-Encoding": "gzip"})
        for piece in squeezed(before, blocks, after):
            await exchange.write(piece)
        await exchange.finish()

    outlet_of(call).add(Fate(explode, head=True))


def squeezed(before: bytes, blocks: int, after: bytes) -> Iterator[bytes]:
    """Yield a gzip file: ``before``, megabytes of one letter, squeezed only once, ``after``."""
    fillings = b"x" * BLOCK
    checksum, size = 0, 0
    yield b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
    block = deflated(fillings)
    for raw, packed in (
        (before, deflated(before)),
        *((fillings, block) for _ in range(blocks)),
        (after, deflated(after, last=True)),
    ):
        checksum, size = zlib.crc32(raw, checksum), size + len(raw)
        yield packed
    yield struct.pack("<II", checksum, size & 0xFFFFFFFF)


def deflated(raw: bytes, *, last: bool = False) -> bytes:
    """Squeeze one piece so that pieces can be strung together."""
    squeezer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = squeezer.compress(raw)
    return packed + squeezer.flush(zlib.Z_FINISH if last else zlib.Z_FULL_FLUSH)


def close_after(server: Server, call: Call, spec: Json) -> None:
    """Go on, and close the connection after the answer without having said so."""
    outlet_of(call).hang_up = True
    server.go_on(call, spec)


def huge_line(server: Server, call: Call, spec: Json) -> None:
    """One good answer of ``bytes`` bytes, sent in pieces as they are taken."""
    before, _, after = fill(server, call, TEXT).partition(b"%s")
    total = spec.get("bytes", 100 * MEGABYTE) - len(before) - len(after)
    outlet = outlet_of(call)
    outlet.add(Fate(lambda exchange: pour(exchange, before, total, after)))
    go_on_if_told(server, call, spec)


async def _no_newline(spec: Json, exchange: Exchange) -> None:
    """``bytes`` bytes that never come to an end, then silence."""
    await pour(exchange, b"", spec.get("bytes", 400 * MEGABYTE), None)


async def pour(exchange: Exchange, before: bytes, total: int, after: bytes | None) -> None:
    """Send ``total`` bytes between two others, as JSON or as one event of a stream."""
    if exchange.answers_in_events or exchange.response is not None:
        await exchange.open_stream()
        before, after = b"data: " + before, None if after is None else after + b"\n"
    else:
        await exchange.open_json()
    await exchange.write(before)
    for start in range(0, total, BLOCK // 16):
        await exchange.write(b"x" * min(BLOCK // 16, total - start))
    if after is not None:
        await exchange.write(after)


async def _flood(spec: Json, exchange: Exchange) -> None:
    """``count`` notifications (of ``method``) as fast as they are taken."""
    event, count = b"data: %b\n\n" % flood_frame(spec), spec.get("count", 100_000)
    await exchange.open_stream()
    for start in range(0, count, 500):
        await exchange.write(event * min(500, count - start))


def stop_reading(server: Server, call: Call, spec: Json) -> None:
    """Never say more than ``then``: each request has its own connection to read from."""
    if "then" in spec:
        server.perform(call, spec["then"])


HTTP_ONLY: dict[str, Behaviour] = {
    "close_after": close_after,
    "comments": fated(_comments),
    "gzip_bomb": gzip_bomb,
    "http": http,
    "redirect": redirect,
    "reset": fated(_reset),
    "session_lost": session_lost,
    "slow_body": fated(_slow_body, head=True),
    "slow_head": fated(_slow_head, head=True),
    "stream_ends": stream_ends,
}
HTTP_FAULTS: dict[str, Behaviour] = {
    **HTTP_ONLY,
    "close_output": fated(_hang_up),
    "die": fated(_hang_up),
    "flood": fated(_flood, after=Server.go_on),
    "huge_line": huge_line,
    "no_newline": fated(_no_newline),
    "stderr": Server.go_on,  # there is no process of its own here
    "stop_reading": stop_reading,
}
