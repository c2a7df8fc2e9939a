"""Whether anybody wrote to some files, asked before every use of what was read from them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TypeAlias

from bascule.clock import SYSTEM_CLOCK

#: A file's date is no finer than the kernel's tick: a younger one may stand for two writes.
_SETTLED_SECONDS = 0.1

#: Of each file: which it is, its size, when it was written to (in ns), and how many names it has.
Stamp: TypeAlias = tuple[tuple[int, int, int, int], ...]


class FileState:
    """The state of files that belong together, seen through descriptors that are kept.

    The descriptors are for looking alone (``O_PATH``): closing any other would end the locks that
    SQLite holds on the same file in this process. Where there are none, the paths are asked.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = tuple(paths)
        self._descriptors: tuple[int, ...] = ()
        self._settled: Stamp | None = None

    def stamp(self) -> Stamp | None:
        """Return what changes with every write, by whatever process; None while that is unsure."""
        try:
            seen = [os.stat(place) for place in self._descriptors or self._places()]  # noqa: PTH116
        except OSError:
            return None
        stamp = tuple([(o.st_ino, o.st_size, o.st_mtime_ns, o.st_nlink) for o in seen])
        return stamp if stamp == self._settled else self._settle(stamp)

    def _settle(self, stamp: Stamp) -> Stamp | None:
        """Take a stamp for the files' state, unless another write could have the same."""
        if not all(links for *_, links in stamp):  # removed, or another file was put there
            self.close()
            return None
        youngest = max(written for _, _, written, _ in stamp) / 1e9
        if SYSTEM_CLOCK.now() - youngest < _SETTLED_SECONDS:
            return None
        self._settled = stamp
        return stamp

    def _places(self) -> tuple[int, ...] | tuple[str, ...]:
        if sys.platform != "linux":
            return self._paths
        self._descriptors = _opened(self._paths, os.O_PATH | os.O_CLOEXEC)
        return self._descriptors

    def close(self) -> None:
        """Let go of the files. Any number of times."""
        descriptors, self._descriptors = self._descriptors, ()
        for descriptor in descriptors:
            os.close(descriptor)


def _opened(paths: Sequence[str], flags: int) -> tuple[int, ...]:
    """Open all of them, or none."""
    descriptors: list[int] = []
    try:
        for path in paths:
            descriptors.append(os.open(path, flags))  # noqa: PERF401 - those before are closed
    except OSError:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return tuple(descriptors)
