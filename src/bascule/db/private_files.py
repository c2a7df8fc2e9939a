"""Files that only their owner may read: keys, tokens and what else is not for others."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path

from bascule.errors import BasculeError


class KeyUnusable(BasculeError):
    """A key's file is not private or not a key."""


def private_folder(path: Path) -> None:
    """Make a folder that only its owner can enter, unless it is there."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, "is not a directory", str(path)) from None


def write_private(path: Path, content: bytes, *, replace: bool = True) -> None:
    """Write a file that only its owner can read; all of it is there or nothing.

    ``replace=False`` leaves a file that is there already as it is.
    """
    private_folder(path.parent)
    unfinished = path.with_name(_unfinished(path) + secrets.token_hex(4))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(unfinished, flags, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            unfinished.replace(path)
        else:
            with suppress(FileExistsError):
                path.hardlink_to(unfinished)
    finally:
        unfinished.unlink(missing_ok=True)


def _unfinished(path: Path) -> str:
    """Return how the names begin under which a file is written, before it has its own."""
    return f".{path.name}."


def sweep_unfinished(path: Path) -> None:
    """Remove what writers of a file left that were killed; nobody may be writing it now."""
    start = _unfinished(path)
    for found in path.parent.iterdir() if path.parent.is_dir() else ():
        if found.name.startswith(start):
            found.unlink(missing_ok=True)


def private_key(path: Path, size: int) -> bytes:
    """Return a key of so many random bytes, made on first use and kept in a private file.

    Of two processes that make one at the same time both go on with the same key.
    """
    if not path.exists():
        write_private(path, secrets.token_bytes(size), replace=False)
    return read_key(path, size)


def read_key(path: Path, size: int) -> bytes:
    """Return the key in a file; raise KeyUnusable unless it is private and has that many bytes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if os.fstat(file.fileno()).st_mode & 0o077:
            raise KeyUnusable(f"{path}: others may read it; run chmod 600 {path}")
        key = file.read(size + 1)
    if len(key) != size:
        raise KeyUnusable(f"{path}: not a key, which has {size} bytes; restore it from a backup")
    return key


def sync_folder(path: Path) -> None:
    """Make a file's name survive a crash of the system."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
