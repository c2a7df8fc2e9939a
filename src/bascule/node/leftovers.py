"""Temporary folders with an owner, so that those of a killed process are swept by the next.

Each holds a file that its owner keeps locked. A lock dies with its process, however that ended: a
folder whose lock can be taken is nobody's any more.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import threading
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from bascule.node.trees import remove_tree

PREFIX = "bascule-"
OWNER_FILE = ".owner"


class OwnedFolder:
    """A temporary folder, private, that is ours until ``close`` or until the process ends."""

    def __init__(self, kind: str = "") -> None:
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}"))  # mode 0700
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            lock = os.open(self.path / OWNER_FILE, flags, 0o600)
            self._unlock = weakref.finalize(self, os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.fstat(lock).st_nlink:
                return
            self._unlock()  # a sweeper came between the two: another folder will do

    def close(self) -> None:
        """Remove the folder with all that is in it. Any number of times."""
        remove_tree(self.path)
        self._unlock()


@contextmanager
def owned_folder(kind: str) -> Generator[Path]:
    """Return a folder that is there for as long as the block."""
    folder = OwnedFolder(kind)
    try:
        yield folder.path
    finally:
        folder.close()


@cache
def sweep_once() -> None:
    """Sweep beside whatever goes on, once in the life of this process."""
    threading.Thread(target=sweep, name="bascule-sweep", daemon=True).start()


def sweep() -> list[Path]:
    """Remove the folders whose owners have ended; return which those were."""
    place = Path(tempfile.gettempdir())
    try:
        found = [one for one in place.iterdir() if one.name.startswith(PREFIX)]
    except OSError:
        return []
    return [folder for folder in found if _swept(folder)]


def _swept(folder: Path) -> bool:
    try:
        if not _is_own(folder.lstat()):
            return False
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(folder / OWNER_FILE, flags)
    except OSError:
        return False  # not one of these, or gone by now
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_tree(folder)
    except OSError:
        return False  # its owner lives
    finally:
        os.close(lock)
    return True


def _is_own(seen: os.stat_result) -> bool:
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid()
