"""Renders ``docs/requirements.md``: counts by area, and by name only what no test shows yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.requirements import ALL, AREAS, DEFERRED, NOT_PLANNED, WORKS, Requirement

HEADER = """\
<!-- Generated from tests/requirements/manifest.md; do not edit. Regenerate: make generate -->

# Required behaviours

The [manifest](../tests/requirements/manifest.md) has one row for each behaviour that Bascule is
asked for by its [sources](sources/README.md) and its design. A behaviour is *shown* when at least
one test carries its id and would fail without it. This page counts what is shown, and names what
is not: *deferred* to a named piece of work, or *not planned*, with the reason.
"""


def render() -> str:
    """Return the whole page as text."""
    deferred = [entry for entry in ALL if entry.state.startswith(DEFERRED)]
    left_out = [entry for entry in ALL if entry.state.startswith(NOT_PLANNED)]
    works = [_work(work, deferred) for work in WORKS]
    return "\n".join([HEADER, _summary(), *filter(None, works), _left_out(left_out)])


def _summary() -> str:
    rows = [(area.name, area.title, *_counts(area.entries)) for area in AREAS]
    total = ("**all**", "", *_counts(ALL))
    header = ("area", "what it is about", "shown", "deferred", "not planned")
    return f"## Summary\n\n{_table(header, [*rows, total])}"


def _counts(entries: Sequence[Requirement]) -> tuple[str, str, str]:
    shown = sum(entry.shown for entry in entries)
    deferred = sum(entry.state.startswith(DEFERRED) for entry in entries)
    return str(shown), str(deferred), str(len(entries) - shown - deferred)


def _work(work: str, deferred: Sequence[Requirement]) -> str:
    rows = [
        (f"`{entry.id}`", entry.text) for entry in deferred if entry.state == f"{DEFERRED}{work}"
    ]
    return f"## Deferred to {work}\n\n{_table(('id', 'behaviour'), rows)}" if rows else ""


def _left_out(entries: Sequence[Requirement]) -> str:
    rows = [
        (f"`{entry.id}`", entry.text, entry.state.removeprefix(NOT_PLANNED)) for entry in entries
    ]
    return f"## Not planned\n\n{_table(('id', 'behaviour', 'why'), rows)}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [_row(header), _row(["---"] * len(header)), *map(_row, rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
