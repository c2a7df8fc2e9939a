"""The headers that every answer has: what a browser may do with it, and the request's number.

No other site may read an answer, unless the guard has found that it may read this one.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import Message, Scope, Send

from bascule.asgi.exchange import EXCHANGE, READY

_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_NAMES = frozenset(name for name, _ in _HEADERS)
#: The same as they are written, up to the number of the request.
_LINES = b"".join(b"%b: %b\r\n" % pair for pair in _HEADERS) + b"x-request-id: "

#: What else of an answer a page may read.
_EXPOSED = b"Mcp-Session-Id, WWW-Authenticate, Retry-After, X-Request-Id"


class Answer:
    """The ``send`` of a request: puts the headers on that every answer has."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self.started = False
        #: The other origin that may read the answer.
        self.reader: str | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            message = self._dressed(message)
        await self._send(message)

    def _dressed(self, message: Message) -> Message:
        own: Sequence[tuple[bytes, bytes]] = message.get("headers", ())
        if self.reader is not None:
            own = [*own, *_readable_by(self.reader)]
        names = {name.lower() for name, _ in own}
        request_id = self._scope["request_id"].encode()
        if EXCHANGE in self._scope and _NAMES.isdisjoint(names):
            lines = b"%b%b%b\r\n" % (message.get(READY, b""), _LINES, request_id)
            return {**message, READY: lines}
        own = [(name.lower(), value) for name, value in own]
        own += [pair for pair in _HEADERS if pair[0] not in names]
        return {**message, "headers": [*own, (b"x-request-id", request_id)]}


def _readable_by(origin: str) -> list[tuple[bytes, bytes]]:
    """Return the headers by which a browser lets a page read an answer; none allows cookies."""
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"Origin"),
        (b"cross-origin-resource-policy", b"cross-origin"),
    ]
