"""Tables for people: aligned columns, colour on a terminal, plain text elsewhere."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Literal, TextIO

Colour = Literal["green", "red", "yellow", "dim", "bold"]
_CODES: dict[Colour, str] = {"green": "32", "red": "31", "yellow": "33", "dim": "2", "bold": "1"}
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def paint(text: str, colour: Colour, stream: TextIO | None = None) -> str:
    """Colour a text where somebody can see it (``NO_COLOR`` is honoured)."""
    where: TextIO = sys.stdout if stream is None else stream
    if not where.isatty() or "NO_COLOR" in os.environ:
        return text
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m"


def render_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out rows under a header, two spaces between columns."""
    painted = [[paint(cell, "bold") for cell in header], *rows]
    widths = [max(_width(row[column]) for row in painted) for column in range(len(header))]
    return "\n".join(_line(row, widths) for row in painted)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
    return "  ".join(cells).rstrip()


def _width(text: str) -> int:
    return len(_ESCAPE.sub("", text))
