"""Whether a process that is starting works, or only waits.

Where there is no /proc nothing is known, and nothing is claimed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from bascule.model.sandbox import Standing

#: Reads how long a process and its descendants have worked, in seconds; None when unknown.
Work = Callable[[int], float | None]

_USER_TIME = 11  # of what stands behind the name in /proc/<pid>/stat
_TIMES = 4  # user and system time, of itself and of children that it has waited for


@runtime_checkable
class LocalProcess(Protocol):
    """A channel to a process of this machine."""

    @property
    def pid(self) -> int:
        """Return the process, as this side of the machine numbers it."""
        ...


@runtime_checkable
class Confined(Protocol):
    """A channel to a process that its record may confine."""

    @property
    def standing(self) -> Standing | None:
        """Return how it is confined; None for one that was not to be."""
        ...


@runtime_checkable
class Launched(Protocol):
    """A channel to a process that a launcher may have fetched."""

    def came_up(self) -> None:
        """Take note that the server is there."""
        ...

    def another_way(self, *, late: bool) -> bool:
        """Say whether the next start is another: from the network, or from what was fetched."""
        ...


def work_of(pid: int) -> float | None:
    """Return the processor time of a process and of all that descends from it, in seconds."""
    ticks = 0
    waiting, seen = [pid], set[int]()
    while waiting:
        current = waiting.pop()
        own = _ticks(current)
        if own is None and current == pid:
            return None
        seen.add(current)
        ticks += own or 0
        waiting += [child for child in _children(current) if child not in seen]
    return ticks / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> int | None:
    text = _read(f"/proc/{pid}/stat")
    words = text.rpartition(b")")[2].split()
    if len(words) < _USER_TIME + _TIMES:
        return None
    return sum(int(word) for word in words[_USER_TIME : _USER_TIME + _TIMES])


def _children(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - many, and often
    except OSError:
        return []
    return [
        int(child)
        for thread in threads
        for child in _read(f"/proc/{pid}/task/{thread}/children").split()
    ]


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - as above
            return file.read()
    except OSError:
        return b""
