"""What a session has used so far: counters, since every call counts; a value only to be shown."""

from __future__ import annotations

from bascule.model.session import SessionLimits
from bascule.policy.budget import Budget, Exceeded


class Spending:
    """The counters of one session, against its limits."""

    __slots__ = ("_limited", "_limits", "calls", "output_bytes", "reserved")

    def __init__(self, limits: SessionLimits) -> None:
        self._limits = limits
        self._limited = limits != SessionLimits()
        self.calls = 0
        self.reserved = 0
        self.output_bytes = 0

    @property
    def budget(self) -> Budget:
        """Return the counters as a value."""
        return Budget(self._limits, 0, self.calls, self.reserved, self.output_bytes)

    def reserve(self) -> Exceeded | None:
        """Hold room for one call, or say which limit stands in the way."""
        if self._limited:
            held = self.budget.reserve()
            if isinstance(held, Exceeded):
                return held
        self.reserved += 1
        return None

    def close(self, *, used: bool) -> None:
        """Turn a reservation into a call that happened, or give it back unused."""
        self.reserved -= 1
        self.calls += used
