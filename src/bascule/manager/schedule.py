"""When a server that failed is tried again: growing delays with jitter, and then parking.

Below: nothing. Above: ``link.py``, which has one schedule and one task for each server. A parked
server is not given up: it is tried on a slow schedule, and at once when somebody asks.
"""

from __future__ import annotations

import random

from msgspec import Struct

_MAX_DOUBLINGS = 32


class RetryRules(Struct, frozen=True, kw_only=True):
    """Between ``first_seconds`` and ``limit_seconds``; after ``park_after`` failures, parked."""

    first_seconds: float = 5.0
    limit_seconds: float = 60.0
    park_after: int = 12
    park_seconds: float = 600.0


class Schedule:
    """The failures of one server in a row."""

    def __init__(self, rules: RetryRules) -> None:
        self._rules = rules
        self.failures = 0

    @property
    def parked(self) -> bool:
        """Say whether it failed too often for the usual schedule."""
        return self.failures >= self._rules.park_after

    def reset(self) -> None:
        """Forget the failures: the server answered, or somebody asks anew."""
        self.failures = 0

    def failed(self) -> float:
        """Note a failure; return how long to wait, chosen between a delay and twice that."""
        self.failures += 1
        low, high = self._bounds()
        return random.uniform(low, high)  # noqa: S311 - jitter, not a secret

    def _bounds(self) -> tuple[float, float]:
        rules = self._rules
        if self.parked:
            return rules.park_seconds / 2, rules.park_seconds
        doublings = min(self.failures - 1, _MAX_DOUBLINGS)
        low = min(rules.limit_seconds / 2, rules.first_seconds * 2.0**doublings)
        return low, min(rules.limit_seconds, 2 * low)
