"""One request and its answer on a connection: ASGI's messages in, bytes out.

The head of an answer that says its length leaves together with its body, in one write. Headers
that are the same on every answer come ready as bytes, under ``READY``.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from starlette.types import ASGIApp, Message, Scope
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE

from bascule.asgi.turnstile import Turnstile

logger = logging.getLogger("uvicorn.error")

#: The scope's name for its exchange; a server of another make gives none.
EXCHANGE: Final = "exchange"
#: The message's name for header lines that need no check; only an exchange reads it.
READY: Final = "ready"
#: The message's name for the whole body, beside the head of an answer; only an exchange reads it.
WHOLE: Final = "whole"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE = b"connection: close\r\n"
_OLD = "1.0"
_CHUNKED = b"transfer-encoding: chunked\r\n"
#: What the system keeps of a stream that its reader does not take.
_SMALL_BUFFER = 16 * 1024
_BODILESS = frozenset({204, 304})


class Connection(Protocol):
    """What an exchange needs of its connection (``BoundedHttp`` is one)."""

    transport: asyncio.Transport
    flow: FlowControl
    tasks: set[asyncio.Task[None]]
    turnstile: Turnstile

    @property
    def common_lines(self) -> bytes:
        """Return header lines of every answer, such as the date."""
        ...

    def leave(self, *, linger: bool) -> None:
        """Close once everything is sent; with ``linger``, once the caller had time to read it."""
        ...

    def on_response_complete(self) -> None:
        """Go on with the next request."""
        ...


class Exchange:
    """One request and its answer. The connection feeds ``body`` and ``more_body``."""

    __slots__ = (
        "_awaited", "_chunked", "_connection", "_head", "_left", "_news", "_silent", "body",
        "closes", "disconnected", "expects_continue", "keep_alive", "more_body", "on_lost",
        "response_complete", "response_started", "scope",
    )  # fmt: skip

    def __init__(self, connection: Connection, scope: Scope, *, keep_alive: bool) -> None:
        self._connection = connection
        self.scope = scope
        self.keep_alive = keep_alive
        #: Set: the connection ends with this answer, whatever the caller wishes.
        self.closes = False
        self.expects_continue = False
        self.body = bytearray()
        self.more_body = True
        self._news = False
        self._awaited: asyncio.Event | None = None
        self.disconnected = False
        #: Called once when the caller hangs up.
        self.on_lost: Callable[[], object] | None = None
        self.response_started = False
        self.response_complete = False
        self._head = b""
        #: How much of the body is still to come; None where the end of the connection ends it.
        self._left: int | None = 0
        self._chunked = False
        self._silent = False

    async def run(self, app: ASGIApp) -> None:
        """Have the application answer in its turn; what it leaves half done ends the connection."""
        try:
            await self._connection.turnstile.enter()
            await app(self.scope, self.receive, self.send)
        except BaseException as error:
            logger.exception("Exception in ASGI application\n", exc_info=error)
            await self._failed()
        else:
            if not (self.response_complete or self.disconnected or self._cut_off):
                logger.error("ASGI callable returned without completing its response.")
                await self._failed()
        finally:
            self.scope.pop(EXCHANGE, None)  # each would keep the other for the collector
            self._connection.tasks.discard(asyncio.current_task())

    @property
    def _cut_off(self) -> bool:
        """Say whether the connection is being closed on purpose: a reader that took nothing."""
        return self._connection.transport.is_closing()

    async def _failed(self) -> None:
        if self.response_started:
            self._close()
            return
        self.closes = True
        await self.send(_FAILED_START)
        await self.send(_FAILED_BODY)

    def tell(self) -> None:
        """Wake whoever waits to receive: there is more of the body, or an end."""
        self._news = True
        if self._awaited is not None:
            self._awaited.set()

    def lost(self) -> None:
        """Note that the caller has hung up."""
        if not self.response_complete:
            self.disconnected = True
        self.tell()
        if self.on_lost is not None:
            self.on_lost()

    def buffer_nothing(self) -> None:
        """Have ``send`` wait as soon as little is left unsent; the connection ends with the answer.

        An answer that is written to now and then notices so that its reader has stopped.
        """
        self.closes = True
        transport = self._connection.transport
        transport.set_write_buffer_limits(high=0)
        own = transport.get_extra_info("socket")
        if own is not None:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SMALL_BUFFER)

    # --- ASGI

    async def receive(self) -> Message:
        """Return the next part of the body, or that the caller is gone."""
        if self.expects_continue and not self._connection.transport.is_closing():
            self._connection.transport.write(_CONTINUE)
            self.expects_continue = False
        if not self.disconnected and not self.response_complete:
            self._connection.flow.resume_reading()
            if not self._news:
                await self._more()
            self._news = False
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.body = bytes(self.body), bytearray()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def _more(self) -> None:
        if self._awaited is None:
            self._awaited = asyncio.Event()
        self._awaited.clear()
        await self._awaited.wait()

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        flow = self._connection.flow
        if flow.write_paused and not self.disconnected:
            await flow.drain()
        if self.disconnected:
            return
        wanted = "http.response.body" if self.response_started else "http.response.start"
        if message["type"] != wanted or self.response_complete:
            raise RuntimeError(f"an ASGI message out of turn: {message['type']}")
        if self.response_started:
            self._send_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            self._start(message)

    def _start(self, message: Message) -> None:
        status: int = message["status"]
        self.response_started = True
        self.expects_continue = False
        self._silent = self.scope["method"] == "HEAD" or status in _BODILESS
        lines = [STATUS_LINE[status], self._connection.common_lines, message.get(READY, b"")]
        measured = self._add_headers(lines, message.get("headers", ()))
        whole = message.get(WHOLE)
        if whole is not None:
            measured, self._left = True, len(whole)
            if status not in _BODILESS:
                lines.append(b"content-length: %d\r\n" % len(whole))
        streamed = not measured and not self._silent
        if streamed and self.scope["http_version"] == _OLD:  # which knows no chunks
            self._left = None
        elif streamed:
            self._chunked = True
            lines.append(_CHUNKED)
        if self.closes or self.more_body or not self.keep_alive:
            self.keep_alive = False
            lines.append(_CLOSE)
        lines.append(b"\r\n")
        self._head = b"".join(lines)
        if whole is not None:
            self._send_body(whole, more=False)
        elif streamed:  # it may be long in coming, and its head is awaited
            self._connection.transport.write(self._take_head())

    def _add_headers(self, lines: list[bytes], headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Add an application's own headers; say whether the length is among them."""
        measured = False
        for given, value in headers:
            if HEADER_RE.search(given) or HEADER_VALUE_RE.search(value):
                raise RuntimeError("an ASGI header with characters that none may have")
            name = given.lower()
            if name == b"connection":
                self.closes = self.closes or b"close" in value.lower()
            elif name != b"transfer-encoding":  # both are the server's own to say
                lines += (name, b": ", value, b"\r\n")
                if name == b"content-length":
                    self._left, measured = int(value), True
        return measured

    def _take_head(self) -> bytes:
        head, self._head = self._head, b""
        return head

    def _send_body(self, body: bytes, *, more: bool) -> None:
        if self._silent:
            body, self._left = b"", 0
        elif self._chunked:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (
                b"" if more else b"0\r\n\r\n"
            )
        elif self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("an answer's body has not the length that its head says")
        piece = self._take_head() + body
        if piece:
            self._connection.transport.write(piece)
        if not more:
            self._complete()

    def _complete(self) -> None:
        self.response_complete = True
        self.tell()
        if not self.keep_alive:
            self._close()
        self._connection.on_response_complete()

    def _close(self) -> None:
        """End the connection with this exchange; half an answer is seen as half."""
        if self.response_complete:
            self._connection.leave(linger=self.more_body)
            return
        if self._head:
            self._connection.transport.write(self._take_head())
        self._connection.transport.close()


_FAILED_START: Message = {
    "type": "http.response.start",
    "status": 500,
    "headers": [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"21"),
    ],
}
_FAILED_BODY: Message = {"type": "http.response.body", "body": b"Internal Server Error"}
