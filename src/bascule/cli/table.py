"""Tables for people: aligned columns, colour on a terminal, plain text elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import Literal, TextIO

Colour = Literal["green", "red", "yellow", "dim", "bold"]
_CODES: dict[Colour, str] = {"green": "32", "red": "31", "yellow": "33", "dim": "2", "bold": "1"}
_USUAL_WIDTH = 80
_GAP = "  "
_NARROWEST = 6
_NARROWEST_LAST = 20
#: A longer word is a path, an address or a pattern: it is broken before a plain one is.
_PLAIN_WORD = 14
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def paint(text: str, colour: Colour, stream: TextIO | None = None) -> str:
    """Colour a text where somebody can see it (``NO_COLOR`` is honoured)."""
    where: TextIO = sys.stdout if stream is None else stream
    if not where.isatty() or "NO_COLOR" in os.environ:
        return text
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m"


def verdict(allowed: bool) -> str:  # noqa: FBT001 - the one thing it says
    return paint("allowed", "green") if allowed else paint("denied", "red")


def on_or_off(*, on: bool) -> str:
    return paint("on", "green") if on else paint("off", "dim")


def render_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    none: str | None = None,
    cut_last: bool = False,
) -> str:
    """Lay out rows under a header, two spaces between columns, no wider than the terminal.

    The widest columns give way, between words while that is enough, then inside long ones: their
    cells go on in the next line, or with ``cut_last`` those of the last one are cut. Where there is
    no terminal, 80 columns (or ``COLUMNS``) are meant. ``none`` stands for a table without rows.
    """
    if none is not None and not rows:
        return none
    painted = [[paint(cell, "bold") for cell in header], *rows]
    widths = [max(_width(row[column]) for row in painted) for column in range(len(header))]
    room = shutil.get_terminal_size((_USUAL_WIDTH, 24)).columns - len(_GAP) * (len(header) - 1)
    words = [max(_longest_word(row[column]) for row in painted) for column in range(len(header))]
    if cut_last:
        spare = room - sum(widths[:-1])
        widths[-1] = min(widths[-1], max(spare, _NARROWEST_LAST))
    plain = [word if word <= _PLAIN_WORD else _NARROWEST for word in words]
    for least in (words, plain, [_NARROWEST] * len(words)):
        widths = _fitting(widths, least, room)
    lines = [line for row in painted for line in _lines(row, widths, cut_last=cut_last)]
    return "\n".join(lines)


def _fitting(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return widths that fit, taken from the widest column that is above its least width."""
    fitting = list(widths)
    while sum(fitting) > room:
        spare = [width if width > low else 0 for width, low in zip(fitting, least, strict=True)]
        if not any(spare):
            break
        fitting[spare.index(max(spare))] -= 1
    return fitting


def _longest_word(cell: str) -> int:
    return max(map(len, _ESCAPE.sub("", cell).split()), default=0)


def _lines(row: Sequence[str], widths: Sequence[int], *, cut_last: bool) -> list[str]:
    """Return a row as lines: as many as its tallest cell needs."""
    cells = [_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
    if cut_last and len(cells[-1]) > 1:
        cells[-1] = [f"{_ESCAPE.sub('', row[-1])[: widths[-1] - 1]}…"]
    return [_line(parts, widths) for parts in zip_longest(*cells, fillvalue="")]


def _wrapped(cell: str, width: int) -> list[str]:
    if _width(cell) <= width:
        return [cell]
    return textwrap.wrap(_ESCAPE.sub("", cell), width, break_on_hyphens=False) or [""]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
    return _GAP.join(cells).rstrip()


def _width(text: str) -> int:
    return len(_ESCAPE.sub("", text))
