"""Ledgers: where events are kept. In memory (bounded), and as JSON lines in a file.

A ledger in a file
writes each line with one write; it survives the kill of any process, not a power loss. A file that
cannot be written lets no call leave; what ended already is answered nevertheless.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from bascule.audit.events import (
    CallEvent,
    CallIntent,
    ConnectionMoved,
    Event,
    SessionOpened,
    SessionRefusal,
    ToolsListed,
)
from bascule.errors import ServerUnavailable

logger = logging.getLogger("bascule.audit")


class Ledger(Protocol):
    """Where everything that happens is written down."""

    def session_opened(self, event: SessionOpened) -> None: ...

    def session_refused(self, event: SessionRefusal) -> None: ...

    def connection_moved(self, event: ConnectionMoved) -> None: ...

    def tools_listed(self, event: ToolsListed) -> None: ...

    def intent(self, event: CallIntent) -> Coroutine[object, None, None]:
        """Write that a call is about to leave; it is written when this returns."""
        ...

    def outcome(self, event: CallEvent) -> None: ...


class LedgerUnavailable(ServerUnavailable):
    """Nothing can be written down now, so nothing is sent."""


class MemoryLedger:
    """The last events, oldest dropped first."""

    def __init__(self, limit: int = 10_000) -> None:
        self.events: deque[Event] = deque(maxlen=limit)

    def session_opened(self, event: SessionOpened) -> None:
        """Keep it."""
        self.events.append(event)

    def session_refused(self, event: SessionRefusal) -> None:
        """Keep it."""
        self.events.append(event)

    def connection_moved(self, event: ConnectionMoved) -> None:
        """Keep it if something went wrong: that a server comes and goes is no news."""
        if event.reason:
            self.events.append(event)

    def tools_listed(self, event: ToolsListed) -> None:
        """Keep it."""
        self.events.append(event)

    async def intent(self, event: CallIntent) -> None:
        """Keep it."""
        self.events.append(event)

    def outcome(self, event: CallEvent) -> None:
        """Keep it."""
        self.events.append(event)

    def calls(self) -> list[CallEvent]:
        """Return the calls among the events."""
        return [event for event in self.events if isinstance(event, CallEvent)]


class JsonLinesLedger:
    """One JSON object a line, appended; the file is private to its owner.

    With ``max_bytes`` a file that is full becomes ``<path>.1``, that one ``<path>.2``, and so on:
    at most ``max_files`` files in all, the oldest forgotten. One process writes to a path.
    """

    def __init__(
        self, path: str | Path, *, max_bytes: int | None = None, max_files: int = 8
    ) -> None:
        self._path = Path(path)
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._encoder = msgspec.json.Encoder()
        self._torn = False
        self._file = self._open()
        self._size = os.fstat(self._file).st_size

    def session_opened(self, event: SessionOpened) -> None:
        """Write it."""
        self._note(event)

    def session_refused(self, event: SessionRefusal) -> None:
        """Write it."""
        self._note(event)

    def connection_moved(self, event: ConnectionMoved) -> None:
        """Write it if something went wrong: that a server comes and goes is no news."""
        if event.reason:
            self._note(event)

    def tools_listed(self, event: ToolsListed) -> None:
        """Write it."""
        self._note(event)

    async def intent(self, event: CallIntent) -> None:
        """Write it, before the call leaves; raise LedgerUnavailable when that cannot be done."""
        try:
            self._write(event)
        except OSError as error:
            raise LedgerUnavailable(_words(error)) from error

    def outcome(self, event: CallEvent) -> None:
        """Write it."""
        self._note(event)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _note(self, event: Event) -> None:
        """Write what has happened already: whoever waits for it is answered in any case."""
        try:
            self._write(event)
        except OSError as error:
            logger.error(_words(error))  # noqa: TRY400 - its place in the code tells nothing

    def _write(self, event: Event) -> None:
        line = self._encoder.encode(event) + b"\n"
        if self._max_bytes is not None and self._size and self._size + len(line) > self._max_bytes:
            self._rotate()
        left = memoryview(b"\n" + line if self._torn else line)
        self._torn = True  # half a line must not be joined to the next
        while left:
            written = os.write(self._file, left)
            self._size += written
            left = left[written:]
        self._torn = False

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        found = os.open(self._path, flags, 0o600)
        os.fchmod(found, 0o600)
        return found

    def _rotate(self) -> None:
        """Begin a new file; the others move up, and what has no place any more is gone."""
        for number in range(self._max_files - 1, 0, -1):
            older = self._path if number == 1 else self._numbered(number - 1)
            with suppress(FileNotFoundError):
                older.replace(self._numbered(number))
        if self._max_files == 1:
            self._path.unlink(missing_ok=True)
        full, self._file = self._file, self._open()
        os.close(full)
        self._size, self._torn = os.fstat(self._file).st_size, False

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


def _words(error: OSError) -> str:
    return f"the audit file cannot be written: {error.strerror or error}"
