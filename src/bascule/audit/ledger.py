"""Ledgers: where events are kept. In memory (bounded), and as JSON lines in a file.

A call's intent is written before the call leaves. What comes of it waits a moment for others and is
written with them, in order; whoever reads, closes or settles a ledger finds everything. A ledger in
a file writes the lines that it has with one write; they survive the kill of any process, not a
power loss. A file that cannot be written lets no call leave; what ended already is answered
nevertheless.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Protocol

from bascule.audit.event_bytes import event_json
from bascule.audit.events import (
    Act,
    CallEvent,
    ConnectionMoved,
    EgressDecided,
    EndedCall,
    Event,
    GuestEnded,
    LeavingCall,
    SessionOpened,
    SessionRefusal,
    ToolsListed,
)
from bascule.errors import ServerUnavailable

logger = logging.getLogger("bascule.audit")

_WAITING = 128  # events, an intent and an outcome for each call
_WAIT_SECONDS = 0.005
_KEPT = 10_000  # events, while they cannot be written


class Ledger(Protocol):
    """Where everything that happens is written down."""

    @property
    def digest_key(self) -> bytes:
        """Return the key for digests of arguments; as long as the ledger, they are comparable."""
        ...

    def session_opened(self, event: SessionOpened) -> None: ...

    def session_refused(self, event: SessionRefusal) -> None: ...

    def connection_moved(self, event: ConnectionMoved) -> None: ...

    def egress_decided(self, event: EgressDecided) -> None: ...

    def tools_listed(self, event: ToolsListed) -> None: ...

    def guest_ended(self, event: GuestEnded) -> None: ...

    def intent(self, leaving: LeavingCall) -> Awaitable[None] | None:
        """Write that a call is about to leave; raise LedgerUnavailable when that cannot be done.

        It is written when this returns None. A ledger that has to wait for that returns what the
        caller awaits before the call leaves.
        """
        ...

    def outcome(self, ended: EndedCall) -> None:
        """Write that a call ended, now or in a moment; it never fails."""
        ...

    async def note(self, act: Act) -> None:
        """Write what somebody is about to do; raise LedgerUnavailable when that cannot be done."""
        ...

    def settle(self) -> None:
        """Write everything that waits."""
        ...


class LedgerUnavailable(ServerUnavailable):
    """Nothing can be written down now, so nothing is sent."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="ledger_unavailable")


def arguments_key(key: bytes) -> bytes:
    """Return what digests of arguments are keyed with, by the key of a ledger."""
    return hmac.digest(key, b"arguments", "sha256")


class EventQueue:
    """Events in their order; those of calls wait for company, or until somebody reads.

    One thread adds; any thread may settle.
    """

    def __init__(self, digest_key: bytes | None = None) -> None:
        self.digest_key = digest_key or secrets.token_bytes(32)
        #: Events, and what makes those of calls.
        self._waiting: deque[Event | Callable[[], Event]] = deque()
        self._settling = Lock()
        self._alarmed: asyncio.AbstractEventLoop | None = None

    def session_opened(self, event: SessionOpened) -> None:
        """Write it."""
        self._add(event)

    def session_refused(self, event: SessionRefusal) -> None:
        """Write it."""
        self._add(event)

    def connection_moved(self, event: ConnectionMoved) -> None:
        """Write it if something went wrong: that a server comes and goes is no news."""
        if event.reason:
            self._add(event)

    def egress_decided(self, event: EgressDecided) -> None:
        """Write it."""
        self._add(event)

    def tools_listed(self, event: ToolsListed) -> None:
        """Write it."""
        self._add(event)

    def guest_ended(self, event: GuestEnded) -> None:
        """Write it."""
        self._add(event)

    def outcome(self, ended: EndedCall) -> None:
        """Write it in a moment, with what else comes in it."""
        self._waiting.append(ended.event)
        if len(self._waiting) >= _WAITING:
            self.settle()
        elif self._alarmed is None or self._alarmed.is_closed():
            self._set_alarm()

    def settle(self) -> None:
        """Write everything that waits."""
        with self._settling:
            self._write(self._taken())

    def _add(self, event: Event) -> None:
        self._waiting.append(event)
        self.settle()

    def _taken(self) -> list[Event]:
        """Take what waits. It may become more meanwhile, and nothing is taken twice."""
        take = self._waiting.popleft
        taken = [take() for _ in range(len(self._waiting))]
        return [event() if callable(event) else event for event in taken]

    def _write(self, events: list[Event]) -> None:
        raise NotImplementedError

    def _set_alarm(self) -> None:
        try:
            self._alarmed = asyncio.get_running_loop()
        except RuntimeError:  # nobody would wake us
            self.settle()
            return
        self._alarmed.call_later(_WAIT_SECONDS, self._ring)

    def _ring(self) -> None:
        self._alarmed = None
        self.settle()


class MemoryLedger(EventQueue):
    """The last events, oldest dropped first."""

    def __init__(self, limit: int = 10_000) -> None:
        super().__init__()
        self._kept: deque[Event] = deque(maxlen=limit)

    @property
    def events(self) -> deque[Event]:
        """Return the events that are kept, up to this moment."""
        self.settle()
        return self._kept

    def intent(self, leaving: LeavingCall) -> Awaitable[None] | None:
        """Keep it."""
        self._waiting.append(leaving.intent)

    async def note(self, act: Act) -> None:
        """Keep it."""
        self._add(act)

    def calls(self) -> list[CallEvent]:
        """Return the calls among the events."""
        return [event for event in self.events if isinstance(event, CallEvent)]

    def _taken(self) -> list[Event]:
        if self._kept.maxlen:
            return super()._taken()
        self._waiting.clear()
        return []

    def _write(self, events: list[Event]) -> None:
        self._kept.extend(events)


class FileQueue(EventQueue):
    """Events that are appended to files: an intent or an act before it happens, or it does not."""

    what = "the audit file"

    def intent(self, leaving: LeavingCall) -> Awaitable[None] | None:
        """Write it, before the call leaves; raise LedgerUnavailable when that cannot be done.

        What came of other calls goes on waiting: it is written together, which takes half the time.
        """
        with self._settling:
            try:
                self._append([leaving.intent()])
            except OSError as error:
                raise LedgerUnavailable(self._words(error)) from error

    async def note(self, act: Act) -> None:
        """Write it, before it is done; raise LedgerUnavailable when that cannot be done."""
        self._write_now(act)

    def _append(self, events: list[Event]) -> None:
        """Append events; raise OSError when not all of them can be relied on."""
        raise NotImplementedError

    def _write_now(self, event: Event) -> None:
        with self._settling:
            ended = self._taken()
            try:
                self._append([*ended, event])
            except OSError as error:
                self._keep(ended, error)
                raise LedgerUnavailable(self._words(error)) from error

    def _write(self, events: list[Event]) -> None:
        """Write what has happened already: whoever waits for it is answered in any case."""
        try:
            self._append(events)
        except OSError as error:
            self._keep(events, error)

    def _keep(self, events: list[Event], error: OSError) -> None:
        """Keep what has happened until it can be written, as much of it as there is room for."""
        room = max(_KEPT - len(self._waiting), 0)
        lost = f"; {len(events) - room} events are lost" if len(events) > room else ""
        if events:
            logger.error("%s%s", self._words(error), lost)
        self._waiting.extendleft(reversed(events[len(events) - min(room, len(events)) :]))

    def _words(self, error: OSError) -> str:
        return f"{self.what} cannot be written: {error.strerror or error}"


class JsonLinesLedger(FileQueue):
    """One JSON object a line, appended; the file is private to its owner.

    With ``max_bytes`` a file that is full becomes ``<path>.1``, that one ``<path>.2``, and so on:
    at most ``max_files`` files in all, the oldest forgotten. One process writes to a path.
    """

    def __init__(
        self, path: str | Path, *, max_bytes: int | None = None, max_files: int = 8
    ) -> None:
        super().__init__()
        self._path = Path(path)
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._torn = False
        self._file = self._open()
        self._size = os.fstat(self._file).st_size

    def close(self) -> None:
        """Write what waits, and close the file."""
        self.settle()
        os.close(self._file)

    def _append(self, events: list[Event]) -> None:
        """Write lines, as many as the file has room for with one write."""
        room = b""
        for event in events:
            line = event_json(event) + b"\n"
            size = self._size + len(room)
            if self._max_bytes is not None and size and size + len(line) > self._max_bytes:
                self._append_bytes(room)
                self._rotate()
                room = b""
            room += line
        self._append_bytes(room)

    def _append_bytes(self, lines: bytes) -> None:
        if not lines:
            return
        left = memoryview(b"\n" + lines if self._torn else lines)
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
