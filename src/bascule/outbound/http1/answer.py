"""What comes back for a request: the head at once, the body as it comes."""

from __future__ import annotations

import asyncio
import contextlib
from math import inf
from typing import Protocol, Self

from bascule.errors import BasculeError
from bascule.outbound.body import READ_BUFFER, Body
from bascule.outbound.http1.head import Headers, RawHeaders

_JSON = b"application/json"


class Source(Protocol):
    """The connection that an answer comes by."""

    loop: asyncio.AbstractEventLoop
    heard: float
    is_open: bool

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None: ...


class HttpAnswer:
    """An answer whose head is here. Iterate over it for the pieces of its body as they come.

    Its connection serves others as soon as all of the body is here, read or not.
    """

    __slots__ = (
        "_encoding",
        "_error",
        "_length",
        "_line",
        "_loop",
        "_media_type",
        "_more",
        "_piece",
        "_raw",
        "_waiter",
        "_waiting_bytes",
        "deadline",
        "ended",
        "idle_seconds",
        "status",
    )

    def __init__(self, line: Source, deadline: float | None, idle_seconds: float | None) -> None:
        self._line = line
        self._loop = line.loop
        self.deadline = deadline
        self.idle_seconds = idle_seconds
        self.status = 0
        #: Whether all of the body is here, read or not.
        self.ended = False
        self._raw: RawHeaders = ()
        self._media_type = self._encoding = b""
        self._length: int | None = None
        # Nearly every body comes in one piece.
        self._piece = b""
        self._more: list[bytes] | None = None
        self._waiting_bytes = 0
        self._error: BasculeError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def headers(self) -> Headers:
        """By names in any case."""
        return Headers(self._raw)

    @property
    def json_body(self) -> bytes | None:
        """The body, where it is JSON, came in one piece, and all of it is here."""
        if not self.ended or self._more is not None or self._encoding:
            return None
        json = self._media_type == _JSON or self.content_type == "application/json"
        return self._piece if json else None

    @property
    def content_type(self) -> str:
        """Return the media type, in small letters and without parameters."""
        return self._media_type.partition(b";")[0].strip().lower().decode("latin-1")

    @property
    def content_encoding(self) -> str:
        return self._encoding.strip().lower().decode("latin-1")

    @property
    def connected(self) -> bool:
        """Whether the connection that the answer came by is still open."""
        return self._line.is_open

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._waiting_bytes:
            if self.ended:
                raise StopAsyncIteration
            await self.changed()
        return self._taken()

    async def read(self, limit: int) -> bytes:
        """Return the body, decompressed, of at most ``limit`` bytes, or raise MalformedReply.

        What is over the limit is neither kept nor decompressed, and the connection is closed.
        """
        if self.ended and not self._encoding and self._waiting_bytes <= limit:
            return self._taken()
        try:
            body = Body(self._encoding.decode("latin-1"), limit)
            if not self._encoding and self._length is not None:
                body.expect(self._length)
            async for piece in self:
                body.feed(piece)
            return body.whole()
        except BaseException:
            self.close()
            raise

    async def drain(self, seconds: float) -> None:
        """Drop the rest of the body, if it ends soon: only then does the connection serve again."""
        with contextlib.suppress(TimeoutError, BasculeError):
            async with asyncio.timeout(seconds):
                async for _ in self:
                    pass
        self.close()

    def close(self) -> None:
        """Let the answer go: its connection is closed, unless all of the body is here."""
        if not self.ended:
            self._line.close()

    # -- told by the line --------------------------------------------------------------------

    def begin(
        self,
        status: int,
        raw: RawHeaders,
        media_type: bytes,
        encoding: bytes,
        length: int | None,
    ) -> None:
        self.status, self._raw, self._length = status, raw, length
        self._media_type, self._encoding = media_type, encoding

    def feed(self, piece: bytes) -> None:
        if not self._waiting_bytes:
            self._piece = piece
        elif self._more is None:
            self._more = [self._piece, piece]
        else:
            self._more.append(piece)
        self._waiting_bytes += len(piece)
        if self._waiting_bytes > READ_BUFFER:
            self._line.pause()

    def fail(self, error: BasculeError) -> None:
        if not self.ended and self._error is None:
            self._error = error
            self.wake()

    def due(self, heard: float, now: float) -> float:
        """Return when it is too late; ``heard`` is when bytes last came.

        A silence counts only while somebody waits for bytes.
        """
        until = inf if self.deadline is None else self.deadline
        if self.idle_seconds is None:
            return until
        waiting = self._waiter is not None and not self._waiter.done()
        return min(until, (heard if waiting else now) + self.idle_seconds)

    def changed(self) -> asyncio.Future[None]:
        """Return what ends when something is told next; raise what went wrong."""
        if self._error is not None:
            raise self._error from None
        if self.idle_seconds is not None:
            self._line.heard = self._loop.time()
        self._waiter = self._loop.create_future()
        return self._waiter

    def wake(self) -> None:
        """Let whoever waits look at what has come."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _taken(self) -> bytes:
        piece = self._piece if self._more is None else b"".join(self._more)
        self._piece, self._more, self._waiting_bytes = b"", None, 0
        if not self.ended:
            self._line.resume()
        return piece
