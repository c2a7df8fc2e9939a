"""Whether one pattern leaves anything of another: for telling what a change of a list really does.

Both answers are about the texts alone, for ``*`` and ``?`` as in ``pattern.py``. Above: commands
that take a pattern away and have to say whether another still allows what it covered.
"""

from __future__ import annotations

from functools import cache


def overlaps(one: str, other: str) -> bool:
    """Say whether some name is covered by both globs."""

    @cache
    def meet(i: int, j: int) -> bool:
        if i == len(one) and j == len(other):
            return True
        if i < len(one) and one[i] == "*":
            return meet(i + 1, j) or (j < len(other) and meet(i, j + 1))
        if j < len(other) and other[j] == "*":
            return meet(i, j + 1) or (i < len(one) and meet(i + 1, j))
        if i == len(one) or j == len(other):
            return False
        return (one[i] == other[j] or "?" in (one[i], other[j])) and meet(i + 1, j + 1)

    return meet(0, 0)


def covers(wide: str, narrow: str) -> bool:
    """Say whether every name of one glob is one of the other, as far as their texts can tell."""

    @cache
    def within(i: int, j: int) -> bool:
        if i == len(wide):
            return j == len(narrow)
        if wide[i] == "*":
            return within(i + 1, j) or (j < len(narrow) and within(i, j + 1))
        if j == len(narrow) or narrow[j] == "*":
            return False
        return wide[i] in ("?", narrow[j]) and within(i + 1, j + 1)

    return within(0, 0)
