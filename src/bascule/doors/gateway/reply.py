"""The answer to a call: JSON, until something has to be told before it is there; then a stream.

A reader who is slow misses steps in between, never the result.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TypeAlias

from starlette.types import Receive, Scope, Send

from bascule.asgi.errors import ClientGone
from bascule.asgi.exchange import EXCHANGE, READY, WHOLE
from bascule.asgi.sse import KEEP_ALIVE, KEEP_ALIVE_SECONDS, STALLED_SECONDS, Out, writing

#: A request over HTTP, and the way of its answer.
Http: TypeAlias = tuple[Scope, Receive, Send]
#: A call that takes longer than this answers with a stream, where its caller takes one.
PATIENCE_SECONDS = 1.0
#: Steps that wait for their reader; of more than that the oldest are forgotten.
MAX_WAITING = 64
#: Readers of streams take events up to this; what is larger is sent as JSON while it can be.
MAX_EVENT_BYTES = 1024 * 1024
JSON_TYPE = (b"content-type", b"application/json")
_JSON_LINE = b"%b: %b\r\n" % JSON_TYPE
STREAM_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"x-accel-buffering", b"no"),
)
_OK = 200


async def send_frame(
    scope: Scope,
    send: Send,
    frame: bytes,
    status: int = _OK,
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> None:
    """Answer with one frame as JSON; in one message if it can be."""
    if EXCHANGE in scope:
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": headers,
                READY: _JSON_LINE,
                WHOLE: frame,
            }
        )
        return
    own = [*headers, JSON_TYPE, (b"content-length", b"%d" % len(frame))]
    await send({"type": "http.response.start", "status": status, "headers": own})
    await send({"type": "http.response.body", "body": frame})


def event(frame: bytes) -> bytes:
    """Return a frame as an event of a stream."""
    return b"event: message\ndata: %b\n\n" % frame


class Reply:
    """The answer to one call. ``begin`` makes it a stream, as does telling anything."""

    __slots__ = (
        "_alarm", "_news", "_scope", "_send", "_steps", "_streams", "_wanted", "_writer", "over",
    )  # fmt: skip

    def __init__(self, scope: Scope, send: Send, *, streams: bool, wanted: bool) -> None:
        self._scope = scope
        self._send = send
        self._streams = streams
        #: Whether its caller asked to be told things, and so expects a stream.
        self._wanted = wanted and streams
        self._writer: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self.over = False

    @property
    def begun(self) -> bool:
        """Say whether it is a stream by now."""
        return self._writer is not None

    def watch(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Begin a stream if the answer is not there by then."""
        if self._streams:
            self._alarm = asyncio.get_running_loop().call_later(seconds, self.begin)

    def tell(self, frame: bytes) -> None:
        """Tell something before the result; nothing is told to whoever takes no stream."""
        self._put(event(frame))

    def comment(self, words: str) -> None:
        """Tell something to whoever looks at the stream itself."""
        self._put(b": %b\n\n" % words.encode("ascii", "replace"))

    def _put(self, piece: bytes) -> None:
        if self._streams and not self.over:
            self.begin()
            self._steps.append(piece)
            self._news.set()

    def begin(self) -> None:
        """Answer with a stream from now on."""
        if self._writer is None and not self.over:
            self._steps: deque[bytes] = deque(maxlen=MAX_WAITING)
            self._news = asyncio.Event()
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def finish(self, frame: bytes, status: int = _OK) -> None:
        """Give the result: as JSON, or as the last event of a stream."""
        if self._wanted and status == _OK and len(frame) <= MAX_EVENT_BYTES:
            self.begin()
        self._quieten()
        self.over = True
        if self._writer is None:
            await send_frame(self._scope, self._send, frame, status)
            return
        self._steps.append(event(frame))  # the oldest step goes for it where too many wait
        self._news.set()
        await self._writer

    def abandon(self) -> None:
        """Write no more: there is nobody to read it."""
        self._quieten()
        self.over = True
        if self._writer is not None:
            self._writer.cancel()

    def _quieten(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    async def _write(self) -> None:
        try:
            async with writing(self._scope, self._send, STALLED_SECONDS) as out:
                await out.start(_OK, STREAM_HEADERS)
                await self._pump(out)
                await out.close()
        except ClientGone:
            self.over = True

    async def _pump(self, out: Out) -> None:
        while True:
            while self._steps:
                await out.write(self._steps.popleft())
            if self.over:
                return
            self._news.clear()
            try:
                async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                await out.write(KEEP_ALIVE)
