"""Entries of the audit trail for people: a line for each, and one call in full."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from bascule.cli.command import shown
from bascule.cli.table import Colour, paint, render_table
from bascule.model.json import JsonObject
from bascule.wire.api.audit import AuditEntry, CallLife

HEADER = ("time", "caller", "task", "what", "status", "code", "ms", "request")
#: What a line that comes alone is filled up to, so that those after one another are aligned.
_WIDTHS = (20, 10, 10, 28, 9, 19, 7, 0)
_COLOURS: dict[str, Colour] = {"ok": "green", "running": "yellow", "cancelled": "yellow"}
_CALLS = ("call", "call_intent")
#: What names the thing that an event is about, the first that it has.
_NAMES = ("name", "id", "server_id", "reason")
#: What the first line about an entry says already.
_SAID = frozenset({"event", "timestamp", "request_id"})


def entry_table(entries: Iterable[AuditEntry], *, none: str) -> str:
    """Return a table, a row for each entry."""
    return render_table(HEADER, [_painted(cells(entry)) for entry in entries], none=none)


def entry_line(entry: AuditEntry) -> str:
    """Return one entry as a line, aligned with those of others."""
    filled = [cell.ljust(width) for cell, width in zip(cells(entry), _WIDTHS, strict=True)]
    return "  ".join(_painted(filled)).rstrip()


def cells(entry: AuditEntry) -> list[str]:
    """Return what a line says of an entry."""
    event = entry.event
    return [
        _time(entry),
        _text(event, "caller", "by"),
        _text(event, "task_id"),
        _what(event),
        shown(entry.status or ""),
        _text(event, "code") or ("" if _is_call(event) else _text(event, "reason")),
        _milliseconds(event),
        _text(event, "request_id"),
    ]


def life_text(life: CallLife) -> str:
    """Return everything about one call."""
    return "\n".join(_life_lines(life))


def _life_lines(life: CallLife) -> Iterator[str]:
    what = next((_what(entry.event) for entry in life.entries), "")
    yield f"call {shown(life.request_id)} of {what}: {_status(life.status or '')}"
    for entry in life.entries:
        yield ""
        yield f"{_time(entry)}  {_text(entry.event, 'event')}  (row {entry.number})"
        for name, value in entry.event.items():
            if name not in _SAID and value not in (None, ""):
                words = value if isinstance(value, str) else json.dumps(value)
                yield f"  {shown(name)}: {shown(words)}"


def _what(event: JsonObject) -> str:
    """Return the tool of a call, else what happened and to whom."""
    if _is_call(event):
        return "/".join(filter(None, (_text(event, "server_id"), _text(event, "tool_name"))))
    happened, about = _text(event, "event").replace("_", " "), _text(event, *_NAMES[:3])
    return f"{happened}: {about}" if about else happened


def _is_call(event: JsonObject) -> bool:
    return event.get("event") in _CALLS


def _text(event: JsonObject, *names: str) -> str:
    """Return the first of some fields that an event has, fit for a terminal."""
    found = next((event[name] for name in names if event.get(name) not in (None, "")), "")
    return shown(str(found))


def _time(entry: AuditEntry) -> str:
    return re.sub(r"\.\d+Z$", "Z", entry.at or "-")  # to the second is enough for people


def _milliseconds(event: JsonObject) -> str:
    took = event.get("duration_ms")
    return f"{took:.0f}" if isinstance(took, (int, float)) else ""


def _painted(row: list[str]) -> list[str]:
    status = HEADER.index("status")
    return [*row[:status], _status(row[status]), *row[status + 1 :]]


def _status(status: str) -> str:
    word = status.strip()
    return paint(status, _COLOURS.get(word, "red")) if word else status
