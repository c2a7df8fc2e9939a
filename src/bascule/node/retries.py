"""When a node asks its control plane again: full jitter over a doubling delay, and patience.

After many failures in a row there is no more than one try in so many seconds, so that a fleet does
not overrun what comes back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

_MAX_DOUBLINGS = 16
#: Returns a time between two others.
Jitter: TypeAlias = Callable[[float, float], float]


class Retries(Struct, frozen=True, kw_only=True):
    """The rule, as part of the settings of whoever asks."""

    backoff_seconds: float = 0.1
    backoff_limit_seconds: float = 4.0
    patient_after: int = 10
    patient_seconds: float = 1.0

    def delay(
        self,
        failures: int,
        jitter: Jitter,
        *,
        first: float | None = None,
        limit: float | None = None,
    ) -> float:
        """Return how long to wait after so many failures in a row.

        ``first`` and ``limit`` are for where the rule is another: what doubles, and the most.
        """
        doubled = (first or self.backoff_seconds) * 2 ** min(failures, _MAX_DOUBLINGS)
        low = self.least_delay(failures)
        return jitter(low, max(low, min(doubled, limit or self.backoff_limit_seconds)))

    def least_delay(self, failures: int) -> float:
        """Return the shortest time between two tries after so many failures."""
        return self.patient_seconds if failures >= self.patient_after else 0.0
