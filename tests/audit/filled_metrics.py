"""Metrics in which every family has a value."""

from __future__ import annotations

from bascule.audit.metrics import Metrics


class Kept:
    """A ledger that cannot be written."""

    number, backlog, trouble = 7, 100, "the disk is full"


class Busy:
    """A gateway with calls under way."""

    open_streams, open_calls = 3, 2


def filled() -> Metrics:
    """Count something of everything."""
    metrics = Metrics()
    tool = metrics.tool("fs", "read")
    tool.observe("mcp_timeout", 3.0, 300)
    tool.cut += 1
    tool.misfits += 1
    metrics.connected("fs")
    metrics.listed("fs", 1.0)
    metrics.throttled("fs", 0.5)
    metrics.injected("fs", "success")
    metrics.denied("fs", "not_allowed")
    metrics.conversed(iterations=2, calls=1, budget="max_seconds")
    metrics.session_refused("not_allowed")
    metrics.turned_away("no_token")
    metrics.approval_moved("pending")
    metrics.ledger, metrics.gateway = Kept(), Busy()
    metrics.nodes = {"ok": 2, "lost": 1}
    metrics.degraded, metrics.revision = ("registry_unwritable",), 7
    return metrics
