"""Which files of a directory count as records.

Only ``*.toml`` and ``*.json``, not hidden, not an editor's leftovers, not below further folders;
a link counts when it stays inside the directory, so that a Kubernetes ConfigMap mount works and
nothing else can be pulled in. Below: the file system. Above: ``scan.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bascule.model.snapshot import Kind

MAX_FILE_BYTES = 4 * 1024 * 1024
SUFFIXES = frozenset({".toml", ".json"})
FOLDERS: Mapping[str, Kind] = {"tasks": "task", "profiles": "profile", "backends": "backend"}


def record_files(directory: Path, warnings: list[str], *, within: Path | None = None) -> list[Path]:
    """Return the files of a directory that hold records, in lexicographic order of their names."""
    root = (within or directory).resolve()
    if not directory.is_dir() or not directory.resolve().is_relative_to(root):
        return []
    files: list[Path] = []
    for path in sorted(directory.iterdir(), key=lambda entry: entry.name):
        if not _is_candidate(path):
            continue
        if not path.resolve().is_relative_to(root):
            warnings.append(f"{path.name}: is a link out of the directory and was not followed")
        elif path.is_file():
            files.append(path)
    return files


def _is_candidate(path: Path) -> bool:
    name = path.name
    return path.suffix in SUFFIXES and not name.startswith((".", "#", "~")) and "~" not in name
