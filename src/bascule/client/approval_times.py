"""The deadline of a question in an outcome: seconds since 1970 in Python, RFC 3339 over HTTP."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from bascule.clock import rfc3339, seconds_of
from bascule.model.outcome import Failed, Outcome

_FIELD = "expires_at"


def written(outcome: Outcome) -> Outcome:
    """Return an outcome with its deadline as text."""
    return _turned(outcome, lambda at: rfc3339(at) if isinstance(at, int | float) else at)


def read(outcome: Outcome) -> Outcome:
    """Return an outcome with its deadline in seconds; raise ValueError for what is no time."""
    return _turned(outcome, lambda at: seconds_of(at) if isinstance(at, str) else at)


def _turned(outcome: Outcome, turn: Callable[[object], object]) -> Outcome:
    error = outcome.error
    if not isinstance(outcome, Failed) or error is None or error.code != "mcp_approval_required":
        return outcome
    details = error.details or {}
    if _FIELD not in details:
        return outcome
    turned = {**details, _FIELD: turn(details[_FIELD])}
    return replace(outcome, error=replace(error, details=turned))
