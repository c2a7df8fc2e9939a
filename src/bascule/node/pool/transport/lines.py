"""Lines over pipes: splitting what is read, queueing what is written, keeping what is said aside.

Costs are linear in the bytes and memory has a cap, whatever the peer does.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Literal

from msgspec import Struct

from bascule.errors import NotDelivered
from bascule.model.whole_words import ending

_HEAD_BYTES = 4096
CHUNK = 65536  # what a pipe holds
_BATCH = 64  # parcels per system call
_DRAIN_READS = 4  # chunks per turn
_DRAIN_PAUSE = 0.001


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
        """Take a chunk and give the lines it completes."""
        if not self._part and not self.skipping and data.find(b"\n") == len(data) - 1:
            return [data[:-1]]  # the usual case: one chunk, one line
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
            self.overlong = bytes(self._part[:_HEAD_BYTES])
            self.skipping = True
            self._part = bytearray()


class Parcel(Struct, eq=False):
    """Bytes on their way out; ``sent`` once the first of them has left."""

    rest: bytes | memoryview
    sent: bool


class LineWriter:
    """Writes whole lines in order; what waits is bounded.

    What a caller waits for is taken back when the caller leaves, so large arguments of one take no
    room from others; what nobody waits for is dropped over the limit.

    A lone parcel is written at once. One of many waits for the end of the loop's turn, and then
    they leave together: one system call and one waking of the server instead of dozens.
    """

    __slots__ = ("_fd", "_limit", "_loop", "_on_broken", "_queue", "_state", "waiting")

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
        self.waiting = 0
        self._state: Literal["idle", "soon", "full", "closed"] = "idle"

    def write(self, parcel: Parcel, *, among_many: bool = False, awaited: bool = False) -> None:
        """Write or queue a parcel; ``NotDelivered`` when it cannot even wait."""
        if self._state != "idle" or among_many:
            self._enqueue(parcel, awaited=awaited)
            return
        data = parcel.rest
        try:
            written = os.write(self._fd, data)
        except BlockingIOError:
            written = 0
        except OSError:
            self.close()
            self._loop.call_soon(self._on_broken)
            raise NotDelivered("the server has closed its input") from None
        parcel.sent = written > 0
        if written < len(data):
            parcel.rest = memoryview(data)[written:]
            self._enqueue(parcel, awaited=True)

    def withdraw(self, parcel: Parcel) -> None:
        """Take back a parcel of which nothing has left."""
        self.waiting -= len(parcel.rest)
        parcel.rest = b""

    def close(self) -> None:
        """Stop writing; what still waits is dropped."""
        if self._state == "full":
            self._loop.remove_writer(self._fd)
        self._state = "closed"
        self._queue.clear()

    def _enqueue(self, parcel: Parcel, *, awaited: bool) -> None:
        if self._state == "closed":
            raise NotDelivered("the server has closed its input")
        size = len(parcel.rest)
        if not awaited and self.waiting and self.waiting + size > self._limit:
            raise NotDelivered("the server does not read its input")
        self._queue.append(parcel)
        self.waiting += size
        if self._state == "idle":
            self._state = "soon"
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Write what waits; when the pipe is full, go on when it no longer is."""
        if self._state == "closed":
            return
        try:
            while self._queue:
                self._write_batch()
        except BlockingIOError:
            if self._state == "soon":
                self._loop.add_writer(self._fd, self._flush)
                self._state = "full"
        except OSError:
            self.close()
            self._on_broken()
        else:
            if self._state == "full":
                self._loop.remove_writer(self._fd)
            self._state = "idle"

    def _write_batch(self) -> None:
        batch = list(islice(self._queue, _BATCH))
        left = os.writev(self._fd, [parcel.rest for parcel in batch])
        self.waiting -= left
        for parcel in batch:
            size = len(parcel.rest)
            if size > left:
                parcel.sent = parcel.sent or left > 0
                parcel.rest = memoryview(parcel.rest)[left:]
                return
            if size:  # what was taken back is empty, and was never sent
                parcel.sent = True
                parcel.rest = b""
                left -= size
            self._queue.popleft()


class Drain:
    """Reads what a server says aside, always, and keeps its last lines within some bytes."""

    __slots__ = ("_fd", "_kept", "_lines", "_loop", "_resuming", "_size", "total")

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, *, lines: int, size: int) -> None:
        self._loop = loop
        self._fd = fd
        self._lines = lines
        self._size = size
        self._kept = b""
        self._resuming: asyncio.TimerHandle | None = None
        self.total = 0
        """Bytes read so far."""

    def start(self) -> None:
        """Read from now on."""
        self._resuming = None
        self._loop.add_reader(self._fd, self._readable)

    def stop(self) -> None:
        """Read no more."""
        self._loop.remove_reader(self._fd)
        if self._resuming is not None:
            self._resuming.cancel()

    def text(self) -> str:
        """The lines kept, as text whatever the bytes were."""
        kept = self._kept.decode("utf-8", "replace")
        lines = (kept if self.total <= self._size else ending(kept)).splitlines()
        return "\n".join(lines[-self._lines :])

    def _readable(self) -> None:
        """Read a little, then leave time to others: a chatterbox must not own the loop."""
        for _ in range(_DRAIN_READS):
            try:
                data = os.read(self._fd, CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._loop.remove_reader(self._fd)
                return
            self.total += len(data)
            self._kept = (self._kept + data[-self._size :])[-self._size :]
        self._loop.remove_reader(self._fd)
        self._resuming = self._loop.call_later(_DRAIN_PAUSE, self.start)
