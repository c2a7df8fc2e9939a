"""Temporary files in memory, while tests run: a commit there waits for no disk.

The tests commit tens of thousands of times, and none of them takes the power away. ``make soak``
writes to the disk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108 - where Linux has files in memory
LEAST_BYTES = 2 << 30


@contextmanager
def quick_folder(memory: Path = MEMORY, least_bytes: int = LEAST_BYTES) -> Generator[Path | None]:
    """Have temporary files in memory until the block ends; None where they stay on the disk.

    They stay there if somebody chose a place for them, and if there is little room in memory or
    programs cannot be run there.
    """
    if "TMPDIR" in os.environ or not is_fit(memory, least_bytes):
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="t-", dir=memory))  # short, for the names of sockets
    os.environ["TMPDIR"], tempfile.tempdir = str(folder), None
    try:
        yield folder
    finally:
        del os.environ["TMPDIR"]
        tempfile.tempdir = None
        shutil.rmtree(folder, ignore_errors=True)


def is_fit(folder: Path, least_bytes: int) -> bool:
    """Say whether a folder has room, and lets programs be written and run."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    runs = not found.f_flag & os.ST_NOEXEC
    return runs and found.f_bavail * found.f_frsize >= least_bytes and os.access(folder, os.W_OK)
