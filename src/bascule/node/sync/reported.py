"""What a node reports of its servers: one line for each, however many connections it has."""

from __future__ import annotations

from collections.abc import Sequence

from bascule.model.status import UNWELL, ConnectionStatus, ServerStatus, badness


def reported(statuses: Sequence[ServerStatus]) -> tuple[ServerStatus, ...]:
    """Return, of several connections, the worst that is in trouble, else one that serves."""
    telling: dict[str, ServerStatus] = {}
    for status in statuses:
        known = telling.setdefault(status.server_id, status)
        if _rank(status) < _rank(known):
            telling[status.server_id] = status
    return tuple(s.reported() if isinstance(s, ConnectionStatus) else s for s in telling.values())


def _rank(status: ServerStatus) -> tuple[bool, bool, int]:
    """Return how much a connection says of its server, the most telling first."""
    state = status.state
    troubled = state in UNWELL or state == "reconnecting"
    return not troubled, state != "connected", badness(state)
