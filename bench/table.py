"""What a benchmark hands back, and how it is shown.

A row with a goal is made by ``at_most`` or ``at_least``, so that whether the goal was met is worked
out in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def at_most(name: str, value: float, unit: str, goal: float) -> Row:
    """Make a row for a figure that should stay at or under ``goal``."""
    return Row(name, value, unit, f"at most {_number(goal)} {unit}".rstrip(), value <= goal)


def at_least(name: str, value: float, unit: str, goal: float) -> Row:
    """Make a row for a figure that should reach ``goal``."""
    return Row(name, value, unit, f"at least {_number(goal)} {unit}".rstrip(), value >= goal)


def plain(rows: Sequence[Row]) -> str:
    """Lay the rows out for a terminal: the first column to the left, figures to the right."""
    cells = [HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    return "\n".join(_padded(line, widths) for line in cells)


def markdown(rows: Sequence[Row]) -> str:
    """The same table as Markdown."""
    lines = [HEADINGS, ("---", "---:", "---", "---"), *(_cells(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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
