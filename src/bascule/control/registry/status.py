"""What nodes say about servers: kept apart from the records, and never moving the revision.

Stores keep the reports in tables of their own; the service combines them into the one ``status``
that is shown with a record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from msgspec import Struct
from msgspec.structs import replace

from bascule.model.status import CombinedStatus, ServerStatus, Trouble, health_of


class NodeReport(Struct, frozen=True, kw_only=True):
    """All that one node says at one time; it replaces what the node said before."""

    node: str
    revision: int = 0
    state: str = "ok"
    servers: tuple[ServerStatus, ...] = ()
    at: float = 0.0


UNKNOWN = CombinedStatus(state="unknown", health="Down")
_WORST_FIRST = (
    "down",
    "parked",
    "degraded",
    "reconnecting",
    "connecting",
    "disconnected",
    "disabled",
    "connected",
)


def all_combined(
    reports: Iterable[NodeReport], servers: Iterable[str]
) -> dict[str, CombinedStatus]:
    """Return what all nodes together say about each of these servers."""
    seen: dict[str, dict[str, ServerStatus]] = {}
    for report in sorted(reports, key=lambda report: report.node):
        for status in report.servers:
            seen.setdefault(status.server_id, {})[report.node] = status
    return {one: _over_all(seen[one]) if one in seen else UNKNOWN for one in servers}


def _over_all(nodes: dict[str, ServerStatus]) -> CombinedStatus:
    worst = min(nodes.values(), key=lambda status: _rank(status.state))
    latencies = [s.latency_ms for s in nodes.values() if s.latency_ms is not None]
    averages = [s.average_latency_ms for s in nodes.values() if s.average_latency_ms is not None]
    counts = [s.tool_count for s in nodes.values() if s.tool_count is not None]
    seen = {status.trouble for status in nodes.values()}
    return CombinedStatus(
        state=worst.state,
        health=health_of(worst.state),
        trouble=next((trouble for trouble in get_args(Trouble) if trouble in seen), None),
        last_error=worst.last_error,
        tool_count=max(counts, default=None),
        latency_ms=max(latencies, default=None),
        average_latency_ms=sum(averages) / len(averages) if averages else None,
        reconnects=sum(s.reconnects for s in nodes.values()),
        nodes={node: replace(s, health=health_of(s.state)) for node, s in nodes.items()},
        starting=next((s.starting for s in nodes.values() if s.starting is not None), None),
    )


def _rank(state: str) -> int:
    """Return how bad a state is, the worst first; a word nobody knows is bad news."""
    return _WORST_FIRST.index(state) if state in _WORST_FIRST else -1
