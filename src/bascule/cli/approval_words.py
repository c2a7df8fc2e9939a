"""Approvals for people: a line for each, and one question in full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bascule.cli.command import shown
from bascule.cli.table import Colour, paint, render_table
from bascule.clock import seconds_of
from bascule.wire.api.approvals import ApprovalQuestion, ApprovalShown, DecisionShown

_HEADER = ("id", "state", "asked", "left", "who", "what")
_COLOURS: dict[str, Colour] = {"pending": "yellow", "approved": "green", "claimed": "green"}
_OPEN = ("pending", "approved")
#: The states that somebody's word leads to.
_SAID = ("approved", "denied")
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60))
#: In front of words that are not ours, so that none of them looks like a line of this command.
_MARGIN = "  | "
#: Enough of an id to name it among many.
SHORT = len("apr-") + 8


def approval_table(approvals: Sequence[ApprovalShown], now: float, *, none: str) -> str:
    """Return a table of approvals."""
    return render_table(_HEADER, [_row(one, now) for one in approvals], none=none)


def _row(one: ApprovalShown, now: float) -> list[str]:
    left = seconds_of(one.expires_at) - now
    return [
        one.id[:SHORT],
        _state(one.state),
        f"{_length(now - seconds_of(one.asked_at))} ago",
        _length(left) if one.state in _OPEN else "-",
        _asker(one),
        _what(one),
    ]


def step_line(one: ApprovalShown) -> str:
    """Return how an approval stands, on one line."""
    because = f": {shown(one.reason)}" if one.reason else ""
    return f"{one.id}  {_standing(one)}  {_what(one)}  for {_asker(one)}{because}"


def _standing(one: ApprovalShown) -> str:
    """Return the state, and who brought it there or had approved it before."""
    if one.decided is None:
        return _state(one.state)
    by = f"by {_decider(one.decided)}"
    said = one.state in _SAID
    return f"{_state(one.state)} {by}" if said else f"{_state(one.state)} (approved {by})"


def question_text(one: ApprovalQuestion, now: float) -> str:
    """Return all that is decided on."""
    return "\n".join(_question_lines(one, now))


def _question_lines(one: ApprovalQuestion, now: float) -> Iterator[str]:
    """Yield the lines, the longest part first: what matters most stays on the screen."""
    yield from _quoted("definition", one.definition)
    yield f"{one.id}: {_standing(one)}{_deadline(one, now)}"
    yield f"call:     {_what(one)}"
    yield f"asked by: {_asker(one)}, token {shown(one.token_id or '-')}"
    yield f"task:     {shown(one.task_id or '-')}"
    yield f"rule:     {shown(one.rule)}"
    if one.decided is not None:
        yield f"decided:  {one.decided.at}"
    if one.reason:
        yield f"reason:   {shown(one.reason)}"
    if one.claimed_by is not None:
        yield f"used by:  {shown(one.claimed_by)}"
    yield from _quoted("description", one.description)
    yield from _quoted("arguments", one.arguments)
    if not one.whole:
        yield paint(f"not shown whole: {shown(one.missing)}", "red")
    yield f"digest:   {one.digest}"


def _quoted(name: str, text: str) -> Iterator[str]:
    if text:
        yield f"{name}:"
        yield from (f"{_MARGIN}{line}" for line in text.split("\n"))


def _deadline(one: ApprovalShown, now: float) -> str:
    left = _length(seconds_of(one.expires_at) - now)
    words = {"pending": f", {left} left to decide", "approved": f", {left} left to use it"}
    return words.get(one.state, "")


def _decider(decided: DecisionShown) -> str:
    person = f" ({shown(decided.person)})" if decided.person else ""
    own = ", own call" if decided.self_approved else ""
    return f"{shown(decided.by)}{person}{own}"


def _asker(one: ApprovalShown) -> str:
    who = " via ".join(filter(None, (one.person, one.caller))) or "-"
    return shown(who if one.node is None else f"{who} at {one.node}")


def _what(one: ApprovalShown) -> str:
    return shown(f"{one.server_id}/{one.tool_name}")


def _state(state: str) -> str:
    return paint(state, _COLOURS.get(state, "red"))


def _length(seconds: float) -> str:
    """Return a time in its largest unit."""
    for unit, long in _UNITS:
        if seconds >= long:
            return f"{seconds // long:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"
