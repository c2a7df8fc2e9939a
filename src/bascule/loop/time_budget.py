"""The seconds of one conversation. They do not pass while it only waits for somebody to approve."""

from __future__ import annotations

import asyncio

from bascule.clock import Clock


class TimeBudget:
    """Counts ``seconds`` down while anything of a conversation runs.

    The clock stands still from the moment when every call under way waits for approval until one of
    them ends; ``most`` seconds at a time, so that a call that was approved and then takes long is
    not free. ``timer`` ends the conversation.
    """

    def __init__(self, seconds: float, most: float, clock: Clock) -> None:
        self.timer = asyncio.timeout(seconds)
        self._seconds = seconds
        self._most = most
        self._clock = clock
        self._started = clock.monotonic()
        self._stood = 0.0
        self._under_way = 0
        self._waiting = 0
        #: When the clock was stopped, and when the time would have been up.
        self._stopped: tuple[float, float] | None = None

    @property
    def spent(self) -> float:
        """Return how many seconds were used."""
        return self._clock.monotonic() - self._started - self._stood

    @property
    def left(self) -> float:
        """Return how many seconds are left."""
        return max(0.0, self._seconds - self.spent)

    def begin_call(self) -> None:
        """Note that a call is under way."""
        self._under_way += 1
        self._adjust()

    def begin_wait(self) -> None:
        """Note that a call under way waits for somebody."""
        self._waiting += 1
        self._adjust()

    def end_call(self, *, waited: bool) -> None:
        """Note that a call has ended."""
        self._under_way -= 1
        self._waiting -= waited
        self._adjust()

    def _adjust(self) -> None:
        idle = 0 < self._under_way == self._waiting
        when = self.timer.when()
        if idle is (self._stopped is not None) or self.timer.expired() or when is None:
            return
        if self._stopped is None:
            self._stopped = self._clock.monotonic(), when
            self.timer.reschedule(when + self._most)
        else:
            since, up = self._stopped
            stood = min(self._clock.monotonic() - since, self._most)
            self._stopped = None
            self._stood += stood
            self.timer.reschedule(up + stood)
