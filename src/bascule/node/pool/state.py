"""The states of a connection: one machine, whatever words a door uses for them.

A move that is not on the map is a mistake in the pool and raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bascule.model.status import State

ARROWS: Mapping[State, frozenset[State]] = {
    "disconnected": frozenset({"connecting", "disabled"}),
    "connecting": frozenset({"connected", "down", "parked", "disconnected", "disabled"}),
    "connected": frozenset({"degraded", "reconnecting", "disconnected", "disabled"}),
    "degraded": frozenset({"connected", "reconnecting", "disconnected", "disabled"}),
    "reconnecting": frozenset({"connected", "down", "parked", "disconnected", "disabled"}),
    "down": frozenset({"connecting", "disconnected", "disabled"}),
    "parked": frozenset({"connecting", "disconnected", "disabled"}),
    "disabled": frozenset({"disconnected"}),
}

#: Where a connection stands because something went wrong.
TROUBLED: frozenset[State] = frozenset({"degraded", "reconnecting", "down", "parked"})
#: Where a connection stands that takes calls.
SERVING: frozenset[State] = frozenset({"connected", "degraded"})
#: Where a connection stands that failed, with no attempt under way.
WAITING: frozenset[State] = frozenset({"down", "parked"})


class Latency:
    """How long calls take: the last one, and the mean of those since the node began."""

    __slots__ = ("_calls", "_total", "last")

    def __init__(self) -> None:
        self.last: float | None = None
        self._calls = 0
        self._total = 0.0

    def add(self, milliseconds: float) -> None:
        """Count a call that was answered."""
        self.last = milliseconds
        self._calls += 1
        self._total += milliseconds

    @property
    def average(self) -> float | None:
        """Return the mean; None before the first call."""
        return self._total / self._calls if self._calls else None


class IllegalMove(AssertionError):
    """A move between states that the machine does not know."""


class Machine:
    """Where a connection stands."""

    __slots__ = ("_on_move", "state")

    def __init__(self, on_move: Callable[[State, State], None] | None = None) -> None:
        self.state: State = "disconnected"
        self._on_move = on_move

    def move(self, to: State) -> None:
        """Go to another state; staying is no move."""
        if to == self.state:
            return
        if to not in ARROWS[self.state]:
            raise IllegalMove(f"{self.state} -> {to}")
        old, self.state = self.state, to
        if self._on_move is not None:
            self._on_move(old, to)
