"""Tables of one root brought together in a TOML text, each with its comments.

TOML lets ``[[agents]]``, ``[[defaults.mcp]]`` and ``[[agents]]`` follow each other; ``tomlkit``
does not keep such an order, and leaves comments behind when it makes its own. Below: ``tomllib``,
which says where a table begins. Above: ``document.py``, for texts that need it.
"""

from __future__ import annotations

import tomllib
from itertools import pairwise

Lines = list[str]


def gathered(text: str) -> str:
    """Return the text with all tables of a root where the first of them stands.

    What stands before the first table and after the last one stays there.
    """
    lines = (text if text.endswith("\n") else f"{text}\n").splitlines(keepends=True)
    headings = _headings(lines)
    bounds = [_with_comments(lines, index) for index in (*headings, len(lines))]
    places: dict[str, Lines] = {}
    for heading, (start, end) in zip(headings, pairwise(bounds), strict=True):
        [root] = tomllib.loads(lines[heading])
        places.setdefault(root, []).extend(lines[start:end])
    tables = [line for place in places.values() for line in place]
    return "".join([*lines[: bounds[0]], *tables, *lines[bounds[-1] :]])


def _headings(lines: Lines) -> list[int]:
    """Return where tables begin; a bracket within a value has an unfinished one before it."""
    found: list[int] = []
    for index, line in enumerate(lines):
        begin = found[-1] if found else 0
        if line.lstrip().startswith("[") and _is_whole("".join(lines[begin:index])):
            found.append(index)
    return found


def _is_whole(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _with_comments(lines: Lines, heading: int) -> int:
    """Return where the comments of a heading begin: after the first blank line above them."""
    start = heading
    for index in range(heading - 1, -1, -1):
        if lines[index].strip() == "":
            start = index
        elif not lines[index].lstrip().startswith("#"):
            break
    return start
