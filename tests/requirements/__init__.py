"""The manifest of required behaviours: the contents list of the whole product.

``manifest.md`` beside this module is the data: a heading for each area, and under it a table with
one row for each behaviour. Tests that show one carry its id, as in
``@pytest.mark.requirement("area:feature:variant")``; ``tests/test_requirements.py`` compares both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

MANIFEST = Path(__file__).parent / "manifest.md"
SHOWN = "shown"
DEFERRED = "deferred: "
NOT_PLANNED = "not planned: "

#: The pieces of work a behaviour may be deferred to.
WORKS = (
    "approvals, ledger and secrets",
    "more doors",
    "web admin",
    "hostcalls",
    "scale-out",
)

_HEADING = re.compile(r"## (?P<name>[a-z]+): (?P<title>.+)")
_SEPARATOR = re.compile(r"(?<!\\)\|")
_HEADER = ("id", "behaviour", "source", "state")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One behaviour, in one sentence that a test can contradict.

    ``state`` is ``shown``, ``deferred: `` and a piece of work, or ``not planned: `` and why.
    """

    id: str
    text: str
    source: str
    state: str

    @property
    def area(self) -> str:
        """Return the first part of the id, which is the name of its area."""
        return self.id.partition(":")[0]

    @property
    def shown(self) -> bool:
        """Say whether tests claim to show it."""
        return self.state == SHOWN


@dataclass(frozen=True, slots=True)
class Area:
    """The behaviours of one part of the product."""

    name: str
    title: str
    entries: tuple[Requirement, ...]


def read_manifest(text: str) -> tuple[Area, ...]:
    """Return the areas in order; raise ValueError for a line that is not part of a table."""
    areas: list[Area] = []
    for number, line in enumerate(text.splitlines(), start=1):
        heading = _HEADING.fullmatch(line)
        if heading is not None:
            areas.append(Area(heading["name"], heading["title"], ()))
        elif line.startswith("|") and areas:
            areas[-1] = _with_row(areas[-1], _cells(line), number)
        elif line.startswith(("##", "|")):
            raise ValueError(f"line {number}: expected `## area: title`, or a row below one")
    return tuple(areas)


def _with_row(area: Area, cells: tuple[str, ...], number: int) -> Area:
    if cells == _HEADER or set(cells) == {"---"}:
        return area
    if len(cells) != len(_HEADER):
        raise ValueError(f"line {number}: expected | id | behaviour | source | state |")
    return Area(area.name, area.title, (*area.entries, Requirement(*cells)))


def _cells(line: str) -> tuple[str, ...]:
    inner = line.strip().removeprefix("|").removesuffix("|")
    return tuple(cell.strip().replace("\\|", "|") for cell in _SEPARATOR.split(inner))


AREAS = read_manifest(MANIFEST.read_text("utf-8"))
ALL = tuple(entry for area in AREAS for entry in area.entries)
