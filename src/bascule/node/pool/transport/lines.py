"""Lines over pipes: splitting what is read, queueing what is written, keeping what is said aside.

Costs are linear in the bytes and memory has a cap, whatever the peer does. Above: ``stdio``.
Below: the event loop and file descriptors.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable

from bascule.errors import NotDelivered

HEAD_BYTES = 4096


class LineReader:
    """Splits chunks into lines; of a line over the cap only the head is kept."""

    __slots__ = ("_cap", "_part", "overlong", "skipping")

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._part = bytearray()
        self.skipping = False
        """Whether a line over the cap is being dropped, its end not yet seen."""
        self.overlong: bytes | None = None
        """The head of such a line, from the moment it passes the cap until somebody takes it."""

    def feed(self, data: bytes) -> list[bytes]:
        """Take a chunk and give the lines it completes, some with their line break."""
        if not self._part and not self.skipping and data.find(b"\n") == len(data) - 1:
            return [data]
        return self._feed_slowly(data)

    def _feed_slowly(self, data: bytes) -> list[bytes]:
        lines = data.split(b"\n")
        last = lines.pop()
        if lines:
            self._finish(lines)
        self._begin(last)
        return lines

    def _finish(self, lines: list[bytes]) -> None:
        """Join the first line to what came before it, or end the skipping with it."""
        if self.skipping:
            self.skipping = False
            del lines[0]
        elif self._part:
            lines[0] = bytes(self._part) + lines[0]
        self._part.clear()

    def _begin(self, data: bytes) -> None:
        """Keep the start of a line whose end has not come yet."""
        if self.skipping:
            return
        self._part += data
        if len(self._part) > self._cap:
            self.overlong = bytes(self._part[:HEAD_BYTES])
            self.skipping = True
            self._part = bytearray()


class Parcel:
    """Bytes on their way out; ``sent`` once the first of them has left."""

    __slots__ = ("rest", "sent")

    def __init__(self, data: bytes) -> None:
        self.rest: bytes | memoryview = data
        self.sent = False


class LineWriter:
    """Writes whole lines in order, at once when the pipe has room; what waits is bounded."""

    __slots__ = ("_fd", "_limit", "_loop", "_on_broken", "_queue", "_usable", "_waiting")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fd: int,
        *,
        limit: int,
        on_broken: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._fd = fd
        self._limit = limit
        self._on_broken = on_broken
        self._queue: deque[Parcel] = deque()
        self._waiting = 0
        self._usable = True

    def write(self, parcel: Parcel) -> None:
        """Write or queue a parcel; ``NotDelivered`` when it cannot even wait."""
        if self._queue or not self._usable:
            self._enqueue(parcel)
            return
        data = parcel.rest
        try:
            written = os.write(self._fd, data)
        except BlockingIOError:
            written = 0
        except OSError:
            self._usable = False
            self._loop.call_soon(self._on_broken)
            raise NotDelivered("the server has closed its input") from None
        parcel.sent = written > 0
        if written < len(data):
            parcel.rest = memoryview(data)[written:]
            self._enqueue(parcel)

    def withdraw(self, parcel: Parcel) -> None:
        """Take back a parcel of which nothing has left."""
        self._waiting -= len(parcel.rest)
        parcel.rest = b""

    def close(self) -> None:
        """Stop writing; what still waits is dropped."""
        if self._queue:
            self._loop.remove_writer(self._fd)
            self._queue.clear()
        self._usable = False

    def _enqueue(self, parcel: Parcel) -> None:
        if not self._usable:
            raise NotDelivered("the server has closed its input")
        size = len(parcel.rest)
        if self._queue and self._waiting + size > self._limit:
            raise NotDelivered("the server does not read its input")
        if not self._queue:
            self._loop.add_writer(self._fd, self._writable)
        self._queue.append(parcel)
        self._waiting += size

    def _writable(self) -> None:
        try:
            while self._queue:
                self._write_some(self._queue[0])
        except BlockingIOError:
            return
        except OSError:
            self.close()
            self._on_broken()
            return
        self._loop.remove_writer(self._fd)

    def _write_some(self, parcel: Parcel) -> None:
        if parcel.rest:
            written = os.write(self._fd, parcel.rest)
            parcel.sent = True
            self._waiting -= written
            parcel.rest = memoryview(parcel.rest)[written:]
        if not parcel.rest:
            self._queue.popleft()


class Tail:
    """The end of a stream: its last lines, within a number of bytes."""

    __slots__ = ("_bytes", "_kept", "_lines", "total")

    def __init__(self, *, lines: int, size: int) -> None:
        self._lines = lines
        self._bytes = size
        self._kept = b""
        self.total = 0

    def add(self, data: bytes) -> None:
        """Take a chunk, whatever its size; only its end costs anything."""
        self.total += len(data)
        self._kept = (self._kept + data[-self._bytes :])[-self._bytes :]

    def text(self) -> str:
        """The lines kept, as text whatever the bytes were."""
        lines = self._kept.decode("utf-8", "replace").splitlines()
        return "\n".join(lines[-self._lines :])
