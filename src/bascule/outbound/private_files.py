"""Files that no record may read, whatever the node's lists say.

The data directory holds the keys that make an administrator, and ``/proc`` the variables of this
process. A file is known by what it is, not by its path: links, mounts and other spellings of a
path lead to the same inode.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath
from typing import TypeAlias

Identity: TypeAlias = tuple[int, int]

_KERNEL = "/proc"


def is_private(real_path: str, places: Iterable[str]) -> bool:
    """Say whether a path without links leads into one of the places, or to a file of theirs.

    A place is a folder or a file. Of a folder everything is private that lies below it, and hard
    links to the files in it and in the folders right below it.
    """
    own = tuple(places)
    if leads_into(real_path, (*own, _KERNEL)):
        return True
    found = identity(real_path)
    return found is not None and (found in set(_files(own)) or _is_kernels(found))


def is_private_file(found: os.stat_result, places: Iterable[str]) -> bool:
    """Say the same of a file that is open: the path may have been changed since it was asked."""
    opened = (found.st_dev, found.st_ino)
    return opened in set(_files(places)) or _is_kernels(opened)


def identity(path: str | Path) -> Identity | None:
    """Return which file or folder a path leads to, if there is one."""
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def leads_into(real_path: str, places: tuple[str, ...]) -> bool:
    """Say whether a path without links is one of the places, or lies below one."""
    path = PurePath(real_path)
    if any(path.is_relative_to(Path(place).resolve()) for place in places):
        return True
    roots = {identity(place) for place in places} - {None}
    return any(identity(str(parent)) in roots for parent in (path, *path.parents))


def _files(places: Iterable[str]) -> Iterator[Identity]:
    for place in map(Path, places):
        yield from _known(identity(place))
        for entry in _entries(place):
            yield from _known(identity(entry))
            if entry.is_dir() and not entry.is_symlink():
                for below in _entries(entry):
                    yield from _known(identity(below))


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _known(found: Identity | None) -> Iterator[Identity]:
    if found is not None:
        yield found


def _is_kernels(found: Identity) -> bool:
    """Say whether it is of the same file system as ``/proc``, wherever that is mounted as well."""
    kernel, root = identity(_KERNEL), identity("/")
    if kernel is None or root is None or kernel[0] == root[0]:
        return False  # a machine without such a file system
    return found[0] == kernel[0]
