"""A channel over legacy HTTP+SSE (2024-11-05): requests by POST, every answer on one stream.

The stream names the endpoint to post to, which must be of the same origin. When the stream ends,
all calls in flight have lost their answers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

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
from bascule.lifetime import Tasks
from bascule.node.pool.transport.channel import Events, reply_to
from bascule.node.pool.transport.delivery import deliver, refusal
from bascule.node.pool.transport.restraint import Pace
from bascule.node.pool.transport.taps import LOG, PROGRESS, Tap, tell_progress, token_of
from bascule.node.pool.transport.upstream import HttpLimits, Upstream
from bascule.outbound.failures import BrokenAnswer
from bascule.outbound.http import HttpAnswer
from bascule.outbound.url import Url
from bascule.wire import era, frames
from bascule.wire.frames import Broken, Fault, Frame, Notice, Reply, Request
from bascule.wire.http_headers import PROTOCOL_VERSION
from bascule.wire.sse import EventTooLarge, SseEvent, SseReader
from bascule.wire.strict_json import JsonValue, dumps

_EVENTS = "text/event-stream"
_SUCCESS = range(200, 300)
_QUIET_SECONDS = 5.0
_DOUBT_SECONDS = 0.05


async def open_sse(
    upstream: Upstream,
    events: Events,
    *,
    limits: HttpLimits | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> SseChannel:
    """Open the stream and wait for its endpoint."""
    channel = SseChannel(upstream, events, limits or HttpLimits(), clock)
    try:
        await channel.start()
    except BaseException:
        await channel.end()  # the upstream belongs to whoever made it
        raise
    return channel


class SseChannel:
    """One stream of answers and the endpoint it named."""

    apart = False

    def __init__(
        self, upstream: Upstream, events: Events, limits: HttpLimits, clock: Clock
    ) -> None:
        self._pace = Pace(clock, events.on_pause)
        self._upstream = upstream
        self._events = events
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._endpoint: asyncio.Future[Url] = self._loop.create_future()
        self._calls: dict[int, asyncio.Future[JsonValue]] = {}
        self._taps: dict[int, Tap] = {}
        self._last_id = 0
        self._alive = True
        self._closing = False
        self._version: str | None = None
        self._tasks = Tasks()
        self._reading: set[asyncio.Task[None]] = set()

    @property
    def alive(self) -> bool:
        """Whether a request may still be answered."""
        return self._alive and not self._upstream.outdated

    def diagnosis(self) -> str:
        """Nothing is said outside the protocol here."""
        return ""

    def settle(self, peer: era.Peer) -> None:
        """Take the verdict of the negotiation."""
        self._version = peer.version

    async def start(self) -> None:
        """Open the stream; raise when it is none."""
        response = await deliver(self._upstream, "GET", None, self._headers(_EVENTS))
        if response.status != 200 or response.content_type != _EVENTS:
            response.close()
            raise ServerUnavailable(f"no event stream: HTTP {response.status}")
        self._reading = {self._tasks.start(self._read(response))}
        await asyncio.shield(self._endpoint)

    async def request(
        self,
        method: str,
        params: bytes,
        *,
        deadline: float,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        tap: Tap | None = None,
    ) -> JsonValue:
        """Send a request and wait for its result; see ``Channel``."""
        del name, headers
        if not self.alive:
            raise NotDelivered("the connection is closed")
        if deadline <= asyncio.get_running_loop().time():
            raise DeadlineExceeded(f"no time left for {method}")
        self._last_id += 1
        number, held = self._last_id, self._pace.held
        answer = self._calls[number] = asyncio.get_running_loop().create_future()
        if tap is not None:
            self._taps[tap.token] = tap
        try:
            async with asyncio.timeout_at(deadline):
                await self._post(frames.request(number, method, params))
                return await answer
        except TimeoutError:
            self._forget(number, method)
            why = self._pace.excuse(held)
            raise DeadlineExceeded(f"no answer to {method} in time{why}") from None
        except asyncio.CancelledError:
            self._forget(number, method)
            raise
        finally:
            self._calls.pop(number, None)
            answer.cancel()
            if tap is not None:
                self._taps.pop(tap.token, None)

    def notify(self, method: str, params: bytes) -> None:
        """Send a notification in the background."""
        if self.alive:
            self._tasks.start(self._post_quietly(frames.notification(method, params)))

    async def close(self) -> None:
        """End the stream and the upstream; calls in flight fail."""
        await self.end()
        await self._upstream.close()

    async def end(self) -> None:
        """End the stream; whether calls in flight were carried out nobody will know."""
        self._closing = True
        self._alive = False
        await self._tasks.end()
        self._fail_all(OutcomeUnknown("the connection was closed"))
        if not self._endpoint.done():
            self._endpoint.cancel()

    def _headers(self, accept: str) -> dict[str, str]:
        headers = {"Accept": accept, "Accept-Encoding": "identity"}
        if self._version is not None:
            headers[PROTOCOL_VERSION] = self._version
        return headers

    async def _post(self, body: bytes) -> None:
        headers = {**self._headers("*/*"), "Content-Type": "application/json"}
        endpoint = await asyncio.shield(self._endpoint)
        try:
            response = await deliver(self._upstream, "POST", body, headers, url=endpoint)
        except (NotDelivered, OutcomeUnknown):
            # A server that is gone takes its stream with it, if not in the same moment: who tries
            # again now must find this connection closed.
            await asyncio.wait(self._reading, timeout=_DOUBT_SECONDS)
            raise
        try:
            if response.status not in _SUCCESS:
                limit, origin = self._limits.error_bytes, self._upstream.origin
                raise (await refusal(response, limit, origin)).error
        finally:
            response.close()

    async def _post_quietly(self, body: bytes) -> None:
        with contextlib.suppress(BasculeError, TimeoutError):
            async with asyncio.timeout(_QUIET_SECONDS):
                await self._post(body)

    async def _read(self, response: HttpAnswer) -> None:
        """Read the stream to its end, whatever it brings."""
        reader = SseReader(self._limits.event_bytes)
        reason = "the event stream ended"
        try:
            async for chunk in response:
                for event in reader.feed(chunk):
                    self._event(event)
                    if self._pace.over(len(event.data)):
                        await self._pace.give_way()
        except (EventTooLarge, BrokenAnswer) as error:
            reason = str(error)
        finally:
            response.close()
        self._lost(reason)

    def _lost(self, reason: str) -> None:
        self._alive = False
        self._fail_all(OutcomeUnknown(reason))
        if not self._endpoint.done():
            self._endpoint.set_exception(ServerUnavailable(f"{reason} before it named an endpoint"))
            self._endpoint.exception()
        if not self._closing:
            self._events.on_closed(reason)

    def _fail_all(self, error: BasculeError) -> None:
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(error)

    def _event(self, event: SseEvent) -> None:
        if event.event == "endpoint":
            self._named(event.data.decode("utf-8", "replace"))
            return
        unheard = not self._events.logs.listeners and event.data.startswith(frames.LOG_HEADS)
        if event.event == "message" and event.data and not unheard:
            self._heard(frames.read(event.data))

    def _named(self, text: str) -> None:
        """Take the endpoint, unless it leads to another origin."""
        if self._endpoint.done():
            return
        try:
            endpoint = self._upstream.url.join(text)
        except ValueError:
            endpoint = None
        if endpoint is not None and endpoint.origin == self._upstream.origin:
            self._endpoint.set_result(endpoint)
        else:
            error = ServerUnavailable("the event stream names an endpoint of another origin")
            self._endpoint.set_exception(error)

    def _heard(self, frame: Frame) -> None:
        if isinstance(frame, Reply):
            self._answer(frame.id, result=frame.result)
        elif isinstance(frame, Fault):
            self._answer(frame.id, error=RemoteError(frame.code, frame.message, frame.data))
        elif isinstance(frame, Broken):
            self._answer(frame.id, error=MalformedReply(f"cannot be read: {frame.reason}"))
        elif isinstance(frame, Notice):
            self._noticed(frame)
        elif isinstance(frame, Request):
            self._tasks.start(self._reply(frame))

    def _answer(
        self, number: int | None, *, result: JsonValue = None, error: BasculeError | None = None
    ) -> None:
        """Give one call its answer; an error that names no call is for all of them."""
        if number is None:
            if error is not None:
                self._fail_all(error)
            return
        answer = self._calls.get(number)
        if answer is None or answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)

    def _noticed(self, notice: Notice) -> None:
        """Pass it on through the loop: what a caller does cannot harm the reading."""
        if notice.method == PROGRESS:
            if token_of(notice.params) in self._taps:
                self._loop.call_soon(self._tell_progress, notice.params)
        elif notice.method == LOG:
            self._loop.call_soon(self._events.logs.tell, notice.params)
        else:
            self._events.on_notification(notice.method, notice.params)

    def _tell_progress(self, params: JsonValue) -> None:
        """Tell of progress, unless the call was answered since it was read."""
        tell_progress(self._taps.get(token_of(params) or 0), params)

    async def _reply(self, request: Request) -> None:
        """Answer what the server asks, or refuse it."""
        await self._post_quietly(await reply_to(request, self._events))

    def _forget(self, number: int, method: str) -> None:
        if method not in ("initialize", "server/discover"):
            params = dumps({"requestId": number, "reason": "the caller gave up"})
            self.notify("notifications/cancelled", params)
