"""The files a check looks at: what git tracks, or would.

Where there is no git (an unpacked source archive) the folders are walked, and what git would ignore
is left out by name.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_ENVIRONMENTS = (".venv", ".venv-guests", ".venv-proto", ".uv")
IGNORED = frozenset({".git", *_ENVIRONMENTS, "__pycache__", "node_modules", "dist"})


def repository_files(root: Path = ROOT) -> list[Path]:
    """List the files of the repository, sorted; those that are deleted but tracked are left out."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=False)
    if listed.returncode != 0:
        return _walked(root)
    names = listed.stdout.decode().split("\0")
    return sorted(path for name in set(names) if name and (path := root / name).is_file())


def _walked(root: Path) -> list[Path]:
    files = (path for path in root.rglob("*") if path.is_file())
    return sorted(path for path in files if not IGNORED & set(path.relative_to(root).parts))


def report(complaints: list[str]) -> int:
    """Print the complaints; the exit code of a check is 1 if there are any."""
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0
