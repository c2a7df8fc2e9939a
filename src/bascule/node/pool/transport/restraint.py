"""How much of the event loop one server gets for what it says unasked.

Reading goes on in pieces, with a turn of the loop for everybody else between them. While others use
the loop, the pieces are paid from a credit that grows with the time that passes, however late a
timer wakes; beside an idle loop they are short and cost nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar, Final
from weakref import WeakKeyDictionary

from bascule.clock import Clock

#: What a server may spend in a slice of time while others use the loop; and what things cost.
ALLOWANCE: Final = 256
SLICE_SECONDS: Final = 0.001
EVENT_PRICE: Final = 8
BYTES_PER_UNIT: Final = 128

_TURN_SECONDS: Final = 100e-6  # a turn of the loop that takes longer was somebody else's
_BUSY_SECONDS: Final = 0.002  # for which the loop counts as used after such a turn
_USED_SECONDS: Final = 0.05  # and after something was read from another server
_CREDIT_SECONDS: Final = 0.001  # what passed time brings at most while others use the loop: a piece


class Traffic:
    """How often anything was read on one event loop, whoever it came from."""

    __slots__ = ("__weakref__", "reads")

    _by_loop: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, Traffic]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self.reads = 0

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> Traffic:
        """Return the count that all channels of a loop share."""
        return cls._by_loop.setdefault(loop, cls())


class Restraint:
    """The account of one server; a unit is about a microsecond of work."""

    __slots__ = (
        "_allowance", "_at", "_busy_until", "_cap", "_credit", "_left_at", "_others", "_own",
        "_piece", "_rate", "_seconds", "_time", "_traffic", "held", "hurried", "spent",
    )  # fmt: skip

    def __init__(self, allowance: int, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        self._traffic = Traffic.of(loop)
        self._own = 0
        self._others = self._traffic.reads
        self._time = time = loop.time
        self._rate = allowance / seconds
        self._allowance, self._seconds = allowance, seconds
        self._piece = allowance // 4
        self._cap = self._rate * _CREDIT_SECONDS
        self._credit = float(allowance)
        self._at = time()
        self._left_at = self._at
        self._busy_until = self._at
        #: What was spent since the last look; whoever reads adds to it.
        self.spent = 0
        #: For how long reading was put off so far, in seconds.
        self.held = 0.0
        #: Whether the server says more than a piece at a time.
        self.hurried = False

    def read(self) -> None:
        """Note that something was read from this server."""
        self._own += 1
        self._traffic.reads += 1

    @property
    def exhausted(self) -> bool:
        """Say whether the piece is over, and the loop has to turn."""
        return self.spent > self._piece

    def excuse(self, held: float) -> str:
        """Say for a timeout how much of its time was held, since it was ``held`` so far."""
        seconds = self.held - held
        return f": the server floods, and was not read for {seconds:.2g} s of it" if seconds else ""

    def pause(self) -> float:
        """Pay for what was spent; return how long to wait before the next piece."""
        now = self._time()
        self._credit = min(self._cap, self._credit + (now - self._at) * self._rate) - self.spent
        self._at = self._left_at = now
        self.spent, self.hurried = 0, True
        if now >= self._busy_until:  # nobody else wants the time
            self._credit = max(0.0, self._credit)
            self._piece = self._allowance // 4
            return 0.0
        self._piece = self._allowance  # a few long pieces let more calls pass than many short ones
        return 0.0 if self._credit > 0 else max(self._seconds, -self._credit / self._rate)

    def resume(self, waited: float) -> float:
        """Go on after a pause: see whether others used the loop; return how long was held."""
        now = self._time()
        passed, others = now - self._left_at, self._traffic.reads - self._own
        if others != self._others:
            self._busy_until = now + _USED_SECONDS
        elif passed > _TURN_SECONDS and not waited:
            self._busy_until = max(self._busy_until, now + _BUSY_SECONDS)
        self._others = others
        if not waited:
            return 0.0
        self.held += passed
        return passed


class Pace(Restraint):
    """Restraint for whoever reads in a task: it awaits its turns."""

    __slots__ = ("_clock", "_on_pause")

    def __init__(self, clock: Clock, on_pause: Callable[[float], None]) -> None:
        super().__init__(ALLOWANCE, SLICE_SECONDS, asyncio.get_running_loop())
        self._clock = clock
        self._on_pause = on_pause

    def over(self, size: int) -> bool:
        """Charge an event of this size; say whether it is time to ``give_way``."""
        self.spent += EVENT_PRICE + size // BYTES_PER_UNIT
        return self.exhausted

    async def give_way(self) -> None:
        """Let the loop turn, and wait when too much was said."""
        wait = self.pause()
        await self._clock.sleep(wait)
        held = self.resume(wait)
        if held:
            self._on_pause(held)
