"""Which files of a directory count as records.

Only ``*.toml`` and ``*.json``, not hidden, not an editor's leftovers, not below further folders; a
link counts when it stays inside the directory, so that a Kubernetes ConfigMap mount works and
nothing else can be pulled in, unless somebody asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bascule.model.kinds import Kind

MAX_FILE_BYTES = 4 * 1024 * 1024
SUFFIXES = (".toml", ".json")
FOLDERS: Mapping[str, Kind] = {
    "tasks": "task",
    "profiles": "profile",
    "backends": "backend",
    "users": "user",
}


def record_names(
    directory: Path,
    warnings: list[str],
    *,
    within: Path | None = None,
    follow_links: bool = False,
) -> list[str]:
    """Return the names of a directory's files that hold records, in lexicographic order.

    The directory must be there. A file that vanishes after it was listed is among them: whoever
    reads it finds it broken, since what cannot be read now was not taken away by anybody.
    ``follow_links`` is for whoever wants links out of the directory to count as well.
    """
    root = None if follow_links else _real(within or directory)
    if not _is_inside(directory, root):
        warnings.append(_left_alone(directory.name))
        return []
    names: list[str] = []
    with os.scandir(directory) as found:
        entries = sorted((e for e in found if _is_candidate(e.name)), key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_symlink() and not _is_inside(Path(entry.path), root):
            warnings.append(_left_alone(entry.name))
        elif not _is_folder_or_nothing(entry):
            names.append(entry.name)
    return names


def _left_alone(name: str) -> str:
    return f"{name}: is a link out of the directory and was not followed"


def _is_inside(path: Path, root: Path | None) -> bool:
    return root is None or _real(path).is_relative_to(root)


def _is_folder_or_nothing(entry: os.DirEntry[str]) -> bool:
    if not entry.is_symlink():
        return entry.is_dir()
    path = Path(entry.path)
    return path.is_dir() or not path.exists()


def record_folders(directory: Path) -> list[str]:
    """Return the folders of the other kinds that a directory has."""
    names = set(os.listdir(directory))  # noqa: PTH208 - of ten thousand, only names count
    return [name for name in FOLDERS if name in names and not (directory / name).is_file()]


def _real(path: Path) -> Path:
    """Return where a path leads; a link that leads to itself leads nowhere, and is no error."""
    return Path(os.path.realpath(path))


def _is_candidate(name: str) -> bool:
    return name.endswith(SUFFIXES) and not name.startswith((".", "#", "~")) and "~" not in name
