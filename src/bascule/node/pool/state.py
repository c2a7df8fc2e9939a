"""The states of a connection: one machine, whatever words a door uses for them.

Below: nothing. Above: ``connection.py`` moves it, status shows it. A move that is not on the map
is a mistake in the pool and raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from bascule.node.ports import Listing
from bascule.wire.era import Era

State = Literal[
    "disconnected",
    "connecting",
    "connected",
    "degraded",
    "reconnecting",
    "down",
    "parked",
    "disabled",
]

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

#: The words of the seeds for each state.
SEED_000: Mapping[State, str] = {
    "connected": "Connected",
    "degraded": "Degraded",
    "reconnecting": "Degraded",
    "connecting": "Down",
    "disconnected": "Down",
    "down": "Down",
    "parked": "Down",
    "disabled": "Down",
}
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
    reconnects: int = 0
    latency_ms: float | None = None
    tool_count: int | None = None
    #: Where a start under way stands, with the last line that the server said.
    starting: str | None = None


class ServerInspection(Struct, frozen=True, kw_only=True):
    """What a server is and lists when it is looked at closely; names are its own words."""

    server_id: str
    era: Era
    protocol_version: str
    server_info: Mapping[str, Any]
    connect_ms: float
    list_ms: float
    listing: Listing


class IllegalMove(AssertionError):
    """A move between states that the machine does not know."""


class Machine:
    """Where a connection stands."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state: State = "disconnected"

    def move(self, to: State) -> None:
        """Go to another state; staying is no move."""
        if to == self.state:
            return
        if to not in ARROWS[self.state]:
            raise IllegalMove(f"{self.state} -> {to}")
        self.state = to
