"""One open stream: written by the task of its request, which others wake.

At most one notice of a changed list waits, however many changes there were, so that a slow reader
has nothing pile up here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.types import Message, Scope, Send

from bascule.asgi.exchange import EXCHANGE, Exchange
from bascule.asgi.sse import ABORT, KEEP_ALIVE, KEEP_ALIVE_SECONDS, STALLED_SECONDS
from bascule.auth.identity import Principal
from bascule.clock import Clock
from bascule.doors.gateway.reply import STREAM_HEADERS

#: What a stream is woken for: a changed list, a sign of life, the end, and the end with a result.
CHANGED: Final = 1
ALIVE: Final = 2
END: Final = 4
RESULT: Final = 8
_START: Message = {
    "type": "http.response.start",
    "status": 200,
    "headers": STREAM_HEADERS,
}


class Frames:
    """What a stream sends: at its beginning, for a changed list, and as its result."""

    __slots__ = ("changed", "first", "result")

    def __init__(self, first: bytes, changed: bytes, result: bytes) -> None:
        self.first = first
        self.changed = changed
        self.result = result


class Listener:
    """A stream, and what it is woken for."""

    __slots__ = (
        "_abort", "_clock", "_due", "_frames", "_send", "_woken", "_writing", "_wrote_at",
        "principal", "session",
    )  # fmt: skip

    def __init__(self, principal: Principal, session: bytes, frames: Frames, clock: Clock) -> None:
        self.principal = principal
        #: The digest of its legacy session's id; a modern stream has none.
        self.session = session
        self._frames = frames
        self._clock = clock
        self._due = 0
        self._woken: asyncio.Future[None] | None = None
        self._writing = False
        self._wrote_at = clock.monotonic()
        self._abort: Callable[[], object] | None = None

    def wake(self, due: int) -> None:
        """Have the stream send something, as soon as its reader takes it."""
        self._due |= due
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def check(self, now: float) -> None:
        """Let a reader go that takes nothing; send a sign of life where nothing else was sent."""
        silent = now - self._wrote_at
        if not self._writing:
            if silent >= KEEP_ALIVE_SECONDS:
                self.wake(ALIVE)
        elif silent >= STALLED_SECONDS and self._abort is not None:
            self._abort()

    async def run(self, scope: Scope, send: Send) -> None:
        """Send until the end; in the task of its request."""
        exchange, task = scope.get(EXCHANGE), asyncio.current_task()
        if isinstance(exchange, Exchange):
            exchange.buffer_nothing()
        self._abort = scope.get(ABORT, None if task is None else task.cancel)
        self._send = send
        await self._put(_START)
        await self._write(self._frames.first)
        last = await self._until_the_end()
        await self._put({"type": "http.response.body", "body": last, "more_body": False})

    async def _until_the_end(self) -> bytes:
        """Send what there is to send; return what is sent last."""
        while True:
            await self._news()
            due, self._due = self._due, 0
            if due & END:
                return b""
            if due & CHANGED:
                await self._write(self._frames.changed)
            if due & RESULT:
                return self._frames.result
            if due == ALIVE:
                await self._write(KEEP_ALIVE)

    async def _news(self) -> None:
        if not self._due:
            self._woken = asyncio.get_running_loop().create_future()
            try:
                await self._woken
            finally:
                self._woken = None

    async def _write(self, chunk: bytes) -> None:
        await self._put({"type": "http.response.body", "body": chunk, "more_body": True})

    async def _put(self, message: Message) -> None:
        self._wrote_at, self._writing = self._clock.monotonic(), True
        await self._send(message)
        self._wrote_at, self._writing = self._clock.monotonic(), False
