"""The date by which history grows old: one that does not leap ahead.

A machine's date may be set wrong for a moment. What was forgotten meanwhile does not come back, so
whoever forgets by age believes the date only about as far as time has passed since the process
began.
"""

from __future__ import annotations

from bascule.clock import Clock

#: A date is set right by this much at most: a time zone, or a night in which the machine slept.
SLACK_SECONDS = 86_400.0


class SteadyClock:
    """A date that is not much later than the one at the beginning plus the time since."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_at = clock.now()
        self._began = clock.monotonic()

    def now(self) -> float:
        """Return seconds since 1970, by the machine or by what has passed: the earlier."""
        passed = self._clock.monotonic() - self._began
        return min(self._clock.now(), self._began_at + passed + SLACK_SECONDS)
