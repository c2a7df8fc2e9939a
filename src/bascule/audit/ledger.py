"""Ledgers: where events are kept. In memory (bounded), and as JSON lines in a file.

Below: ``events.py``. Above: ``bascule.node.assembly`` gives one to the bridge. A ledger in a file
writes each line with one write; it survives the kill of any process, not a power loss.
"""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

import msgspec

from bascule.audit.events import CallEvent, CallIntent, Event, SessionOpened, ToolsListed


class MemoryLedger:
    """The last events, oldest dropped first."""

    def __init__(self, limit: int = 10_000) -> None:
        self.events: deque[Event] = deque(maxlen=limit)

    def session_opened(self, event: SessionOpened) -> None:
        """Keep it."""
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
    """One JSON object a line, appended; the file is private to its owner."""

    def __init__(self, path: str | Path) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)
        self._encoder = msgspec.json.Encoder()

    def session_opened(self, event: SessionOpened) -> None:
        """Write it."""
        self._write(event)

    def tools_listed(self, event: ToolsListed) -> None:
        """Write it."""
        self._write(event)

    async def intent(self, event: CallIntent) -> None:
        """Write it, before the call leaves."""
        self._write(event)

    def outcome(self, event: CallEvent) -> None:
        """Write it."""
        self._write(event)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _write(self, event: Event) -> None:
        line = memoryview(self._encoder.encode(event) + b"\n")
        while line:
            line = line[os.write(self._file, line) :]
