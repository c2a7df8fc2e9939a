"""An outcome and its body: a question's deadline is seconds in Python, RFC 3339 over HTTP."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from bascule.clock import rfc3339, seconds_of
from bascule.model.outcome import Failed, Outcome
from bascule.wire.api.tools import OutcomeBody

_FIELD = "expires_at"


def body_of(outcome: Outcome) -> OutcomeBody:
    """Return an outcome as it is sent."""
    text = _turned(outcome, lambda at: rfc3339(at) if isinstance(at, int | float) else at)
    return OutcomeBody.of(text)


def outcome_of(body: OutcomeBody) -> Outcome:
    """Return an outcome that was sent; raise ValueError for a deadline that is no time."""
    return _turned(body.outcome, lambda at: seconds_of(at) if isinstance(at, str) else at)


def _turned(outcome: Outcome, turn: Callable[[object], object]) -> Outcome:
    error = outcome.error
    if not isinstance(outcome, Failed) or error is None or error.code != "mcp_approval_required":
        return outcome
    details = error.details or {}
    if _FIELD not in details:
        return outcome
    turned = {**details, _FIELD: turn(details[_FIELD])}
    return replace(outcome, error=replace(error, details=turned))
