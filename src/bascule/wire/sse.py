"""Server-sent events: bytes in, events out, with a hard cap and linear cost.

Lines may end in CR, LF or both, split anywhere; comments are skipped; an event without data is
none.
"""

from __future__ import annotations

from msgspec import Struct

MAX_EVENT_BYTES = 8 * 1024 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventTooLarge(ValueError):
    """An event beyond the cap; the stream cannot be read on."""


class SseEvent(Struct, frozen=True):
    """One event. ``id`` is the last id the stream has given so far."""

    data: bytes
    event: str
    id: str | None
    retry_ms: int | None


class SseReader:
    """Collects the lines of a stream into events."""

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._searched = 0
        self._after_cr = False
        self._begun = False
        self._data: list[bytes] = []
        self._size = 0
        self._event = ""
        self.last_id: str | None = None
        self.retry_ms: int | None = None

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Take more of the stream; return the events it completes."""
        whole = self._whole(chunk)
        if whole is not None or not chunk:
            return whole or []
        events: list[SseEvent] = []
        self._buffer += chunk
        for line in self._lines():
            if not self._begun:
                self._begun, line = True, line.removeprefix(_BYTE_ORDER_MARK)
            self._refuse_more_than(len(line))
            if line:
                self._take(line)
            elif self._data:
                events.append(self._finished())
            else:
                self._event = ""
        self._refuse_more_than(len(self._buffer))
        return events

    def _whole(self, chunk: bytes) -> list[SseEvent] | None:
        """Return the events of a chunk of nothing but whole ones of one line, as most chunks are.

        None is for every other chunk, and while something is left of the one before.
        """
        if self._buffer or self._data or self._event or self._after_cr:
            return None
        if b"\r" in chunk or not chunk.endswith(b"\n\n") or len(chunk) > self._limit:
            return None
        events: list[SseEvent] = []
        for line in chunk[:-2].split(b"\n\n"):
            if not line.startswith(b"data: ") or b"\n" in line:
                return None
            events.append(SseEvent(line[6:], "message", self.last_id, self.retry_ms))
        self._begun = True
        return events

    def _refuse_more_than(self, size: int) -> None:
        """Refuse a line, whole or begun, that makes its event too large."""
        if self._size + size > self._limit:
            raise EventTooLarge(f"an event of more than {self._limit} bytes")

    def resumed(self) -> SseReader:
        """Return a reader for the stream that takes this one up where it broke off."""
        reader = SseReader(self._limit)
        reader.last_id, reader.retry_ms = self.last_id, self.retry_ms
        return reader

    def _lines(self) -> list[bytes]:
        """Split off complete lines; a CR at the very end waits for its LF."""
        lines: list[bytes] = []
        start = 0
        buffer = self._buffer
        if self._after_cr and buffer.startswith(b"\n"):
            start = 1
        self._after_cr = False
        at = self._next_end(max(start, self._searched))
        while at >= 0:
            lines.append(bytes(buffer[start:at]))
            start = at + 1
            if buffer[at] == 0x0D:
                if start == len(buffer):
                    self._after_cr = True
                elif buffer[start] == 0x0A:
                    start += 1
            at = self._next_end(start)
        del buffer[:start]
        self._searched = len(buffer)
        return lines

    def _next_end(self, start: int) -> int:
        newline = self._buffer.find(b"\n", start)
        end = newline if newline >= 0 else len(self._buffer)
        carriage = self._buffer.find(b"\r", start, end)
        return carriage if carriage >= 0 else newline

    def _take(self, line: bytes) -> None:
        name, colon, value = line.partition(b":")
        if not name and colon:
            return
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value) + 1
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self.last_id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            self.retry_ms = int(value[:9])

    def _finished(self) -> SseEvent:
        data = b"\n".join(self._data)
        event = SseEvent(data, self._event or "message", self.last_id, self.retry_ms)
        self._data, self._size, self._event = [], 0, ""
        return event
