"""The open handles of one guest: what a number means to it.

Numbers begin at 1000 and are never given twice. A closed handle is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import ClassVar, Final, Literal, TypeVar

from bascule.doors.hostcalls.abi import Errno, Fault
from bascule.model.json import JsonValue

logger = logging.getLogger(__name__)

FIRST: Final = 1000
MOST_OPEN: Final = 1024
#: The bits of epoll: what may be done with a handle at once.
EPOLLIN: Final = 0x1
EPOLLOUT: Final = 0x4
EPOLLERR: Final = 0x8
EPOLLHUP: Final = 0x10
Kind = Literal["ChatSession", "ChatResponse", "Epoll", "McpSession"]
#: Is told that a handle's readiness changed, or that it was closed; from any thread.
Watcher = Callable[[], None]


class Handle:
    """Something that is open. Kinds derive from it, and say what closing ends."""

    kind: ClassVar[Kind]

    def __init__(self) -> None:
        self.nonblocking = False
        self.is_closed = False
        self._watchers: list[Watcher] = []

    def poll_mask(self) -> int:
        """Return what may be done with it at once, as the bits of epoll."""
        return 0

    def watch(self, watcher: Watcher) -> None:
        """Have somebody told of every change from now on."""
        self._watchers.append(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        """Tell that watcher no more."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def changed(self) -> None:
        """Tell whoever watches that ``poll_mask`` may answer otherwise; from any thread."""
        for watcher in tuple(self._watchers):
            watcher()

    def metrics(self) -> bytes:
        """Return what it measured, as a JSON object."""
        return b"{}"

    def set_param(self, key: str, value: JsonValue) -> None:
        """Set a parameter of its own, or -EINVAL where it has none."""
        del key, value
        raise Fault(Errno.EINVAL)

    def close(self) -> None:
        """End what it holds; called once, on the guest's thread or when the guest has ended."""


H = TypeVar("H", bound=Handle)


class Handles:
    """A guest's own table."""

    def __init__(self) -> None:
        self._open: dict[int, Handle] = {}
        self._next = FIRST

    def __len__(self) -> int:
        return len(self._open)

    def add(self, handle: Handle) -> int:
        """Return a number for it, or -EMFILE."""
        if len(self._open) >= MOST_OPEN:
            raise Fault(Errno.EMFILE)
        number = self._next
        self._next += 1
        self._open[number] = handle
        return number

    def find(self, number: int, kind: type[H]) -> H:
        """Return the handle of a number, or -EBADF: closed, foreign, or of another kind."""
        found = self._open.get(number)
        if not isinstance(found, kind):
            raise Fault(Errno.EBADF)
        return found

    def close(self, number: int, kind: type[Handle]) -> None:
        """Close a handle of this kind; whoever watches it is told."""
        handle = self.find(number, kind)
        del self._open[number]
        _close(handle)

    def was_given(self, number: int) -> bool:
        """Say whether a number was ever given to this guest."""
        return FIRST <= number < self._next

    def was_closed(self, number: int) -> bool:
        """Say whether a number was given, and its handle is closed."""
        return self.was_given(number) and number not in self._open

    def close_all(self) -> None:
        """Close whatever is open; one that cannot be closed keeps no other from it."""
        while self._open:
            number, handle = self._open.popitem()
            try:
                _close(handle)
            except Exception:
                logger.exception("handle %d of a guest could not be closed", number)


def _close(handle: Handle) -> None:
    handle.is_closed = True
    handle.changed()
    handle.close()
