"""Entries of the audit trail for people: a line for each, and one call in full."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from bascule.audit.events import OWN_TOOL
from bascule.audit.verification import Verification
from bascule.cli.command import shown
from bascule.cli.table import Colour, paint
from bascule.clock import rfc3339
from bascule.model.json import JsonObject
from bascule.wire.api.audit import AuditEntry, CallLife

HEADER = ("time", "caller", "task", "what", "status", "code", "ms", "request")
_GAP = "  "
#: What a line that comes alone is filled up to, so that those after one another are aligned.
_WIDTHS = (20, 10, 10, 28, 9, 21, 7, 0)
_COLOURS: dict[str, Colour] = {"ok": "green", "running": "yellow", "cancelled": "yellow"}
_CALLS = ("call", "call_intent")
#: What names the thing that an event is about, the first that it has.
_NAMES = ("name", "id", "server_id", "path")
#: Events about a token itself, and not of what one does with it.
_OF_TOKENS = frozenset({"token_ended", "denials_counted"})
#: What the first line about an entry says already.
_SAID = frozenset({"event", "timestamp", "request_id"})
#: What became of a question, in words; some have somebody who said so.
_STEPS = {
    "pending": "approval asked",
    "approved": "approved by",
    "denied": "denied by",
    "expired": "approval expired",
    "withdrawn": "approval withdrawn",
    "void": "approval void",
    "claimed": "approval used",
}


def entry_lines(entries: Sequence[AuditEntry], *, none: str) -> str:
    """Return a header and a line for each entry, however long: they are searched and copied."""
    if not entries:
        return none
    rows = [_cells(entry) for entry in entries]
    widths = [max(map(len, column)) for column in zip(HEADER, *rows, strict=True)]
    return "\n".join([_header(widths), *(_line(row, widths) for row in rows)])


def entry_line(entry: AuditEntry) -> str:
    """Return one entry as a line, aligned with those that come before and after it."""
    return _line(_cells(entry), _WIDTHS)


def header_line() -> str:
    """Return the header of lines that come one by one."""
    return _header(_WIDTHS)


def _header(widths: Sequence[int]) -> str:
    return paint(_joined(HEADER, widths).rstrip(), "bold")


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    """Return a line with its status in colour, which takes no room."""
    place = HEADER.index("status")
    before, after = row[:place], row[place + 1 :]
    status = row[place].ljust(widths[place])
    parts = [_joined(before, widths), _status(status), _joined(after, widths[place + 1 :])]
    return _GAP.join(parts).rstrip()


def _joined(row: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))


def _cells(entry: AuditEntry) -> list[str]:
    """Return what a line says of an entry."""
    event = entry.event
    return [
        _time(entry),
        _text(event, "caller", "by"),
        _text(event, "task_id"),
        _what(event) + _where(entry),
        shown(entry.status or ""),
        _text(event, "code") or ("" if _is_call(event) else _text(event, "reason")),
        _milliseconds(event),
        _text(event, "request_id"),
    ]


def life_text(life: CallLife) -> str:
    """Return everything about one call."""
    return "\n".join(_life_lines(life))


def verification_text(found: Verification) -> str:
    """Return what a verification found, and how far that is certain."""
    return "\n".join(_verification_lines(found))


def _verification_lines(found: Verification) -> Iterator[str]:
    good = "nothing was changed" if found.anchors else "rows agree with one another"
    yield (
        paint(f"ok: {good}", "green")
        if found.ok
        else paint(_counted(found.problem_count, "problem"), "red")
    )
    span = f", {found.first} to {found.last}" if found.first is not None else ""
    yield f"rows: {found.rows}{span}"
    yield f"anchors: {found.anchors}{_last_anchor(found)}"
    if found.unprotected:
        yield f"not covered by an anchor: the last {_counted(found.unprotected, 'row')}"
    for cut in found.cuts:
        yield (
            f"cut: rows {cut.first} to {cut.last}, for their {shown(cut.reason)}, by "
            f"{shown(cut.by)} (row {cut.row})"
        )
    if not found.anchors:
        yield "there are no anchors: whoever can write the ledger could have made all of it"
    elif found.key_from == "ledger":
        yield (
            "the key was taken from the ledger itself, so that only accidents are found: give the "
            "one that you kept elsewhere (--key), and the anchors (--anchors)"
        )
    for problem in found.problems:
        where = "" if problem.row is None else f"row {problem.row}: "
        yield paint(f"problem: {where}{shown(problem.words)}", "red")
    if found.problem_count > len(found.problems):
        yield f"and {found.problem_count - len(found.problems)} more"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _last_anchor(found: Verification) -> str:
    if found.anchored_at is None:
        return ""
    at = _to_seconds(rfc3339(found.anchored_at))
    return f", the last of {at}, signed by key {shown(found.key_id or '-')}"


def _life_lines(life: CallLife) -> Iterator[str]:
    calls = (_what(entry.event) for entry in life.entries if _is_call(entry.event))
    what = next(calls, "") or next((_what(entry.event) for entry in life.entries), "")
    yield f"call {shown(life.request_id)} of {what}: {_status(life.status or '')}"
    for entry in life.entries:
        yield ""
        row = f"(row {entry.number}{_where(entry)})"
        yield f"{_time(entry)}  {_headline(entry.event)}  {row}"
        for name, value in entry.event.items():
            if name not in _SAID and value not in (None, ""):
                value = round(value, 3) if isinstance(value, float) else value
                words = value if isinstance(value, str) else json.dumps(value)
                yield f"  {shown(name)}: {shown(words)}"


def _where(entry: AuditEntry) -> str:
    return "" if entry.node is None else f" at {shown(entry.node)}"


def _headline(event: JsonObject) -> str:
    kind = _text(event, "event")
    return _step(event) if kind == "approval" else kind


def _what(event: JsonObject) -> str:
    """Return the tool of a call, else what happened and to whom."""
    tool = "/".join(filter(None, (_text(event, "server_id"), _text(event, "tool_name"))))
    if _is_call(event):
        return f"{tool} (own tool)" if event.get("reason") == OWN_TOOL else tool
    kind = _text(event, "event")
    if kind == "approval":
        return f"{_step(event)}: {tool}"
    happened = f"{kind} {_text(event, 'action')}".replace("_", " ").rstrip()
    about = _text(event, *_NAMES, *(("token_id",) if kind in _OF_TOKENS else ()))
    return f"{happened}: {about}" if about else happened


def _step(event: JsonObject) -> str:
    """Return what became of a question, and by whom."""
    state = _text(event, "state")
    words = _STEPS.get(state, f"approval {state}")
    if not words.endswith("by"):
        return words
    own = " (own call)" if event.get("self_approved") else ""
    return f"{words} {_text(event, 'by')}{own}"


def _is_call(event: JsonObject) -> bool:
    return event.get("event") in _CALLS


def _text(event: JsonObject, *names: str) -> str:
    """Return the first of some fields that an event has, fit for a terminal."""
    found = next((event[name] for name in names if event.get(name) not in (None, "")), "")
    return shown(str(found))


def _time(entry: AuditEntry) -> str:
    return _to_seconds(entry.at)


def _to_seconds(at: str | None) -> str:
    """Return a time to the second, which is enough for people."""
    return re.sub(r"\.\d+Z$", "Z", at or "-")


def _milliseconds(event: JsonObject) -> str:
    took = event.get("duration_ms")
    return f"{took:.0f}" if isinstance(took, (int, float)) else ""


def _status(status: str) -> str:
    word = status.strip()
    return paint(status, _COLOURS.get(word, "red")) if word else status
