"""The three ways MCP is spoken over HTTP, each answered as its specification says.

``modern`` is 2026-07-28: stateless, headers equal to the body. ``legacy`` is streamable HTTP with a
session or without. ``sse`` is HTTP+SSE of 2024-11-05: one stream of answers, and an endpoint to
post to.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from aiohttp import web

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.model.json import is_object
from bascule.testing.http_outlet import EVENTS, JSON, Exchange, Fate, Outlet
from bascule.testing.http_peer import HttpCall, HttpPeer, Session
from bascule.testing.http_rules import STATUS, is_modern, refuse_headers, unsupported
from bascule.testing.peer.frames import append
from bascule.testing.server import Step

if TYPE_CHECKING:
    from bascule.testing.peer.frames import Json

Dialect = Literal["modern", "legacy", "sse"]
SESSION = "Mcp-Session-Id"
VERSION = "MCP-Protocol-Version"
BAD_REQUEST = -32000
INVALID_REQUEST = -32600
PARSE_ERROR = -32700


@dataclass(kw_only=True)
class HttpSettings:
    """How a script is served."""

    dialects: tuple[Dialect, ...] = ()  # absent: as the era of the script says
    stateful: bool = True
    answer: Literal["json", "sse"] = "json"  # who has more to say than an answer streams anyway
    resumable: bool = False  # event ids on legacy streams
    retry_ms: int | None = None
    path: str = "/mcp"
    port: int = 0
    token: str | None = None  # the bearer token every request must show; may be changed
    tls: ssl.SSLContext | None = None
    endpoint: str | None = None  # what HTTP+SSE names; absent: the right one
    redirects: dict[str, str] = field(default_factory=dict[str, str])  # 307 from path to location
    clock: Clock = SYSTEM_CLOCK


@dataclass(frozen=True)
class SeenRequest:
    """A request as it came in."""

    verb: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: int  # connections are counted from one
    nth: int  # which request of its connection, from one

    @property
    def message(self) -> Json:
        """The JSON-RPC message; empty when the body is none."""
        try:
            value: object = json.loads(self.body)
        except ValueError:
            return {}
        return dict(value) if is_object(value) else {}

    @property
    def method(self) -> str | None:
        return self.message.get("method")


class Endpoint:
    """One scripted server at one URL, from its start to its end."""

    def __init__(self, settings: HttpSettings, script: Json) -> None:
        self._settings = settings
        self._dialects = settings.dialects
        self.peer = HttpPeer({**script, "era": era_of(settings.dialects)})

    async def answer(
        self, request: web.BaseRequest, seen: SeenRequest, step: Step | None
    ) -> web.StreamResponse:
        """Answer one request, or do the given step in place of an answer."""
        outlet = self.peer.outlet(resumable=False)
        outlet.retry_ms = self._settings.retry_ms
        in_events = self._settings.answer == "sse"
        exchange = Exchange(request, outlet, self._settings.clock, answers_in_events=in_events)
        if step is not None:
            call = HttpCall(seen.message, exchange.outlet)
            self.peer.perform(call, step if isinstance(step, str) else dict(step))
            await self._reply(exchange, call)
        else:
            await self._route(exchange, seen)
        return exchange.response or web.Response()

    async def _route(self, exchange: Exchange, seen: SeenRequest) -> None:
        token = self._settings.token
        if token is not None and seen.headers.get("Authorization") != f"Bearer {token}":
            await self._say(exchange, 401, "who are you?", {"WWW-Authenticate": "Bearer"})
        elif seen.path in self._settings.redirects:
            to = self._settings.redirects[seen.path]
            await self._say(exchange, 307, "moved", {"Location": to})
        elif seen.path == self._settings.path + "/messages" and "sse" in self._dialects:
            await self._post_beside_a_stream(exchange, seen)
        elif seen.path != self._settings.path:
            await self._say(exchange, 404, "nothing here")
        else:
            await self._verb(exchange, seen)

    async def _verb(self, exchange: Exchange, seen: SeenRequest) -> None:
        if seen.verb == "POST" and set(self._dialects) != {"sse"}:
            await self._post(exchange, seen)
        elif seen.verb == "GET" and SESSION in seen.headers and self._keeps_sessions:
            await self._get(exchange, seen)
        elif seen.verb == "GET" and "sse" in self._dialects:
            await self._stream(exchange)
        elif seen.verb == "DELETE" and self._keeps_sessions:
            await self._delete(exchange, seen)
        else:
            await self._say(exchange, 405, "not here", {"Allow": "POST"})

    @property
    def _keeps_sessions(self) -> bool:
        return "legacy" in self._dialects and self._settings.stateful

    # -- streamable HTTP ---------------------------------------------------------------------

    async def _post(self, exchange: Exchange, seen: SeenRequest) -> None:
        message = seen.message
        append(self.peer.script.get("journal"), seen.body)
        if not is_acceptable(seen.headers):
            await self._say(exchange, 406, f"accept both {JSON} and {EVENTS}")
        elif not seen.headers.get("Content-Type", "").startswith(JSON):
            await self._say(exchange, 415, f"send {JSON}")
        elif not message:
            await self._refuse(exchange, 400, None, (PARSE_ERROR, "not one JSON object"))
        elif "modern" in self._dialects and is_modern(seen.headers.get(VERSION), message):
            await self._modern(exchange, seen)
        elif "legacy" in self._dialects:
            await self._legacy(exchange, seen)
        else:
            await self._call(exchange, HttpCall(message, exchange.outlet))

    async def _modern(self, exchange: Exchange, seen: SeenRequest) -> None:
        """Serve a request that stands for itself; its end is its cancellation."""
        message = seen.message
        if "id" not in message:
            await self._say(exchange, 202, "")
            return
        refusal = refuse_headers(message, seen.headers, self.peer.tools)
        if refusal is not None:
            await self._refuse(exchange, 400, message["id"], refusal)
            return
        call = HttpCall(message, exchange.outlet)
        try:
            await self._call(exchange, call)
        finally:
            self.peer.forget(call.key)

    async def _legacy(self, exchange: Exchange, seen: SeenRequest) -> None:
        """Serve a request of a session, or of a server that keeps none."""
        message = seen.message
        key = message.get("id") if "method" in message else None
        if unsupported(seen.headers.get(VERSION)):
            refusal = (BAD_REQUEST, "Bad Request: Unsupported protocol version")
            await self._refuse(exchange, 400, key, refusal)
            return
        session = None
        if self._settings.stateful and message.get("method") == "initialize":
            session = self.peer.open_session(resumable=self._settings.resumable)
            exchange.headers[SESSION] = session.id
        elif self._settings.stateful:
            session = await self._session(exchange, seen)
            if session is None:
                return
        exchange.outlet.resumable = self._settings.resumable and session is not None
        await self._take(exchange, message, session)

    async def _take(self, exchange: Exchange, message: Json, session: Session | None) -> None:
        if "method" not in message or "id" not in message:
            self.peer.told(message, session)
            await self._say(exchange, 202, "")
            return
        await self._call(exchange, HttpCall(message, exchange.outlet, session))

    async def _session(self, exchange: Exchange, seen: SeenRequest) -> Session | None:
        """Find the session of a request, or refuse it."""
        name = seen.headers.get(SESSION)
        session = self.peer.sessions.get(name or "")
        if name is None:
            refusal = (INVALID_REQUEST, "Bad Request: Missing session ID")
            await self._refuse(exchange, 400, None, refusal)
        elif session is None:
            await self._refuse(exchange, 404, None, (INVALID_REQUEST, "Session not found"))
        return session

    async def _get(self, exchange: Exchange, seen: SeenRequest) -> None:
        """Open the stream of a session, or take up a broken one where it was left."""
        session = await self._session(exchange, seen)
        if session is None:
            return
        number, _, position = seen.headers.get("Last-Event-ID", "").partition(".")
        outlet = session.outlets.get(int(number)) if number.isdecimal() else None
        if outlet is not None:
            exchange.outlet, exchange.position = outlet, int(position or 0)
        else:
            exchange.outlet, exchange.position = session.stream, session.position
        await exchange.open_stream()
        try:
            await exchange.stream()
        finally:
            if exchange.outlet is session.stream:
                session.position = exchange.position

    async def _delete(self, exchange: Exchange, seen: SeenRequest) -> None:
        session = await self._session(exchange, seen)
        if session is not None:
            self.peer.close_session(session)
            await self._say(exchange, 200, "")

    # -- HTTP+SSE ----------------------------------------------------------------------------

    async def _stream(self, exchange: Exchange) -> None:
        """Name the endpoint, then carry every answer of this session."""
        session = self.peer.open_session(resumable=False)
        exchange.outlet = session.stream
        place = f"{self._settings.path}/messages?session_id={session.id}"
        await exchange.open_stream()
        await exchange.write(
            b"event: endpoint\ndata: %b\n\n" % (self._settings.endpoint or place).encode()
        )
        try:
            await exchange.stream()
        finally:
            self.peer.close_session(session)

    async def _post_beside_a_stream(self, exchange: Exchange, seen: SeenRequest) -> None:
        append(self.peer.script.get("journal"), seen.body)
        session = self.peer.sessions.get(exchange.request.query.get("session_id", ""))
        message = seen.message
        if session is None:
            await self._say(exchange, 404, "no such session")
        elif "method" not in message or "id" not in message:
            self.peer.told(message, session)
            await self._say(exchange, 202, "Accepted")
        else:
            self.peer.request(HttpCall(message, exchange.outlet, session))
            if begins_with_a_head(exchange.outlet):
                await exchange.stream()
                return
            exchange.outlet.move_to(session.stream)
            await self._say(exchange, 202, "Accepted")

    # -- answers -----------------------------------------------------------------------------

    async def _call(self, exchange: Exchange, call: HttpCall) -> None:
        self.peer.request(call)
        await self._reply(exchange, call)

    async def _reply(self, exchange: Exchange, call: HttpCall) -> None:
        """Carry what the call says: as JSON if that is all, else as events."""
        outlet = exchange.outlet
        if call.session is not None and outlet.resumable:
            call.session.outlets[outlet.number] = outlet
        if not exchange.answers_in_events:
            await outlet.first()
        body = only_line(outlet)
        status = self._status(body, call) if body is not None else 200
        if body is not None and (status != 200 or not exchange.answers_in_events):
            await exchange.send(web.Response(body=body, status=status, content_type=JSON))
            return
        if exchange.answers_in_events and not begins_with_a_head(outlet):
            await exchange.open_stream()
        await exchange.stream()
        if call.session is not None and outlet.finished and exchange.position >= len(outlet.items):
            call.session.outlets.pop(outlet.number, None)

    def _status(self, body: bytes, call: HttpCall) -> int:
        """Repeat a modern error in the status."""
        if not (call.modern or self._dialects == ("modern",)) or b'"error"' not in body:
            return 200
        try:
            return STATUS.get(json.loads(body)["error"]["code"], 200)
        except (ValueError, TypeError, KeyError):
            return 200

    async def _refuse(
        self, exchange: Exchange, status: int, key: object, refusal: tuple[int, str]
    ) -> None:
        error = {"code": refusal[0], "message": refusal[1]}
        body = json.dumps({"jsonrpc": "2.0", "id": key, "error": error})
        await exchange.send(web.Response(text=body, status=status, content_type=JSON))

    async def _say(
        self, exchange: Exchange, status: int, text: str, headers: Mapping[str, str] | None = None
    ) -> None:
        await exchange.send(web.Response(text=text, status=status, headers=headers))


def era_of(dialects: tuple[Dialect, ...]) -> str:
    """Return what the script's own protocol has to know of the dialects."""
    if "modern" not in dialects:
        return "legacy"
    return "modern" if dialects == ("modern",) else "dual"


def is_acceptable(headers: Mapping[str, str]) -> bool:
    """Whether the client takes both kinds of answers, as it must."""
    accepted = headers.get("Accept", "")
    return "*/*" in accepted or (JSON in accepted and EVENTS in accepted)


def only_line(outlet: Outlet) -> bytes | None:
    """Return the one line that is all there is to say, if it is."""
    only = outlet.items[0] if outlet.finished and len(outlet.items) == 1 else None
    return None if isinstance(only, Fate) else only


def begins_with_a_head(outlet: Outlet) -> bool:
    """Whether the first thing to do cannot be done within a stream."""
    first = outlet.items[0] if outlet.items else None
    return isinstance(first, Fate) and first.head
