"""Which files of a directory count as records.

Only ``*.toml`` and ``*.json``, not hidden, not an editor's leftovers, not below further folders;
a link counts when it stays inside the directory, so that a Kubernetes ConfigMap mount works and
nothing else can be pulled in. Below: the file system. Above: ``scan.py``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bascule.model.snapshot import Kind

MAX_FILE_BYTES = 4 * 1024 * 1024
SUFFIXES = frozenset({".toml", ".json"})
FOLDERS: Mapping[str, Kind] = {"tasks": "task", "profiles": "profile", "backends": "backend"}


def record_files(directory: Path, warnings: list[str], *, within: Path | None = None) -> list[Path]:
    """Return the files of a directory that hold records, in lexicographic order of their names.

    The directory must be there. A file that vanishes after it was listed is among them: whoever
    reads it finds it broken, since what cannot be read now was not taken away by anybody.
    """
    root = _real(within or directory)
    if not _real(directory).is_relative_to(root):
        return []
    files: list[Path] = []
    for path in sorted(directory.iterdir(), key=lambda entry: entry.name):
        if not _is_candidate(path):
            continue
        if not _real(path).is_relative_to(root):
            warnings.append(f"{path.name}: is a link out of the directory and was not followed")
        elif not (path.is_dir() or _leads_nowhere(path)):
            files.append(path)
    return files


def _leads_nowhere(path: Path) -> bool:
    return path.is_symlink() and not path.exists()


def record_folders(directory: Path) -> list[str]:
    """Return the folders of the other kinds that a directory has."""
    names = {entry.name for entry in directory.iterdir()}
    return [name for name in FOLDERS if name in names and not (directory / name).is_file()]


def _real(path: Path) -> Path:
    """Return where a path leads; a link that leads to itself leads nowhere, and is no error."""
    return Path(os.path.realpath(path))


def _is_candidate(path: Path) -> bool:
    name = path.name
    return path.suffix in SUFFIXES and not name.startswith((".", "#", "~")) and "~" not in name
