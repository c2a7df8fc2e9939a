"""Folders that servers wrote in: how large they are, and their removal whatever is in them."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path

_BLOCK = 512  # what st_blocks counts in, on every system


def remove_tree(folder: Path) -> None:
    """Remove a folder, and folders in it that a server closed to writing (package caches do)."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        _open_up(folder)
        for parent, names, _ in os.walk(folder):
            for name in names:
                _open_up(Path(parent) / name)
        shutil.rmtree(folder, ignore_errors=True)


def size_of_tree(folder: Path) -> int:
    """Return what a folder takes on the disk; a file with several names counts once."""
    total, seen = 0, set[tuple[int, int]]()
    waiting = [str(folder)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                total += _size_of(entry, seen)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return total


def _size_of(entry: os.DirEntry[str], seen: set[tuple[int, int]]) -> int:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return 0
    if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
        if (found.st_dev, found.st_ino) in seen:
            return 0
        seen.add((found.st_dev, found.st_ino))
    return found.st_blocks * _BLOCK


def _open_up(folder: Path) -> None:
    """Make a folder writable to us; what a link points at is not ours to change."""
    with contextlib.suppress(OSError):
        if not folder.is_symlink():
            folder.chmod(0o700)
