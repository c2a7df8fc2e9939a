"""How a server stands: the states of its connection, their words, and what is told of a change.

One struct goes all the way from the connection to the answer of the registry's API.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, convert

from bascule.model.sandbox import Standing

#: Where a connection stands: the states of its machine.
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
#: The requirements' three words for a state. A server that is not connected for whatever reason,
#: not asked for yet included, is ``Down``: the state says which.
Health = Literal["Connected", "Degraded", "Down"]
#: The same in four words, as agents see it; ``failed`` has its reason in ``last_error``.
Phase = Literal["connecting", "connected", "failed", "disconnected"]
#: What is wrong with a server that was connected, the worst first: it ended or answers nothing,
#: lets calls wait for as long as its record allows, or says so much unasked that reading pauses.
Trouble = Literal["dead", "slow", "flooding"]

_HEALTH: Mapping[str, Health] = {
    "connected": "Connected",
    "degraded": "Degraded",
    "reconnecting": "Degraded",
}
#: How bad a state is, the worst first.
_RANKS: Mapping[str, int] = {
    state: rank
    for rank, state in enumerate(
        (
            "down",
            "parked",
            "degraded",
            "reconnecting",
            "connecting",
            "connected",
            "disconnected",
            "disabled",
        )
    )
}
#: States that somebody should look at.
UNWELL: frozenset[str] = frozenset({"degraded", "down", "parked"})
PHASES: Mapping[State, Phase] = {
    "connected": "connected",
    "degraded": "connected",
    "connecting": "connecting",
    "reconnecting": "connecting",
    "down": "failed",
    "parked": "failed",
    "disconnected": "disconnected",
    "disabled": "disconnected",
}


def health_of(state: str) -> Health:
    """Return the word for a state; one that is not known is bad news."""
    return _HEALTH.get(state, "Down")


def badness(state: str) -> int:
    """Return the rank of a state among all, the worst first; an unknown word is bad news."""
    return _RANKS.get(state, -1)


class ServerStatus(Struct, frozen=True, kw_only=True):
    """One server as one node sees it; ``state`` is a state of the node's connection.

    ``health`` is set where the status is shown. ``latency_ms`` is of the last call,
    ``average_latency_ms`` of all since the connection was first made.
    """

    server_id: str
    state: str
    health: Health | None = None
    trouble: Trouble | None = None
    last_error: str | None = None
    tool_count: int | None = None
    latency_ms: float | None = None
    average_latency_ms: float | None = None
    #: How often it was connected again.
    reconnects: int = 0
    #: Where a start under way stands, with the last line that the server said.
    starting: str | None = None
    #: How a local server is isolated, once it was started.
    sandbox: Standing | None = None


class CombinedStatus(Struct, frozen=True, kw_only=True):
    """One server over all nodes: the worst state counts, the nodes' own words are kept.

    Reconnects are summed, the average is that of the nodes' averages, and ``trouble`` is the
    worst that any node sees. A list has the words of a few nodes only, those that see it worst.
    """

    state: str
    health: Health
    trouble: Trouble | None = None
    last_error: str | None = None
    tool_count: int | None = None
    latency_ms: float | None = None
    average_latency_ms: float | None = None
    reconnects: int = 0
    nodes: dict[str, ServerStatus] = {}
    #: How many nodes speak of it.
    node_count: int = 0
    starting: str | None = None
    #: The weakest that is in force at any node.
    sandbox: Standing | None = None


class ConnectionStatus(ServerStatus, frozen=True, kw_only=True):
    """A server's status in the process that holds the connection."""

    state: State
    #: Who has the connection; empty when all sessions share it.
    sharer: str = ""
    last_connected_at: float | None = None
    #: Attempts in a row that failed, and when the next one is made if one is planned.
    failures: int = 0
    next_attempt_at: float | None = None

    def reported(self) -> ServerStatus:
        """Return what a registry is told of it."""
        return convert(self, ServerStatus, from_attributes=True)


class Change(Struct, frozen=True, kw_only=True):
    """Something changed: a server's connection, the tools it lists, or the records in force.

    It says what to look at again; ``statuses`` and ``tools`` say how things are now.
    """

    kind: Literal["state", "tools", "records"]
    #: Empty when the records changed: any server may be concerned.
    server_id: str = ""
    #: Who has this connection apart: a session, a task, a person; empty when all share it.
    session_id: str = ""
    #: Where the connection stood and stands; the same twice when something else about it changed.
    old: State | None = None
    state: State | None = None
    #: The reason and the words of its last failure, where it stands badly.
    reason: str = ""
    last_error: str | None = None
