"""What nodes say about servers, and how that makes the one ``status`` shown with a record.

``nodes.py`` is where reports are kept, ``standing.py`` combines them as they come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nsmallest
from typing import get_args

from msgspec import Struct

from bascule.model.sandbox import RANKS, Standing
from bascule.model.status import CombinedStatus, ServerStatus, Trouble, badness, health_of


class NodeReport(Struct, frozen=True, kw_only=True):
    """All that one node says at one time; it replaces what the node said before.

    ``reason`` is why it is degraded.
    """

    node: str
    revision: int = 0
    state: str = "ok"
    reason: str | None = None
    servers: tuple[ServerStatus, ...] = ()
    at: float = 0.0


UNKNOWN = CombinedStatus(state="unknown", health="Down")


def combined(nodes: Mapping[str, ServerStatus], most: int | None = None) -> CombinedStatus:
    """Return what nodes together say about a server, with the words of ``most`` of them."""
    if not nodes:
        return UNKNOWN
    words = nodes.values()
    state = min({status.state for status in words}, key=badness)
    worst = nodes[min(node for node, status in nodes.items() if status.state == state)]
    latencies = [s.latency_ms for s in words if s.latency_ms is not None]
    averages = [s.average_latency_ms for s in words if s.average_latency_ms is not None]
    troubles = {status.trouble for status in words}
    return CombinedStatus(
        state=state,
        health=health_of(state),
        trouble=next((trouble for trouble in get_args(Trouble) if trouble in troubles), None),
        last_error=worst.last_error,
        tool_count=max((s.tool_count for s in words if s.tool_count is not None), default=None),
        latency_ms=max(latencies, default=None),
        average_latency_ms=sum(averages) / len(averages) if averages else None,
        reconnects=sum(s.reconnects for s in words),
        nodes=_worst(nodes, most),
        node_count=len(nodes),
        starting=next((s.starting for s in words if s.starting is not None), None),
        sandbox=_weakest([s.sandbox for s in words if s.sandbox is not None]),
    )


def _weakest(standings: Sequence[Standing]) -> Standing | None:
    """Return the one that gives least: who asks whether a server is isolated means everywhere."""
    return min(standings, key=lambda one: RANKS.index(one.in_force), default=None)


def _worst(nodes: Mapping[str, ServerStatus], most: int | None) -> dict[str, ServerStatus]:
    """Return the words of those nodes that see a server worst, in the order of their names."""
    if most is None or len(nodes) <= most:
        return {name: nodes[name] for name in sorted(nodes)}
    names: list[str] = []
    for state in sorted({status.state for status in nodes.values()}, key=badness):
        alike = (name for name, status in nodes.items() if status.state == state)
        names += nsmallest(most - len(names), alike)
    return {name: nodes[name] for name in sorted(names)}
