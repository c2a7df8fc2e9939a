"""What a session has used so far: counters, since every call counts; a value only to be shown."""

from __future__ import annotations

from math import inf

from bascule.model.session import SessionLimits
from bascule.policy.budget import Budget, Exceeded


class Spending:
    """The counters of one session, against its limits."""

    __slots__ = ("_limits", "_max_bytes", "_max_calls", "calls", "output_bytes", "reserved")

    def __init__(self, limits: SessionLimits) -> None:
        self._limits = limits
        self._max_calls = _ceiling(limits.max_total_tool_calls)
        self._max_bytes = _ceiling(limits.max_tool_output_bytes)
        self.calls = 0
        self.reserved = 0
        self.output_bytes = 0

    @property
    def budget(self) -> Budget:
        """Return the counters as a value."""
        return Budget(self._limits, 0, self.calls, self.reserved, self.output_bytes)

    def reserve(self) -> Exceeded | None:
        """Hold room for one call, or say which limit stands in the way.

        Its end takes one from ``reserved``, and adds one to ``calls`` if it left.
        """
        if self.calls + self.reserved >= self._max_calls or self.output_bytes >= self._max_bytes:
            held = self.budget.reserve()  # which knows the words
            if isinstance(held, Exceeded):
                return held
        self.reserved += 1
        return None


def _ceiling(limit: int | None) -> float:
    return inf if limit is None else limit
