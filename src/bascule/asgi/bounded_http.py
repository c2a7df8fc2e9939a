"""Uvicorn's HTTP with an end to everything that it alone would wait for.

A head that does not come, silence between requests, a reader that takes nothing, and above all the
rest of a body whose request was answered already: such an answer says ``Connection: close``, what
still comes is thrown away for a moment so that the caller can read the answer, and then the
connection is closed. Of uvicorn remain the parser, the server and its end; requests are answered by
``exchange.py``, and no timer is set for one.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from math import inf
from urllib.parse import unquote

import httptools
import msgspec
from msgspec import Struct
from starlette.types import ASGIApp, Scope
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bascule.asgi.connections import HEALTH_PATHS, SHOWN, SWEEP_SECONDS, Caps, Connections
from bascule.asgi.errors import Refused, error_body, error_response
from bascule.asgi.exchange import EXCHANGE, Exchange
from bascule.asgi.sse import ABORT, DRAINING
from bascule.asgi.turnstile import Turnstile

_LEAST_SWEEP_SECONDS = 0.005
_ASGI = {"version": "3.0", "spec_version": "2.3"}
_PLAIN_PATH = re.compile(rb"/[0-9A-Za-z/_.-]*")


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

    @property
    def sweep_seconds(self) -> float:
        """Return how often to look for connections that waited for too long: late by a quarter."""
        shortest = min(self.head_seconds, self.keep_alive_seconds)
        return min(SWEEP_SECONDS, max(shortest / 4, _LEAST_SWEEP_SECONDS))


DEFAULT_LIMITS = Limits()


class BoundedHttp(HttpToolsProtocol):
    """One connection; the first four attributes are given by a class of each server's own."""

    limits = DEFAULT_LIMITS
    connections_held = Connections(Caps())
    turnstile = Turnstile()
    draining: asyncio.Event
    app: ASGIApp
    parser: httptools.HttpRequestParser  # pyright: ignore[reportIncompatibleVariableOverride]
    cycle: Exchange  # pyright: ignore[reportIncompatibleVariableOverride]
    pipeline: deque[tuple[Exchange, ASGIApp]]  # pyright: ignore[reportIncompatibleVariableOverride]
    #: The exchange that is being answered; ``cycle`` may be one that waits for it.
    _answering: Exchange | None = None
    _head_bytes = 0
    _awaits_head = True
    #: When the connection has waited long enough for what it waits for.
    _until = inf
    _end_timer: asyncio.TimerHandle | None = None
    _leaving = False
    _health_only = False
    _known = False
    _date: tuple[object, bytes] = (None, b"")

    # --- from the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Count the connection, and await the head of its first request."""
        super().connection_made(transport)
        if self.draining.is_set():  # it came as the server left
            self.let_go()
            return
        self._await_head()
        address = self.client[0] if self.client else ""
        self._health_only = not self.connections_held.admit(self, address)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, and whatever was awaited of it; tell who works for its caller."""
        self.connections_held.gone(self)
        self.connections.discard(self)
        self._until = inf
        self._stop_end_timer()
        self.flow.resume_writing()
        if self._answering is not None:
            self._answering.lost()
        if exc is None:
            self.transport.close()
        del self.parser  # it refers to us

    def data_received(self, data: bytes) -> None:
        """Take in what came, unless nobody wants it any more."""
        if self._leaving:
            return
        self._head_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return  # the request before it is answered as any other
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
            return
        if self._awaits_head and self._head_bytes > self.limits.head_bytes:
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
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._await_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; the parser leaves the white space after a value to us."""
        name, value = name.lower(), value.rstrip(b" \t")
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Begin an exchange, or have it wait for the one before."""
        self._awaits_head, self._until, self._head_bytes = False, inf, 0
        version = self.parser.get_http_version()
        scope = self._scope(version)
        keep_alive = version != "1.0" and self.parser.should_keep_alive()
        exchange = Exchange(self, scope, keep_alive=keep_alive)
        self.cycle = scope[EXCHANGE] = exchange  # pyright: ignore[reportIncompatibleVariableOverride]
        exchange.closes = self._health_only  # the next check needs the place
        exchange.expects_continue = self.expect_100_continue
        if self._answering is None:
            self._answer(exchange)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((exchange, self.app))

    def on_body(self, body: bytes) -> None:
        """Hand on a part of a body, unless its request was answered already."""
        exchange = self.cycle
        if exchange.response_complete:
            return
        exchange.body += body
        if len(exchange.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        exchange.tell()

    def on_message_complete(self) -> None:
        """Note that a body is complete."""
        if not self.cycle.response_complete:
            self.cycle.more_body = False
            self.cycle.tell()

    def on_response_complete(self) -> None:
        """Answer the next request, or await one."""
        self.server_state.total_requests += 1
        self._answering = None
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._answer(self.pipeline.pop()[0])
        elif not self._awaits_head:
            self._until = self.loop.time() + self.limits.keep_alive_seconds

    def _scope(self, version: str) -> Scope:
        path, raw_path, query = _address(self.url)
        scope: Scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "method": self.parser.get_method().decode("ascii"),
            "scheme": self.scheme,
            "server": self.server,
            "client": self.client,
            "root_path": "",
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self.headers,
            "state": {},
            DRAINING: self.draining,
            ABORT: self.transport.abort,
        }
        if not self._known:
            scope[SHOWN] = self._has_shown
        return scope

    def _has_shown(self) -> None:
        self._known = True
        self.connections_held.has_shown(self)

    def _answer(self, exchange: Exchange) -> None:
        """Have the application answer, in a task that the server knows of."""
        app = self.app
        if self._health_only and exchange.scope["path"] not in HEALTH_PATHS:
            app = error_response(_FULL, exchange.scope)
        self._answering = exchange
        self.tasks.add(self.loop.create_task(exchange.run(app)))

    @property
    def common_lines(self) -> bytes:
        """Return the date, which uvicorn renews every second, as a line."""
        headers = self.server_state.default_headers
        if self._date[0] is not headers:
            lines = b"".join(b"%b: %b\r\n" % pair for pair in headers)
            self._date = headers, lines
        return self._date[1]

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

    def end_if_overdue(self, now: float) -> None:
        """Close a connection on which no head came in time, or nothing was asked for too long."""
        if self._until <= now:
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
        self._awaits_head, self._until = False, inf
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
        self._head_bytes = 0
        self._awaits_head = True
        self._until = self.loop.time() + self.limits.head_seconds


def _address(url: bytes) -> tuple[str, bytes, bytes]:
    """Return the path of a request's target, decoded and as it came, and the query."""
    if _PLAIN_PATH.fullmatch(url):
        return url.decode("ascii"), url, b""
    parts = httptools.parse_url(url)
    path = parts.path.decode("ascii")
    return unquote(path) if "%" in path else path, parts.path, parts.query or b""


_FULL = Refused("too_many_connections", "the server holds as many connections as it may")
