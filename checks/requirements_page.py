"""Renders ``docs/requirements.md`` from the manifest. Pure: gives text, writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.requirements import AREAS, Area
from tests.requirements.model import Deferred, NotPlanned, Requirement, Shown, State, Work

HEADER = """\
<!-- Generated from tests/requirements; do not edit. Regenerate: make generate -->

# Required behaviours

One row for each behaviour that the five source documents ("seeds") and the design ask for. A
behaviour is *shown* when at least one test carries its id and would fail without it, *deferred*
to a named piece of work, or *not planned*, with the reason. Where a seed and the design disagree,
the design stands.

The ids are stable: tests carry them as `@pytest.mark.requirement("area:feature:variant")`, and
`tests/test_requirements.py` checks both directions.
"""


def render() -> str:
    """Give the whole page as text."""
    parts = [HEADER, _summary(AREAS), _deferrals(_all(AREAS)), *map(_section, AREAS)]
    return "\n".join(parts)


def _all(areas: Sequence[Area]) -> list[Requirement]:
    return [entry for area in areas for entry in area.entries]


def _summary(areas: Sequence[Area]) -> str:
    rows = [(f"[{area.name}](#{area.name})", *_counts(area.entries)) for area in areas]
    total = ("**all**", *_counts(_all(areas)))
    header = ("area", "shown", "deferred", "not planned", "entries")
    return f"## Summary\n\n{_table(header, [*rows, total])}"


def _counts(entries: Sequence[Requirement]) -> tuple[str, ...]:
    kinds = (Shown, Deferred, NotPlanned)
    each = [sum(type(entry.state) is kind for entry in entries) for kind in kinds]
    return tuple(str(count) for count in [*each, len(entries)])


def _deferrals(entries: Sequence[Requirement]) -> str:
    rows = [(work.value, str(_deferred_to(work, entries))) for work in Work]
    return f"## Deferred to\n\n{_table(('work', 'entries'), rows)}"


def _deferred_to(work: Work, entries: Sequence[Requirement]) -> int:
    return sum(entry.state == Deferred(work) for entry in entries)


def _section(area: Area) -> str:
    rows = [
        (f"`{entry.id}`", entry.text, entry.source, _state(entry.state)) for entry in area.entries
    ]
    table = _table(("id", "behaviour", "source", "state"), rows)
    return f"## {area.name}\n\n{area.title}\n\n{table}"


def _state(state: State) -> str:
    match state:
        case Shown():
            return "shown"
        case Deferred(to=work):
            return f"deferred: {work.value}"
        case NotPlanned(reason=reason):
            return f"not planned: {reason}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [_row(header), _row(["---"] * len(header)), *map(_row, rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
