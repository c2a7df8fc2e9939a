"""The folders that a Python environment takes code from besides its own: editable installations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_LONGEST = 64 * 1024  # of a file with paths; a longer one is something else
_MOST = 64


def linked_sources(environment: str) -> Iterator[str]:
    """Return the folders that the ``.pth`` files of a Python environment name.

    The root of the machine is none of them, and neither is what holds the environment itself.
    """
    inside = Path(environment).resolve()
    for listing in sorted(inside.glob("lib/python3*/site-packages/*.pth"))[:_MOST]:
        for line in _lines(listing):
            folder = Path(line)
            if folder.is_absolute() and folder.is_dir():
                place = folder.resolve()
                if place not in (inside, *inside.parents):
                    yield str(place)


def _lines(listing: Path) -> list[str]:
    try:
        if listing.stat().st_size > _LONGEST:
            return []
        text = listing.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if not line.startswith(("#", "import ", "import\t"))]
