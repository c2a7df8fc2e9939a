"""A channel over streamable HTTP, in both generations.

Each request is a POST of its own: one that fails harms no other. A legacy server may give a session
id, which every later request repeats; when the server has forgotten it (404), the handshake is
repeated once for everybody and the request, which was not carried out, is sent again. Answers come
as JSON or as a stream of events; a stream that breaks is taken up again where the server allows it.
An endpoint that knows neither generation may still speak the older HTTP+SSE: then that takes over.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from msgspec import UNSET, UnsetType

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
from bascule.lifetime import Tasks, observed
from bascule.model.whole_words import beginning
from bascule.node.pool.transport import taps
from bascule.node.pool.transport.channel import Events, reply_to
from bascule.node.pool.transport.delivery import (
    First,
    HttpCall,
    HttpStatus,
    SessionLost,
    deliver,
    in_hand,
    patiently,
    refusal,
    replaced,
)
from bascule.node.pool.transport.handshake import Handshake
from bascule.node.pool.transport.http_session import POST_HEADERS, HttpSession
from bascule.node.pool.transport.restraint import Pace
from bascule.node.pool.transport.sse import SseChannel, open_sse
from bascule.node.pool.transport.taps import NO_TAP, Tap
from bascule.node.pool.transport.upstream import HttpLimits, Upstream
from bascule.outbound.failures import BrokenAnswer, Unconnected
from bascule.outbound.http import HttpAnswer
from bascule.wire import era, frames
from bascule.wire.frames import Broken, Fault, Frame, Notice, Reply, Request
from bascule.wire.http_headers import SESSION_ID
from bascule.wire.rpc_codes import UNSUPPORTED_VERSION
from bascule.wire.sse import EventTooLarge, SseEvent, SseReader
from bascule.wire.strict_json import JsonValue, dumps

_JSON = "application/json"
_EVENTS = "text/event-stream"
_GET_HEADERS = {"Accept": _EVENTS, "Accept-Encoding": "identity"}
_OK = 200
_UNKNOWN_VERB = frozenset({400, 404, 405})
_RESUMES = 3
_RETRY_LIMIT_SECONDS = 10.0
_CLOSE_SECONDS = 0.5
_DRAIN_SECONDS = 1.0
_RENEW_SECONDS = 10.0
_QUIET_SECONDS = 5.0
_LISTEN_PAUSES = 1.0, 60.0  # between one GET stream and the next: at first, and at most
_NONE: Mapping[str, str] = {}


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
        self._outdated = False
        self._session = HttpSession(upstream)
        self._greeting: bytes | None = None
        self._handshake = Handshake(self._limits.listen_seconds)
        self._listener: asyncio.Task[None] | None = None
        self._tasks = Tasks()
        self._error = ""
        self._pace = Pace(clock, events.on_pause)
        self._older: SseChannel | None = None

    @property
    def alive(self) -> bool:
        """Whether a request may still be answered."""
        older = self._older is None or self._older.alive
        return self._alive and older and not self._outdated and not self._upstream.outdated

    @property
    def apart(self) -> bool:
        """Whether each answer has a stream of its own."""
        return self._older is None

    def diagnosis(self) -> str:
        """The last thing the server's HTTP side said when it refused us."""
        return self._error

    def settle(self, peer: era.Peer) -> None:
        """Take the verdict of the negotiation: it decides which headers are sent."""
        self._session.settle(peer.era, peer.version)
        if self._older is not None:
            self._older.settle(peer)
        elif self._listener is None:
            self._start_listening()

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
        """Send a request and wait for its result; see ``Channel``.

        A usual one leaves at once, and its answer is here as soon as its head is. Whatever is not
        usual goes on ``_at_length``, with what has come of it.
        """
        if not self.alive:
            raise NotDelivered("the connection is closed")
        if self._older is not None:
            return await self._older.request(method, params, deadline=deadline, tap=tap)
        if deadline <= asyncio.get_running_loop().time():
            raise DeadlineExceeded(f"no time left for {method}")
        self._last_id = number = self._last_id + 1
        session, held, first = self._session.id, self._pace.held, None
        usual = self._session.era is not None and not self._handshake.is_before(method)
        head = self._session.head(method, name, headers) if usual else None
        if head is not None:
            try:
                body = frames.request(number, method, params)
                first = await self._upstream.post(head, body, deadline)
            except (Unconnected, DeadlineExceeded, asyncio.CancelledError) as error:
                first = error
            else:
                reply = self._usual_reply(first)
                if type(reply) is Reply and reply.id == number:
                    return reply.result
        call = HttpCall(number, method, name, params, headers or _NONE, tap or NO_TAP, session)
        return await self._at_length(call, deadline, held, first)

    def notify(self, method: str, params: bytes) -> None:
        """Send a notification in the background; modern servers get none over HTTP."""
        if self._older is not None:
            self._older.notify(method, params)
        elif self._alive and self._session.era != "modern":
            sending = self._tasks.start(self._post_quietly(frames.notification(method, params)))
            if method == "notifications/initialized":
                self._handshake.welcome = sending

    async def close(self) -> None:
        """End our session at the server, then everything here."""
        if not self._alive:
            return
        self._alive = False
        await self._tasks.end()
        if self._older is not None:
            await self._older.close()
        await self._upstream.hang_up()  # whoever waits for an answer is told before the farewell
        await self._say_goodbye()
        await self._upstream.close()

    # -- one request -------------------------------------------------------------------------

    def _usual_reply(self, answer: HttpAnswer) -> Frame | None:
        """Read an answer that is JSON and all here; None where it is another."""
        body = answer.json_body if answer.status == _OK else None
        if body is None or len(body) > self._limits.body_bytes or body[:1] == b"[":
            return None
        return frames.read(body)

    async def _at_length(
        self, call: HttpCall, deadline: float, held: float, first: First
    ) -> JsonValue:
        """Do whatever it takes to have a request answered; ``first`` is what has come of it."""
        try:
            first = in_hand(first)
            async with asyncio.timeout_at(deadline):
                if call.method == "initialize":
                    return await self._greeted(call, deadline)
                return await self._answered(call, first)
        except BaseException as error:
            if isinstance(first, HttpAnswer):
                first.close()
            late = isinstance(error, TimeoutError | DeadlineExceeded)
            if late or isinstance(error, asyncio.CancelledError):
                self._forget(call)
            if not late:
                raise
            why = self._pace.excuse(held)
            raise DeadlineExceeded(f"no answer to {call.method} in time{why}") from None

    async def _greeted(self, call: HttpCall, deadline: float) -> JsonValue:
        """Greet; an endpoint that does not know the verb may be one of HTTP+SSE."""
        try:
            return await self._answered(call)
        except HttpStatus as error:
            if error.status not in _UNKNOWN_VERB:
                raise
            try:
                older = await open_sse(
                    self._upstream, self._events, limits=self._limits, clock=self._clock
                )
            except BasculeError:
                raise error from None
        self._older = older
        return await older.request(call.method, call.params, deadline=deadline)

    async def _answered(self, call: HttpCall, first: HttpAnswer | None = None) -> JsonValue:
        """Exchange; wait a moment for a server that had answered and is being started again."""
        try:
            return await self._repaired(call, first)
        except Unconnected as error:
            if self._session.era is None or error.why != "refused":
                raise
        return await patiently(self._clock, lambda: self._repaired(call))

    async def _repaired(self, call: HttpCall, first: HttpAnswer | None = None) -> JsonValue:
        """Exchange; open the session again, once, if the server has forgotten it."""
        if first is None:
            await self._handshake.let_pass(call.method)
        session = self._session.id if first is None else call.session
        try:
            return await self._exchange(call, first)
        except SessionLost:
            await self._renewed(session)
        await self._handshake.let_pass(call.method)
        try:
            return await self._exchange(call)
        except SessionLost as error:
            raise ServerUnavailable("the server forgets every session it gives us") from error

    async def _exchange(self, call: HttpCall, first: HttpAnswer | None = None) -> JsonValue:
        """POST, and read the answer; raise for what is none, and for one that breaks off."""
        body = frames.request(call.id, call.method, call.params)
        headers = self._session.headers_of(call.method, call.name, call.headers)
        response = await self._sent("POST", body, headers, first)
        try:
            if response.status != _OK:
                await self._raise_for(response)
            result = await self._read(call, response)
        except BaseException:
            response.close()
            raise
        if not response.ended:
            self._tasks.start(response.drain(_DRAIN_SECONDS))
        return result

    async def _read(self, call: HttpCall, response: HttpAnswer) -> JsonValue:
        if call.method == "initialize":
            self._greeting = call.params
            self._session.begin(response.headers.get(SESSION_ID))
        kind = response.content_type
        if kind == _JSON:
            return self._result(call, await response.read(self._limits.body_bytes))
        if kind == _EVENTS:
            return await self._from_stream(call, response)
        raise MalformedReply(f"an answer of the type {beginning(kind, 60)!r}, not JSON or events")

    async def _sent(
        self,
        verb: str,
        body: bytes | None,
        headers: Mapping[str, str],
        first: HttpAnswer | None = None,
    ) -> HttpAnswer:
        """Send, and wait for the head of the answer."""
        own = POST_HEADERS if verb == "POST" else _GET_HEADERS
        return await deliver(self._upstream, verb, body, {**own, **headers}, first=first)

    async def _raise_for(self, response: HttpAnswer) -> None:
        """Raise what a status other than 200 means."""
        in_session = self._session.id is not None
        error, said = await refusal(
            response, self._limits.error_bytes, self._upstream.origin, in_session=in_session
        )
        self._error = said or self._error
        if (
            self._session.era is not None
            and not self._outdated
            and replaced(self._session.era, response.status, error)
        ):
            self._outdated = True
            self._events.on_closed("another server, or generation of it, answers there now")
            if isinstance(error, RemoteError) and error.rpc_code == UNSUPPORTED_VERSION:
                raise NotDelivered(str(error)) from error
        raise error

    def _result(self, call: HttpCall, body: bytes) -> JsonValue:
        """Find the answer to a request in a JSON body, which may be a batch of 2025-03-26."""
        first = None if body[:1] == b"[" else frames.read(body)
        if type(first) is Reply and first.id == call.id:
            return first.result
        for frame in frames.read_batch(body) if first is None else [first]:
            found = self._heard(call, frame)
            if found is not UNSET:
                return found
        raise MalformedReply("the answer is not to our request")

    # -- streams -----------------------------------------------------------------------------

    async def _from_stream(self, call: HttpCall, response: HttpAnswer) -> JsonValue:
        """Read events until the answer comes; take a broken stream up again if that is allowed."""
        reader = SseReader(self._limits.event_bytes)
        found = await self._read_events(call, response, reader)
        for _ in range(_RESUMES):
            if found is not UNSET or reader.last_id is None or self._session.era == "modern":
                break
            reader = reader.resumed()
            found = await self._resumed(call, reader)
        if found is UNSET:
            raise OutcomeUnknown("the stream ended before the answer")
        return found

    async def _resumed(self, call: HttpCall, reader: SseReader) -> JsonValue | UnsetType:
        delay = min((reader.retry_ms or 0) / 1000, _RETRY_LIMIT_SECONDS)
        if delay:
            await self._clock.sleep(delay)
        headers = {**self._session.headers(), "Last-Event-ID": reader.last_id or ""}
        response = await self._sent("GET", None, headers)
        try:
            if response.status != _OK or response.content_type != _EVENTS:
                raise OutcomeUnknown(f"the stream could not be resumed: HTTP {response.status}")
            return await self._read_events(call, response, reader)
        finally:
            response.close()

    async def _read_events(
        self, call: HttpCall | None, response: HttpAnswer, reader: SseReader
    ) -> JsonValue | UnsetType:
        try:
            async for chunk in response:
                for event in reader.feed(chunk):
                    found = self._event(call, event)
                    if found is not UNSET:
                        return found
                    if self._pace.over(len(event.data)):
                        await self._pace.give_way()
        except EventTooLarge as error:
            raise MalformedReply(str(error)) from error
        except BrokenAnswer:
            return UNSET
        return UNSET

    def _event(self, call: HttpCall | None, event: SseEvent) -> JsonValue | UnsetType:
        if event.event != "message" or not event.data:
            return UNSET
        if event.data.startswith(frames.LOG_HEADS):
            listeners = self._events.logs.listeners if call is None else call.tap.logs
            if not any(tap.left for tap in listeners):
                return UNSET
        return self._heard(call, frames.read(event.data))

    def _heard(self, call: HttpCall | None, frame: Frame) -> JsonValue | UnsetType:
        """Act on one frame; return the result if it is the answer to this call."""
        if isinstance(frame, Reply) and call is not None and frame.id == call.id:
            return frame.result
        if isinstance(frame, Fault) and call is not None and frame.id in (call.id, None):
            raise RemoteError(frame.code, frame.message, frame.data)
        if isinstance(frame, Broken) and call is not None and frame.id in (call.id, None):
            raise MalformedReply(f"the answer cannot be read: {frame.reason}")
        if isinstance(frame, Notice):
            self._noticed(call, frame)
        elif isinstance(frame, Request) and self._session.era != "modern":
            self._tasks.start(self._answer(frame))  # a modern server has no way to hear an answer
        return UNSET

    def _noticed(self, call: HttpCall | None, notice: Notice) -> None:
        if notice.method == taps.PROGRESS:
            taps.tell_progress(None if call is None else call.tap, notice.params)
        elif notice.method == taps.LOG and call is not None:
            taps.tell_log(call.tap.logs, notice.params)
        elif notice.method == taps.LOG:  # what a caller does cannot harm the stream of a session
            asyncio.get_running_loop().call_soon(self._events.logs.tell, notice.params)
        else:
            self._events.on_notification(notice.method, notice.params)

    async def _answer(self, request: Request) -> None:
        """Answer what the server asks, or refuse it."""
        await self._post_quietly(await reply_to(request, self._events))

    def _start_listening(self) -> None:
        """Listen to a legacy session, in place of whatever was listened to."""
        if self._listener is not None:
            self._listener.cancel()
        if self._session.era == "legacy" and self._session.id is not None:
            self._handshake.listen()
            self._listener = self._tasks.start(self._listen())

    async def _listen(self) -> None:
        """Hold the legacy GET stream open: notifications and requests that belong to no call."""
        await self._handshake.greeted()
        reader = SseReader(self._limits.event_bytes)
        pause, longest = _LISTEN_PAUSES
        while await self._listened(reader):
            hint = reader.retry_ms
            await self._clock.sleep(pause if hint is None else min(hint / 1000, longest))
            pause = min(2 * pause, longest)
            reader = reader.resumed()
            if reader.last_id is None:  # what was said meanwhile is lost
                self._events.on_notification(era.LIST_CHANGED, None)

    async def _listened(self, reader: SseReader) -> bool:
        """Listen once; say whether to do so again."""
        headers = self._session.headers()
        if reader.last_id is not None:
            headers["Last-Event-ID"] = reader.last_id
        try:
            response = await self._sent("GET", None, headers)
        except (NotDelivered, OutcomeUnknown):
            return True
        except BasculeError:
            return False
        finally:
            self._handshake.heard()
        try:
            if response.status != _OK or response.content_type != _EVENTS:
                return False
            await self._read_events(None, response, reader)
        except MalformedReply:
            return False
        finally:
            response.close()
        return True

    # -- the session -------------------------------------------------------------------------

    async def _renewed(self, lost: str | None) -> None:
        """Have the handshake repeated, once for all whose session was lost."""
        renewal = self._handshake.renewal
        if self._session.id == lost and (renewal is None or renewal.done()):
            renewal = self._handshake.renewal = self._tasks.start(self._greet_again(lost))
            renewal.add_done_callback(observed)
        if renewal is None:
            return
        await asyncio.wait({renewal})
        if renewal.cancelled():
            raise NotDelivered("the connection is closed")
        error = renewal.exception()
        if error is not None:
            raise NotDelivered(f"our session could not be opened again: {error}") from error

    async def _greet_again(self, lost: str | None) -> None:
        self._last_id += 1
        call = HttpCall(self._last_id, "initialize", None, self._greeting or b"{}", {})
        try:
            async with asyncio.timeout(_RENEW_SECONDS):
                version = era.read_initialize(await self._exchange(call)).version
                self._session.settle(self._session.era, version)
                await self._post_quietly(frames.notification("notifications/initialized", b"{}"))
        except BaseException:
            self._session.begin(lost)
            raise
        self._start_listening()
        self._events.logs.told = None  # the level was the old session's
        self._events.on_notification(era.LIST_CHANGED, None)

    async def _post_quietly(self, body: bytes) -> None:
        """Send what has no answer; a failure will show at the next request."""
        with contextlib.suppress(BasculeError, TimeoutError):
            async with asyncio.timeout(_QUIET_SECONDS):
                (await self._sent("POST", body, self._session.headers())).close()

    def _forget(self, call: HttpCall) -> None:
        """Tell a legacy server that nobody waits any more; a modern one sees the POST end."""
        if self._session.era == "legacy" and call.method != "initialize":
            params = dumps({"requestId": call.id, "reason": "the caller gave up"})
            self.notify("notifications/cancelled", params)

    async def _say_goodbye(self) -> None:
        if self._session.era != "legacy" or self._session.id is None:
            return
        with contextlib.suppress(BasculeError, TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                (await self._sent("DELETE", None, self._session.headers())).close()
