"""Directional marks that belong to the script of their text.

Arabic, Hebrew and other scripts are written from right to left, and text that mixes them with
others needs marks that say which way a piece runs. There they stay: a mark beside such letters, an
isolate or embedding that is closed on its line and is around or among them. Overrides, which show
letters in another order than they stand in, never stay; nor does any mark in text without such
letters. Pure.
"""

from __future__ import annotations

import re

# Letters of scripts that run from right to left; the marks among them are none of these.
_RIGHT_TO_LEFT = re.compile(
    "[\u0590-\u061b\u061d-\u08ff\ufb1d-\ufdff\ufe70-\ufefe"
    "\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
_MARKS = "\u061c\u200e\u200f"
_OVERRIDES = "\u202d\u202e"
_CLOSED_BY = {
    **dict.fromkeys("\u202a\u202b\u202d\u202e", "\u202c"),
    **dict.fromkeys("\u2066\u2067\u2068", "\u2069"),
}
_CLOSING = "\u202c\u2069"
_DIRECTIONAL = re.compile(f"[{_MARKS}{_CLOSING}{''.join(_CLOSED_BY)}]")
# How far from a mark its script is looked for, on the same line.
_NEAR = 48
# A line with more of them than this is no ordinary writing.
_MAX_OPEN = 16


def belonging(text: str) -> frozenset[int]:
    """The places of directional marks that stay."""
    if not _RIGHT_TO_LEFT.search(text):
        return frozenset()
    kept: set[int] = set()
    start = 0
    for line in text.splitlines(keepends=True):
        if _RIGHT_TO_LEFT.search(line):
            kept.update(start + at for at in _of_line(line))
        start += len(line)
    return frozenset(kept)


def _of_line(line: str) -> list[int]:
    kept: list[int] = []
    opened: list[int] = []
    for match in _DIRECTIONAL.finditer(line):
        at, character = match.start(), match[0]
        if character in _MARKS and _is_near(line, at, at + 1):
            kept.append(at)
        elif character in _CLOSED_BY:
            opened.append(at)
        elif character in _CLOSING and opened and _CLOSED_BY[line[opened[-1]]] == character:
            began = opened.pop()
            if line[began] not in _OVERRIDES and _is_near(line, began, at + 1):
                kept += [began, at]
        if len(opened) > _MAX_OPEN:
            return []
    return kept


def _is_near(line: str, start: int, end: int) -> bool:
    """Whether letters of such a script are in a piece of a line, or close to it."""
    return _RIGHT_TO_LEFT.search(line, max(0, start - _NEAR), end + _NEAR) is not None
