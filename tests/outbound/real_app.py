"""What the real servers of the tests serve: an echo, chunks, events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

CHUNKS = 200


async def app(scope: Message, receive: Receive, send: Send) -> None:
    """Serve ``/echo``, ``/chunks`` and ``/events`` as an ASGI application."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
    elif scope["path"] == "/echo":
        body = await _body(receive)
        await _begin(send, (b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.body", "body": body})
    elif scope["path"] == "/chunks":
        await _begin(send, (b"content-type", b"text/plain"))
        await _stream(send, [b"%06d" % number * 200 for number in range(CHUNKS)])
    else:
        await _begin(send, (b"content-type", b"text/event-stream"))
        await _stream(send, [b"data: %d\n\n" % number for number in range(10)])


async def _live(receive: Receive, send: Send) -> None:
    while (message := await receive())["type"] != "lifespan.shutdown":
        await send({"type": f"{message['type']}.complete"})
    await send({"type": "lifespan.shutdown.complete"})


async def _body(receive: Receive) -> bytes:
    pieces: list[bytes] = []
    more = True
    while more:
        message = await receive()
        pieces.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(pieces)


async def _begin(send: Send, header: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [header]})


async def _stream(send: Send, pieces: list[bytes]) -> None:
    for piece in pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
