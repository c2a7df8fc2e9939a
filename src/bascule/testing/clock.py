"""A clock that stands still until it is moved.

Nothing here waits for real time; the event loop only gets turns.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import types
from collections.abc import Generator

START = 1_800_000_000.0  # a fixed date in 2027: logs of two runs are the same
SETTLE_TURNS = 64


class FakeClock:
    """A ``Clock`` whose time is ``start`` plus what ``advance`` was told."""

    def __init__(self, start: float = START) -> None:
        self._start = start
        self._elapsed = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._slept = asyncio.Event()

    def now(self) -> float:
        """Seconds since 1970, as far as the test is concerned."""
        return self._start + self._elapsed

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._elapsed

    def jump(self, seconds: float) -> None:
        """Move the date alone, as a machine that is set right does; nobody wakes."""
        self._start += seconds

    @property
    def sleepers(self) -> int:
        """How many tasks wait on this clock."""
        return sum(not future.done() for _, _, future in self._sleepers)

    async def asleep(self, count: int = 1) -> None:
        """Wait until so many tasks wait on this clock."""
        while self.sleepers < count:
            self._slept.clear()
            await self._slept.wait()

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been moved that far; zero or less only yields a turn."""
        if seconds <= 0:
            await self.settle(turns=1)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._order), woken))
        self._slept.set()
        await woken

    async def advance(self, seconds: float) -> None:
        """Move the time on, waking each sleeper at its own moment, in order.

        A sleeper woken on the way sees the time it asked for, and may sleep again within the
        same advance.
        """
        if seconds < 0:
            raise ValueError("time does not go back: use jump for the date")
        target = self._elapsed + seconds
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            moment, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                self._elapsed = max(self._elapsed, moment)
                woken.set_result(None)
                await self.settle()
        self._elapsed = target
        await self.settle()

    async def settle(self, turns: int = SETTLE_TURNS) -> None:
        """Give the event loop turns, so that tasks run as far as they can."""
        for _ in range(turns):
            await _turn()


@types.coroutine
def _turn() -> Generator[None]:
    """Let everything that is ready run once; a future would take two turns for that."""
    yield
