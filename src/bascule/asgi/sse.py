"""Server-sent events: a source of events as an answer that stays open.

The source is asked for its next event only when the one before has left, so a slow reader slows
its own source and nothing else; one that reads nothing at all for a while is let go. The source is
closed when the reader hangs up, when the server drains and when anything fails. ``wire.sse``
reads what this writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec
from msgspec import Struct
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from bascule.asgi.errors import ClientGone, as_refused, error_body
from bascule.asgi.presence import disconnected, first_of
from bascule.clock import Clock

logger = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 15.0
STALLED_SECONDS = 30.0
#: The scope's name for the event that is set when the server begins to drain.
DRAINING = "draining"
#: The scope's name for what cuts the connection without waiting for its reader.
ABORT = "abort"
#: A sign of life, which readers skip.
KEEP_ALIVE = b": keep-alive\n\n"
_ONE_LINE = str.maketrans("", "", "\r\n\0")


class Event(Struct, frozen=True, kw_only=True):
    """One event; ``data`` is written as JSON unless it is bytes already."""

    data: object
    event: str | None = None
    id: str | None = None


def encode(event: Event) -> bytes:
    """Return an event as it stands in a stream."""
    lines: list[bytes] = []
    for name, value in (("event", event.event), ("id", event.id)):
        if value is not None:
            lines.append(f"{name}: {_line(value)}".encode())
    data = event.data if isinstance(event.data, bytes) else msgspec.json.encode(event.data)
    lines += [b"data: " + line for line in data.splitlines() or [b""]]
    return b"\n".join(lines) + b"\n\n"


def _line(text: str) -> str:
    """Return a field's value, which must not begin a new line: it could forge an event."""
    if text.translate(_ONE_LINE) != text:
        raise ValueError(f"{text!r} does not fit in one line of an event")
    return text


class EventStream(Response):
    """An answer that sends the events of a source until one side has had enough.

    Bytes are events that were encoded already, once for many readers.
    A comment is sent when nothing else has been for ``keep_alive_seconds``. An error of the source
    is the last event, named ``error``, in the shape that all errors have. One that ``finishes`` is
    let end by itself when the server drains, as any other call, within the drain's own deadline.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        source: AsyncGenerator[Event | bytes, None],
        clock: Clock,
        *,
        keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
        stalled_seconds: float = STALLED_SECONDS,
        finishes: bool = False,
    ) -> None:
        super().__init__(status_code=200, headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._source = source
        self._clock = clock
        self._keep_alive_seconds = keep_alive_seconds
        self._stalled_seconds = stalled_seconds
        self._finishes = finishes
        self._quiet = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send headers, then events; let a reader go that has stopped reading."""
        async with writing(scope, send, self._stalled_seconds) as out, aclosing(self._source):
            await out.start(self.status_code, self.raw_headers)
            if scope["method"] != "HEAD":
                await self._stream(scope, receive, out)
            await out.close()

    async def _stream(self, scope: Scope, receive: Receive, out: Out) -> None:
        works: list[Coroutine[Any, Any, object]] = [
            self._pump(out),
            self._tick(out),
            disconnected(receive),
        ]
        draining = scope.get(DRAINING)
        if isinstance(draining, asyncio.Event) and not self._finishes:
            works.append(draining.wait())
        await first_of(*works)

    async def _pump(self, out: Out) -> None:
        try:
            async for event in self._source:
                self._quiet = False
                await out.write(event if isinstance(event, bytes) else encode(event))
        except Stalled:
            raise
        except Exception as error:  # noqa: BLE001 - the answer has begun: its last event tells
            await out.write(encode(_last_words(error)))

    async def _tick(self, out: Out) -> None:
        while True:
            await self._clock.sleep(self._keep_alive_seconds)
            if self._quiet and not out.busy:
                await out.write(KEEP_ALIVE)
            self._quiet = True


class Stalled(Exception):
    """The reader of a stream took nothing for too long."""


class Out:
    """The writing side of a stream: one chunk at a time, none of them for ever.

    One alarm looks after all writes: setting one for each would take longer than most writes do.
    """

    def __init__(self, send: Send, seconds: float) -> None:
        self._send = send
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._writer: asyncio.Task[object] | None = None
        self._until = 0.0
        #: Whether the reader took nothing for too long.
        self.stalled = False

    @property
    def busy(self) -> bool:
        return self._turn.locked()

    async def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        await self._put({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, chunk: bytes) -> None:
        await self._put({"type": "http.response.body", "body": chunk, "more_body": True})

    async def close(self, chunk: bytes = b"") -> None:
        """Write the last chunk."""
        await self._put({"type": "http.response.body", "body": chunk, "more_body": False})

    async def _put(self, message: Message) -> None:
        await self._turn.acquire()
        self._writer = asyncio.current_task()
        self._until = self._loop.time() + self._seconds
        if self._alarm is None:
            self._alarm = self._loop.call_at(self._until, self._look)
        try:
            await self._send(message)
        except asyncio.CancelledError:
            if self.stalled and self._writer is not None and not self._writer.uncancel():
                raise Stalled from None
            raise
        finally:
            self._writer = None
            self._turn.release()

    def _look(self) -> None:
        """End a write that takes too long; look again when the one under way would."""
        self._alarm = None
        if self._writer is None:
            return
        if self._loop.time() < self._until:
            self._alarm = self._loop.call_at(self._until, self._look)
        else:
            self.stalled = True
            self._writer.cancel()

    def done(self) -> None:
        """Look after no more writes."""
        if self._alarm is not None:
            self._alarm.cancel()


@asynccontextmanager
async def writing(
    scope: Scope, send: Send, seconds: float = STALLED_SECONDS
) -> AsyncGenerator[Out, None]:
    """Write an answer; cut the connection and raise ClientGone when its reader takes nothing."""
    out = Out(send, seconds)
    try:
        yield out
    except Stalled as stalled:
        abort = scope.get(ABORT)
        if abort is not None:
            abort()
        raise ClientGone("the client stopped reading the answer") from stalled
    finally:
        out.done()


def _last_words(error: Exception) -> Event:
    refused = as_refused(error)
    if refused is None:
        logger.error("the source of a stream failed", exc_info=error)
        return Event(event="error", data=error_body("internal", "something went wrong inside"))
    return Event(event="error", data=refused.body)
