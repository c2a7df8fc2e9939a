"""What files gave when they were last read, so that an unchanged one is not read again.

A file is the same while its place on the disk, its size and its dates are. A young one is read
again all the same: dates are no finer than a tick of the file system, and two writes may share one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from msgspec import Struct

from bascule.model.kinds import Kind, Record

if TYPE_CHECKING:
    from bascule.clock import Clock

T = TypeVar("T")
Stamp: TypeAlias = tuple[int, ...]
#: The coarsest tick that file systems have.
_TICK_SECONDS = 2.0


class Read(Struct, frozen=True):
    """What stands in one place of a file: a record with what is doubtful, or what is wrong."""

    source: str
    kind: Kind
    record: Record | None = None
    said: tuple[str, ...] = ()
    #: The file may give something else next time, without being another: a disk that failed.
    passing: bool = False


Reads: TypeAlias = tuple[Read, ...]


class Memory(Generic[T]):
    """Remembers the files of one source, and what was made of all of them together.

    Without a clock nobody can tell which files are young, and every one is read each time.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self._files: dict[str, tuple[Stamp, Reads]] = {}
        self._gathered: Sequence[Reads] = ()
        self._beside: tuple[str, ...] = ()
        self._made: T | None = None
        #: How many files were read so far.
        self.reads = 0

    def of(self, path: str, read: Callable[[], Reads]) -> Reads:
        """Return what a file gives, from the last time if it is the same."""
        stamp = self._stamp(path)
        known = self._files.get(path)
        if known is not None and stamp == known[0]:
            return known[1]
        self.reads += 1
        self._files.pop(path, None)
        found = read()
        if stamp is not None and not any(one.passing for one in found):
            self._files[path] = (stamp, found)
        return found

    def made(self, gathered: Sequence[Reads], beside: tuple[str, ...], make: Callable[[], T]) -> T:
        """Return what all files give together: what was made before, if they are the same.

        ``beside`` is what was said about files that were not read.
        """
        known = self._made
        if known is None or beside != self._beside or not _same(self._gathered, gathered):
            self._gathered, self._beside, self._made = gathered, beside, make()
            self._forget(gathered)
            return self._made
        return known

    def _forget(self, gathered: Sequence[Reads]) -> None:
        """Forget files that are not there any more."""
        kept = {id(reads) for reads in gathered}
        self._files = {p: known for p, known in self._files.items() if id(known[1]) in kept}

    def _stamp(self, path: str) -> Stamp | None:
        """Return what changes with the file; None while that is unsure."""
        if self._clock is None:
            return None
        try:
            seen = os.stat(path)  # noqa: PTH116 - ten thousand of them, and a Path costs more
        except OSError:
            return None
        if self._clock.now() - max(seen.st_mtime, seen.st_ctime) < _TICK_SECONDS:
            return None
        return (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)


def _same(old: Sequence[Reads], new: Sequence[Reads]) -> bool:
    """Compare by identity: two readings of one text are equal where ``1`` became ``true``."""
    return len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True))
