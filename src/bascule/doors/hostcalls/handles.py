"""The open handles of one guest: what a number means to it.

Numbers begin at 1000 and are never given twice. A closed handle is gone.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal, TypeVar

from bascule.doors.hostcalls.abi import Errno, Fault
from bascule.model.json import JsonValue

FIRST: Final = 1000
MOST_OPEN: Final = 1024
Kind = Literal["ChatSession", "ChatResponse", "Epoll", "McpSession"]


class Handle:
    """Something that is open. Kinds derive from it, and say what closing ends."""

    kind: ClassVar[Kind]

    def __init__(self) -> None:
        self.nonblocking = False

    def poll_mask(self) -> int:
        """Return what may be done with it at once, as the bits of epoll."""
        return 0

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
        """Close a handle of this kind."""
        self.find(number, kind).close()
        del self._open[number]

    def was_given(self, number: int) -> bool:
        """Say whether a number was ever given to this guest."""
        return FIRST <= number < self._next

    def close_all(self) -> None:
        """Close whatever is open."""
        while self._open:
            self._open.popitem()[1].close()
