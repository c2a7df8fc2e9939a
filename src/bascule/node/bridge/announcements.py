"""What a session tells ledger and metrics of itself: that it was opened, and what it was shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bascule.audit.events import SessionOpened, ToolsListed
from bascule.model.decision import Decision

if TYPE_CHECKING:
    from bascule.node.bridge.session import Session


def announce(session: Session) -> None:
    """Tell that a session begins, and what it is denied."""
    core = session.core
    core.ledger.session_opened(_opened(session))
    for decision in session.effective.denied:
        core.count_denied(decision.server, decision.reason)
        if decision.reason != "unknown_server":  # a caller's invention is no label
            core.metrics.injected(decision.server, "denied")


def announce_list(
    session: Session, failures: Mapping[str, Decision], tool_count: int, warnings: Sequence[str]
) -> None:
    """Tell what a session was shown, and how each server's own list went."""
    core, servers = session.core, session.effective.servers
    outcomes = {one: failures[one].reason if one in failures else "ok" for one in servers}
    for server, outcome in outcomes.items():
        core.metrics.injected(server, "success" if outcome == "ok" else "failed")
    for failure in failures.values():
        core.metrics.denied(failure.server, failure.reason)
    core.ledger.tools_listed(_listed(session, outcomes, tool_count, warnings))


def _opened(session: Session) -> SessionOpened:
    return SessionOpened(
        timestamp=session.core.clock.now(),
        session_id=session.session_id,
        task_id=session.task_id,
        caller=session.caller,
        token_id=session.token_id,
        person=session.person,
        revision=session.revision,
        mcp_effective_servers=session.effective.servers,
        tool_count=None,
        decisions=session.effective.decisions,
        warnings=session.effective.warnings,
    )


def _listed(
    session: Session, servers: Mapping[str, str], tool_count: int, warnings: Sequence[str]
) -> ToolsListed:
    return ToolsListed(
        timestamp=session.core.clock.now(),
        session_id=session.session_id,
        task_id=session.task_id,
        caller=session.caller,
        token_id=session.token_id,
        person=session.person,
        revision=session.revision,
        servers=servers,
        tool_count=tool_count,
        warnings=tuple(warnings),
    )
