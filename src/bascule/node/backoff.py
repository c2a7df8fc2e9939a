"""When to try a server again: jitter over a doubling delay, and parking.

A server that answered something has proven itself and starts afresh; one that keeps failing, or
that is lost again and again, is parked and retried slowly. The rule is the node's settings.
"""

from __future__ import annotations

import random

from bascule.clock import Clock
from bascule.node.settings import NodeSettings

_MINUTE = 60.0
_MAX_DOUBLINGS = 64


class Backoff:
    """The memory of failures of one server, and the earliest next attempt."""

    def __init__(self, settings: NodeSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._losses: list[float] = []
        self.failures = 0
        self.parked = False
        self.not_before = 0.0

    @property
    def remaining(self) -> float:
        """Return how long it is until the next attempt may be made."""
        return max(0.0, self.not_before - self._clock.monotonic())

    def failed(self) -> None:
        """Note a failed attempt and choose the next moment."""
        self.failures += 1
        self.parked = self.failures >= self._settings.park_after
        self._wait()

    def lost(self) -> None:
        """Note the loss of a connection; too many in a minute park the server."""
        now = self._clock.monotonic()
        self._losses = [*self._losses, now][-self._settings.losses_per_minute :]
        full = len(self._losses) == self._settings.losses_per_minute
        self.parked = full and now - self._losses[0] < _MINUTE
        if self.parked:
            self._wait()

    def proven(self) -> None:
        """Note that the server answered: the failures before it count no more."""
        self.failures = 0
        self.parked = False

    def forgive(self) -> None:
        """Forget everything, as a person who mended the server asks."""
        self.failures = 0
        self.parked = False
        self.not_before = 0.0
        self._losses.clear()

    def hasten(self) -> None:
        """Allow the next attempt at once; the failures still count."""
        self.not_before = 0.0

    def _wait(self) -> None:
        """Choose a moment: below the ceiling, or in the later half of the parking."""
        high = self._ceiling()
        low = high * self._settings.backoff_floor
        if self.parked:
            low, high = self._settings.park_seconds / 2, self._settings.park_seconds
        delay = random.uniform(low, high)  # noqa: S311 - jitter, not a secret
        self.not_before = self._clock.monotonic() + delay

    def _ceiling(self) -> float:
        doublings = min(self.failures - 1, _MAX_DOUBLINGS)
        doubled = self._settings.backoff_seconds * 2.0**doublings
        return min(self._settings.backoff_limit_seconds, doubled)
