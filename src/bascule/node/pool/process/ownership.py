"""Private folders in the hands of the user that a server runs as, where the node is root."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

_SEARCH = 0o711  # others may pass through, and see nothing


def hand_over(folders: Iterable[str], user: int, ours: str | None) -> None:
    """Give folders with all in them to a user, and a way there through what is the node's own."""
    for folder in folders:
        if Path(folder).lstat().st_uid != user:
            _give(folder, user)
        if ours is not None:
            for parent in Path(folder).parents:
                if parent.is_relative_to(ours):
                    parent.chmod(_SEARCH)


def _give(folder: str, user: int) -> None:
    os.lchown(folder, user, user)
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):
                _give_entry(f"{parent}/{name}", user)


def _give_entry(path: str, user: int) -> None:
    """Change the owner and keep the mode: a change of owner takes set-user-id bits away anyway."""
    found = os.lstat(path)
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        return  # a second name of a file that may be somebody else's
    os.lchown(path, user, user)
