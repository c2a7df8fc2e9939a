"""The requirements' three words for how a server stands, and the states they stand for.

Below: nothing. Above: the pool's state machine, the registry's status, the agents' API and the
command line show the word beside the state. A server that is not connected for whatever reason,
not asked for yet included, is ``Down``: the state says which.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

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
Health = Literal["Connected", "Degraded", "Down"]
#: What is wrong with a server that was connected, the worst first: it ended or answers nothing,
#: lets calls wait for as long as its record allows, or says so much unasked that reading pauses.
Trouble = Literal["dead", "slow", "flooding"]

_WORDS: Mapping[str, Health] = {
    "connected": "Connected",
    "degraded": "Degraded",
    "reconnecting": "Degraded",
}


def health_of(state: str) -> Health:
    """Return the word for a state; one that nobody knows is bad news."""
    return _WORDS.get(state, "Down")
