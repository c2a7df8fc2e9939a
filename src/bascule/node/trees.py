"""Folders that servers wrote in: how large they are, and their removal whatever is in them."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from pathlib import Path
from typing import NamedTuple

BLOCK = 512  # what st_blocks counts in, on every system
_A_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Measure(NamedTuple):
    """What a folder takes on the disk, and how many entries it has.

    ``closed``: its owner closed a folder in it, or made one deeper than a path reaches.
    """

    size: int
    entries: int
    closed: bool


def remove_tree(folder: Path) -> None:
    """Remove a folder, whatever modes and depth a server gave to what is in it."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():  # package caches are closed to writing, and one may be too deep
        _open_up(folder)
        with contextlib.suppress(OSError):
            _empty(folder)
            folder.rmdir()


def _empty(folder: Path) -> None:
    """Remove what is in a folder. What is deeper is moved up first: no depth is too much."""
    root = os.open(folder, _A_FOLDER)
    try:
        while names := os.listdir(root):  # noqa: PTH208 -- by its descriptor
            if not sum(_removed(name, root) for name in names):
                return
    finally:
        os.close(root)


def _removed(name: str, root: int) -> bool:
    """Remove an entry, with the folders below it moved beside it; say whether that worked."""
    try:
        if not _opened_up(name, root):
            os.unlink(name, dir_fd=root)
            return True
        inside = os.open(name, _A_FOLDER, dir_fd=root)
        try:
            for child in os.listdir(inside):  # noqa: PTH208 -- by its descriptor
                if _opened_up(child, inside):
                    os.rename(child, secrets.token_hex(16), src_dir_fd=inside, dst_dir_fd=root)
                else:
                    os.unlink(child, dir_fd=inside)
        finally:
            os.close(inside)
        os.rmdir(name, dir_fd=root)
    except OSError:
        return False
    return True


def _opened_up(name: str, parent: int) -> bool:
    """Say whether this is a folder, which is made ours to read and write."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        return False
    os.chmod(name, 0o700, dir_fd=parent)
    return True


def size_of_tree(folder: Path) -> int:
    """Return what a folder takes on the disk; a file with several names counts once."""
    return measure_tree(folder).size


def measure_tree(folder: Path) -> Measure:
    """Measure a folder, as far as one can look into it."""
    size, entries, closed = 0, 0, False
    seen = set[tuple[int, int]]()
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as found:
                for entry in found:
                    entries += 1
                    size += _size_of(entry, seen)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            continue  # removed since, or made something else
        except OSError:
            closed = True
    return Measure(size, entries, closed)


def _size_of(entry: os.DirEntry[str], seen: set[tuple[int, int]]) -> int:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return 0
    if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
        if (found.st_dev, found.st_ino) in seen:
            return 0
        seen.add((found.st_dev, found.st_ino))
    return found.st_blocks * BLOCK


def _open_up(folder: Path) -> None:
    """Make a folder writable to us; what a link points at is not ours to change."""
    with contextlib.suppress(OSError):
        if not folder.is_symlink():
            folder.chmod(0o700)
