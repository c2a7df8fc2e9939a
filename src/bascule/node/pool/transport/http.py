"""A channel over streamable HTTP, in both generations.

Each request is a POST of its own: one that fails harms no other. A legacy server may give a session
id, which every later request repeats; when the server has forgotten it (404), the handshake is
repeated once for everybody and the request, which was not carried out, is sent again. Answers come
as JSON or as a stream of events; a stream that breaks is taken up again where the server allows it.
An endpoint that knows neither generation may still speak the older HTTP+SSE: then that takes over.
Above: ``bascule.node.pool.client`` through ``channel``. Below: ``upstream`` (one HTTP session, TLS
context and credential), ``bascule.wire``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine, Mapping
from typing import Any

import aiohttp
import msgspec

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import (
    BasculeError,
    DeadlineExceeded,
    MalformedReply,
    NotDelivered,
    OutcomeUnknown,
    RemoteError,
    ServerUnavailable,
)
from bascule.node.pool.transport.channel import Events, ProgressTap, read_progress, reply_to
from bascule.node.pool.transport.sse import SseChannel, open_sse
from bascule.node.pool.transport.upstream import HttpLimits, Upstream, read_capped
from bascule.wire import era, frames
from bascule.wire.frames import Broken, Fault, Frame, Notice, Reply, Request
from bascule.wire.http_headers import PROTOCOL_VERSION, SESSION_ID, request_headers
from bascule.wire.sse import EventTooLarge, SseEvent, SseReader
from bascule.wire.strict_json import JsonValue, dumps

_JSON = "application/json"
_EVENTS = "text/event-stream"
_GET_HEADERS = {"Accept": _EVENTS, "Accept-Encoding": "identity"}
_POST_HEADERS = {
    "Accept": f"{_JSON}, {_EVENTS}",
    "Accept-Encoding": "identity",
    "Content-Type": _JSON,
}
_OK, _ACCEPTED, _UNAUTHORIZED, _NOT_FOUND = 200, 202, 401, 404
_UNKNOWN_VERB = frozenset({400, 404, 405})
_RESUMES = 3
_RETRY_LIMIT_SECONDS = 10.0
_CLOSE_SECONDS = 0.5


class HttpStatus(RemoteError):
    """An HTTP status that says no, without a JSON-RPC error to say more."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(frames.INVALID_REQUEST, f"HTTP {status}{': ' if text else ''}{text}")


class SessionLost(BasculeError):
    """The server has forgotten our session; what was sent was not carried out."""


class HttpChannel:
    """One upstream endpoint, and our session with it if it keeps any."""

    def __init__(
        self,
        upstream: Upstream,
        events: Events,
        *,
        limits: HttpLimits | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._upstream = upstream
        self._events = events
        self._limits = limits or HttpLimits()
        self._clock = clock
        self._last_id = 0
        self._alive = True
        self._era: era.Era | None = None
        self._version: str | None = None
        self._session_id: str | None = None
        self._greeting: bytes | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._error = ""
        self._older: SseChannel | None = None

    @property
    def alive(self) -> bool:
        """Whether a request may still be answered."""
        return self._alive and (self._older is None or self._older.alive)

    def diagnosis(self) -> str:
        """The last thing the server's HTTP side said when it refused us."""
        return self._error

    def settle(self, peer: era.Peer) -> None:
        """Take the verdict of the negotiation: it decides which headers are sent."""
        self._era, self._version = peer.era, peer.version
        if self._older is not None:
            self._older.settle(peer)
        elif peer.era == "legacy" and self._session_id is not None:
            self._look_after(self._listen())

    async def request(
        self,
        method: str,
        params: bytes,
        *,
        deadline: float,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        progress: ProgressTap | None = None,
    ) -> Any:
        """Send a request and wait for its result; see ``Channel``."""
        if not self._alive:
            raise NotDelivered("the connection is closed")
        if self._older is not None:
            return await self._older.request(method, params, deadline=deadline, progress=progress)
        self._last_id += 1
        call = _Call(self._last_id, method, name, params, headers or {}, progress)
        try:
            async with asyncio.timeout_at(deadline):
                if method == "initialize":
                    return await self._greeted(call, deadline)
                return await self._answered(call)
        except TimeoutError:
            self._forget(call)
            raise DeadlineExceeded(f"no answer to {method} in time") from None
        except asyncio.CancelledError:
            self._forget(call)
            raise

    def notify(self, method: str, params: bytes) -> None:
        """Send a notification in the background; modern servers get none over HTTP."""
        if self._older is not None:
            self._older.notify(method, params)
        elif self._alive and self._era != "modern":
            self._look_after(self._post_quietly(frames.notification(method, params)))

    async def close(self) -> None:
        """End our session at the server, then everything here."""
        if not self._alive:
            return
        self._alive = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._older is not None:
            await self._older.close()
        await self._say_goodbye()
        await self._upstream.close()

    # -- one request -------------------------------------------------------------------------

    async def _greeted(self, call: _Call, deadline: float) -> Any:
        """Greet; an endpoint that does not know the verb may be one of HTTP+SSE."""
        try:
            return await self._answered(call)
        except HttpStatus as error:
            if error.status not in _UNKNOWN_VERB:
                raise
            try:
                older = await open_sse(self._upstream, self._events, limits=self._limits)
            except BasculeError:
                raise error from None
        self._older = older
        return await older.request(call.method, call.params, deadline=deadline)

    async def _answered(self, call: _Call) -> Any:
        """Exchange; repair the session or the credential once, where nothing was carried out."""
        session = self._session_id
        try:
            return await self._exchange(call)
        except SessionLost:
            await self._renew(session)
        try:
            return await self._exchange(call)
        except SessionLost:
            raise ServerUnavailable("the server forgets our session again and again") from None

    async def _exchange(self, call: _Call) -> Any:
        body = frames.request(call.id, call.method, call.params)
        async with self._post(body, self._headers(call)) as response:
            if call.method == "initialize":
                self._greeting = call.params
                self._session_id = response.headers.get(SESSION_ID)
            kind = response.content_type
            if kind == _JSON:
                return self._result(call, await self._json(response))
            if kind == _EVENTS:
                return await self._from_stream(call, response)
            raise MalformedReply(f"an answer of the type {kind[:60]!r}, not JSON or events")

    def _headers(self, call: _Call) -> dict[str, str]:
        if self._era == "modern" or call.method == "server/discover":
            return {**request_headers(era.MODERN, call.method, call.name), **call.headers}
        return self._session_headers()

    def _session_headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        if self._version is not None:
            headers[PROTOCOL_VERSION] = self._version
        if self._session_id is not None:
            headers[SESSION_ID] = self._session_id
        return headers

    @contextlib.asynccontextmanager
    async def _post(
        self, body: bytes, headers: Mapping[str, str]
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """POST, with a fresh credential if the first is refused; raise for what is no answer."""
        response = await self._sent("POST", body, headers)
        if response.status == _UNAUTHORIZED and await self._upstream.refused(
            response.request_info.headers
        ):
            response.release()
            response = await self._sent("POST", body, headers)
        try:
            if response.status != _OK:
                await self._raise_for(response)
            yield response
        except aiohttp.ClientPayloadError as error:
            raise OutcomeUnknown(f"the answer broke off: {error}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise OutcomeUnknown(f"the connection was lost: {_words(error)}") from error
        finally:
            response.close() if response.content_type == _EVENTS else response.release()

    async def _sent(
        self, verb: str, body: bytes | None, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        """Send, and wait for the head of the answer."""
        own = _POST_HEADERS if verb == "POST" else _GET_HEADERS
        try:
            return await self._upstream.send(
                verb, body, {**await self._upstream.headers(), **own, **headers}
            )
        except aiohttp.ClientConnectorError as error:
            raise NotDelivered(
                f"cannot connect to {self._upstream.origin}: {_words(error)}"
            ) from error
        except aiohttp.InvalidURL as error:
            raise NotDelivered("the URL cannot be used") from error
        except aiohttp.ClientConnectionResetError as error:  # raised before anything is written
            raise NotDelivered(f"the connection had been closed: {_words(error)}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise OutcomeUnknown(f"the connection was lost: {_words(error)}") from error

    async def _raise_for(self, response: aiohttp.ClientResponse) -> None:
        """Raise what a status other than 200 means."""
        status = response.status
        if status == _ACCEPTED:
            raise MalformedReply("the server accepted the request and promised no answer")
        text = await read_capped(response, self._limits.error_bytes)
        frame = frames.read(text) if text[:1] == b"{" else None
        if isinstance(frame, Fault):
            fault = RemoteError(frame.code, frame.message, frame.data)
            if status != _NOT_FOUND or self._session_id is None:
                raise fault
        if status == _NOT_FOUND and self._session_id is not None:
            raise SessionLost
        self._error = f"HTTP {status} {text[:200].decode('utf-8', 'replace')}".strip()
        if status >= 500:
            raise OutcomeUnknown(f"the server failed: HTTP {status}")
        if status in (_UNAUTHORIZED, 403):
            raise ServerUnavailable(
                f"{self._upstream.origin} refuses our credential: HTTP {status}"
            )
        raise HttpStatus(status, text[:200].decode("utf-8", "replace"))

    async def _json(self, response: aiohttp.ClientResponse) -> bytes:
        return await read_capped(response, self._limits.body_bytes)

    def _result(self, call: _Call, body: bytes) -> Any:
        """Find the answer to a request in a JSON body, which may be a batch of 2025-03-26."""
        batch = frames.read_batch(body) if body[:1] == b"[" else [frames.read(body)]
        for frame in batch:
            found = self._heard(call, frame)
            if found is not _NOTHING:
                return found
        raise MalformedReply("the answer is not to our request")

    # -- streams -----------------------------------------------------------------------------

    async def _from_stream(self, call: _Call, response: aiohttp.ClientResponse) -> Any:
        """Read events until the answer comes; take a broken stream up again if that is allowed."""
        reader = SseReader(self._limits.event_bytes)
        found = await self._read_events(call, response, reader)
        for _ in range(_RESUMES):
            if found is not _NOTHING or reader.last_id is None or self._era == "modern":
                break
            found = await self._resumed(call, reader)
        if found is _NOTHING:
            raise OutcomeUnknown("the stream ended before the answer")
        return found

    async def _resumed(self, call: _Call, reader: SseReader) -> Any:
        delay = min((reader.retry_ms or 0) / 1000, _RETRY_LIMIT_SECONDS)
        if delay:
            await self._clock.sleep(delay)
        headers = {**self._session_headers(), "Last-Event-ID": reader.last_id or ""}
        response = await self._sent("GET", None, headers)
        try:
            if response.status != _OK or response.content_type != _EVENTS:
                raise OutcomeUnknown(f"the stream could not be resumed: HTTP {response.status}")
            return await self._read_events(call, response, SseReader(self._limits.event_bytes))
        finally:
            response.close()

    async def _read_events(
        self, call: _Call | None, response: aiohttp.ClientResponse, reader: SseReader
    ) -> Any:
        try:
            async for chunk in response.content.iter_any():
                for event in reader.feed(chunk):
                    found = self._event(call, event)
                    if found is not _NOTHING:
                        return found
        except EventTooLarge as error:
            raise MalformedReply(str(error)) from error
        except (aiohttp.ClientError, OSError):
            return _NOTHING
        return _NOTHING

    def _event(self, call: _Call | None, event: SseEvent) -> Any:
        if event.event != "message" or not event.data:
            return _NOTHING
        return self._heard(call, frames.read(event.data))

    def _heard(self, call: _Call | None, frame: Frame) -> Any:
        """Act on one frame; return the result if it is the answer to this call."""
        if isinstance(frame, Reply) and call is not None and frame.id == call.id:
            return frame.result
        if isinstance(frame, Fault) and call is not None and frame.id in (call.id, None):
            raise RemoteError(frame.code, frame.message, frame.data)
        if isinstance(frame, Broken) and call is not None and frame.id in (call.id, None):
            raise MalformedReply(f"the answer cannot be read: {frame.reason}")
        if isinstance(frame, Notice):
            self._noticed(call, frame)
        elif isinstance(frame, Request):
            self._look_after(self._answer(frame))
        return _NOTHING

    def _noticed(self, call: _Call | None, notice: Notice) -> None:
        if notice.method == "notifications/progress":
            tap = None if call is None else call.progress
            heard = read_progress(notice.params)
            if tap is not None and heard is not None and _is_token(notice.params, tap.token):
                tap.heard(heard)
            return
        self._events.on_notification(notice.method, notice.params)

    async def _answer(self, request: Request) -> None:
        """Answer what the server asks, or refuse it."""
        await self._post_quietly(await reply_to(request, self._events))

    async def _listen(self) -> None:
        """Hold the legacy GET stream open: notifications and requests that belong to no call."""
        reader = SseReader(self._limits.event_bytes)
        while self._alive:
            headers = self._session_headers()
            if reader.last_id is not None:
                headers["Last-Event-ID"] = reader.last_id
            try:
                response = await self._sent("GET", None, headers)
            except BasculeError:
                return
            try:
                if response.status != _OK or response.content_type != _EVENTS:
                    return
                await self._read_events(None, response, reader)
            except BasculeError:
                return
            finally:
                response.close()
            await self._clock.sleep(min((reader.retry_ms or 1000) / 1000, _RETRY_LIMIT_SECONDS))

    # -- the session -------------------------------------------------------------------------

    async def _renew(self, lost: str | None) -> None:
        """Repeat the handshake, once for all whose session was lost."""
        if self._session_id != lost:
            return
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.get_running_loop().create_task(self._greet_again())
            self._renewal.add_done_callback(_observed)
        await asyncio.shield(self._renewal)

    async def _greet_again(self) -> None:
        self._session_id = None
        self._last_id += 1
        call = _Call(self._last_id, "initialize", None, self._greeting or b"{}", {}, None)
        try:
            await self._exchange(call)
        except SessionLost as error:
            raise ServerUnavailable("the server lost our session and gives no new one") from error
        await self._post_quietly(frames.notification("notifications/initialized", b"{}"))
        self._events.on_notification(era.LIST_CHANGED, None)

    async def _post_quietly(self, body: bytes) -> None:
        """Send what has no answer; a failure will show at the next request."""
        try:
            response = await self._sent("POST", body, self._session_headers())
        except BasculeError:
            return
        response.release()

    def _forget(self, call: _Call) -> None:
        """Tell a legacy server that nobody waits any more; a modern one sees the POST end."""
        if self._era == "legacy" and call.method != "initialize":
            params = dumps({"requestId": call.id, "reason": "the caller gave up"})
            self.notify("notifications/cancelled", params)

    async def _say_goodbye(self) -> None:
        if self._era != "legacy" or self._session_id is None:
            return
        with contextlib.suppress(BasculeError, TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                (await self._sent("DELETE", None, self._session_headers())).release()

    def _look_after(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Call(msgspec.Struct, frozen=True):
    """A request in flight."""

    id: int
    method: str
    name: str | None
    params: bytes
    headers: Mapping[str, str]
    progress: ProgressTap | None


_NOTHING: Any = object()


def _is_token(params: JsonValue, token: int) -> bool:
    return isinstance(params, dict) and params.get("progressToken") == token


def _words(error: BaseException) -> str:
    return str(error)[:200] or type(error).__name__


def _observed(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()
