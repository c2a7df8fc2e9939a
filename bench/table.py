"""What a benchmark hands back, and how it is shown.

A row with a goal is made by ``at_most`` or ``at_least``, so that whether the goal was met is worked
out in one place.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

HEADINGS = ("figure", "value", "goal", "met")


@dataclass(frozen=True)
class Row:
    """One figure. ``goal`` is None for a figure that is only shown beside the others."""

    name: str
    value: float
    unit: str
    goal: str | None = None
    met: bool | None = None


def at_most(name: str, value: float, unit: str, goal: float, where: str = "") -> Row:
    """Make a row for a figure that should stay at or under ``goal``; ``where``: on what machine."""
    return Row(name, value, unit, _goal("at most", goal, unit, where), value <= goal)


def at_least(name: str, value: float, unit: str, goal: float, where: str = "") -> Row:
    """Make a row for a figure that should reach ``goal``."""
    return Row(name, value, unit, _goal("at least", goal, unit, where), value >= goal)


def _goal(words: str, goal: float, unit: str, where: str) -> str:
    return " ".join(filter(None, (words, _number(goal), unit, where)))


def plain(rows: Sequence[Row]) -> str:
    """Lay the rows out for a terminal: the first column to the left, figures to the right."""
    cells = [HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    return "\n".join(_padded(line, widths) for line in cells)


def markdown(rows: Sequence[Row]) -> str:
    """The same table as Markdown."""
    return table(HEADINGS, map(_cells, rows), figures={1})


def table(
    headings: Sequence[str], lines: Iterable[Sequence[str]], figures: Container[int] | None = None
) -> str:
    """Lay out Markdown; ``figures`` are the columns to the right, all but the first one if none."""
    right = figures if figures is not None else range(1, len(headings))
    rule = ["---:" if column in right else "---" for column in range(len(headings))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (headings, rule, *lines))


def missed(rows: Sequence[Row]) -> list[Row]:
    """Pick the rows that have a goal and did not reach it."""
    return [row for row in rows if row.met is False]


def _cells(row: Row) -> tuple[str, ...]:
    value = f"{_number(row.value)} {row.unit}".rstrip()
    verdict = {True: "yes", False: "NO", None: ""}[row.met]
    return row.name, value, row.goal or "", verdict


def _padded(line: Sequence[str], widths: Sequence[int]) -> str:
    name, value, goal, verdict = line
    text = f"{name:<{widths[0]}}  {value:>{widths[1]}}  {goal:<{widths[2]}}  {verdict}"
    return text.rstrip()


def _number(value: float) -> str:
    """Three significant figures, whole numbers from a thousand on."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
