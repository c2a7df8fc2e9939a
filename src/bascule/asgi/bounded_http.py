"""Uvicorn's HTTP with an end to everything that it alone would wait for.

A head that does not come, silence between requests, a reader that takes nothing, and above all the
rest of a body whose request was answered already: such an answer says ``Connection: close``, what
still comes is thrown away for a moment so that the caller can read the answer, and then the
connection is closed.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from bascule.asgi.connections import HEALTH_PATHS, SHOWN, Caps, Connections
from bascule.asgi.errors import Refused, error_body, error_response
from bascule.asgi.sse import ABORT

#: The scope's name for the exchange it belongs to, for this module alone.
_EXCHANGE: Final = "exchange"


class Limits(Struct, frozen=True, kw_only=True):
    """How long and how much the server waits for."""

    #: Calls under way when the server ends may take this long to finish.
    drain_seconds: int = 10
    #: A connection without a request is closed after this.
    keep_alive_seconds: int = 75
    #: The head of a request: everything before its body; and a TLS handshake.
    head_seconds: float = 10.0
    head_bytes: int = 64 * 1024
    #: What comes of a body after its request was answered is thrown away for this long.
    linger_seconds: float = 2.0
    #: A reader that takes nothing of an answer for this long is let go.
    stalled_seconds: float = 60.0
    connections: Caps = Caps()


DEFAULT_LIMITS = Limits()


class BoundedHttp(HttpToolsProtocol):
    """One connection; ``limits`` and ``connections`` are given by a class of each server's own."""

    limits = DEFAULT_LIMITS
    connections_held = Connections(Caps())
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    _end_timer: asyncio.TimerHandle | None = None
    _leaving = False
    _receiving = False
    _health_only = False

    # --- from the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Count the connection, and await the head of its first request."""
        super().connection_made(transport)
        self._await_head()
        address = self.client[0] if self.client else ""
        self._health_only = not self.connections_held.admit(self, address)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, and whatever was awaited of it."""
        self.connections_held.gone(self)
        self._head_came()
        self._stop_end_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take in what came, unless nobody wants it any more."""
        if self._leaving:
            return
        self._head_bytes += len(data)
        self._receiving = True
        try:
            super().data_received(data)
        finally:
            self._receiving = False
        if self._head_timer is not None and self._head_bytes > self.limits.head_bytes:
            self.send_400_response(f"A request's head may have {self.limits.head_bytes} bytes.")

    def eof_received(self) -> None:
        """Let the transport close, which first sends what is left."""
        super().eof_received()
        self._watch_the_end()

    def pause_writing(self) -> None:
        """Note that the reader is slow: it may have stopped."""
        super().pause_writing()
        self._watch_the_end()

    def resume_writing(self) -> None:
        """Note that the reader goes on."""
        super().resume_writing()
        if not self._leaving:
            self._stop_end_timer()

    # --- from the parser

    def on_message_begin(self) -> None:
        """Await the rest of a request's head."""
        super().on_message_begin()
        super()._unset_keepalive_if_required()
        extras: dict[str, Any] = self.scope  # pyright: ignore[reportAssignmentType]
        extras[ABORT] = self.transport.abort
        extras[SHOWN] = partial(self.connections_held.has_shown, self)
        self._await_head()

    def on_headers_complete(self) -> None:
        """Begin an exchange."""
        self._head_came()
        super().on_headers_complete()
        # The exchange ends the connection through us: the caller may still be sending.
        self.cycle.transport = _Outlet(self, self.cycle)  # pyright: ignore[reportAttributeAccessIssue]
        extras: dict[str, Any] = self.scope  # pyright: ignore[reportAssignmentType]
        extras[_EXCHANGE] = self.cycle
        extras[HEALTH_ONLY] = self._health_only

    def _unset_keepalive_if_required(self) -> None:
        """Go on waiting for a request while what comes is none: uvicorn takes any byte for one."""
        if not self._receiving:
            super()._unset_keepalive_if_required()

    # --- the end

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP in the shape that all errors have."""
        body = msgspec.json.encode(error_body("invalid_request", msg))
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.leave(linger=True)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection on which nothing was asked for too long."""
        self.leave(linger=False)

    def let_go(self) -> None:
        """Close it now: others need the place."""
        self._leaving = True
        self.transport.abort()

    def leave(self, *, linger: bool) -> None:
        """Close once everything is sent; with ``linger``, once the caller had time to read it."""
        if self._leaving:
            return
        self._leaving = True
        self._head_came()
        super()._unset_keepalive_if_required()
        if not linger:
            self._close()
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._end_timer = self.loop.call_later(self.limits.linger_seconds, self._close)

    def _close(self) -> None:
        self._stop_end_timer()
        self.transport.close()
        self._watch_the_end()

    def _watch_the_end(self) -> None:
        """Cut the connection if its reader takes nothing of what is left to send."""
        left = self.transport.get_write_buffer_size()
        if left and self._end_timer is None:
            self._end_timer = self.loop.call_later(
                self.limits.stalled_seconds, self._cut_if_stalled, left
            )

    def _cut_if_stalled(self, left: int) -> None:
        self._end_timer = None
        if self.transport.get_write_buffer_size() >= left:
            self.transport.abort()
        else:
            self._watch_the_end()

    def _stop_end_timer(self) -> None:
        if self._end_timer is not None:
            self._end_timer.cancel()
            self._end_timer = None

    def _await_head(self) -> None:
        self._head_came()
        self._head_timer = self.loop.call_later(
            self.limits.head_seconds, partial(self.leave, linger=False)
        )

    def _head_came(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class _Outlet:
    """The transport as one exchange uses it: closed only when the caller could read the answer."""

    def __init__(self, http: BoundedHttp, exchange: RequestResponseCycle) -> None:
        self._http = http
        self._exchange = exchange

    def write(self, data: bytes) -> None:
        """Send."""
        self._http.transport.write(data)

    def close(self) -> None:
        """End the connection with this exchange."""
        if self._exchange.response_complete:
            self._http.leave(linger=self._exchange.more_body)
        else:
            self._http.transport.close()  # half an answer: what there is, is seen as half

    def is_closing(self) -> bool:
        """Say whether nothing more is to be sent."""
        return self._http.transport.is_closing()


#: The scope's name for whether a connection stands in a place that is kept for health.
HEALTH_ONLY: Final = "health_only"


async def bounded(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request of a ``BoundedHttp``: the connection ends if its body was not read."""
    exchange: RequestResponseCycle = scope[_EXCHANGE]
    health_only = scope[HEALTH_ONLY]  # closed after this answer: the next check needs the place

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start" and (health_only or exchange.more_body):
            message = {**message, "headers": [*message.get("headers", ()), _CLOSE]}
        await send(message)

    if health_only and scope["path"] not in HEALTH_PATHS:
        app = error_response(_FULL, scope)
    await app(scope, receive, sending)


_CLOSE = (b"connection", b"close")
_FULL = Refused("too_many_connections", "the server holds as many connections as it may")
