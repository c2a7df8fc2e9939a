"""The states of a connection: one machine, whatever words a door uses for them.

Below: the words of ``bascule.model.health``. Above: ``connection.py`` moves it, status shows it. A
move that is not on the map is a mistake in the pool and raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from bascule.model.health import State, Trouble, health_of

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
#: The words of the seeds for each state.
SEED_000: Mapping[State, str] = {state: health_of(state) for state in ARROWS}
SEED_001: Mapping[State, str] = {
    "connected": "Connected",
    "degraded": "Connected",
    "connecting": "Connecting",
    "reconnecting": "Connecting",
    "down": "Failed",
    "parked": "Failed",
    "disconnected": "Disconnected",
    "disabled": "Disconnected",
}
SEED_004: Mapping[State, str] = {
    "connected": "Connected",
    "degraded": "Connected",
    "connecting": "Connecting",
    "reconnecting": "Reconnecting",
    "down": "Disconnected",
    "parked": "Disconnected",
    "disconnected": "Disconnected",
    "disabled": "Disconnected",
}


class Status(Struct, frozen=True, kw_only=True):
    """What is known about a connection, for people."""

    server_id: str
    state: State
    last_error: str | None = None
    last_connected_at: float | None = None
    #: How often it was connected again, how long the last call took, and calls on average.
    reconnects: int = 0
    latency_ms: float | None = None
    average_latency_ms: float | None = None
    tool_count: int | None = None
    #: ``slow``: it lets calls wait for as long as its record allows; ``flooding``: it says so much
    #: unasked that reading pauses; ``dead``: it ended or answers nothing, and is not back yet.
    trouble: Trouble | None = None
    #: Where a start under way stands, with the last line that the server said.
    starting: str | None = None


class Move(Struct, frozen=True, kw_only=True):
    """A connection went from one state to another; ``reason`` and error are of its last failure."""

    server_id: str
    old: State
    new: State
    reason: str = ""
    last_error: str | None = None


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
