"""What a session tells the ledger of itself: that it was opened, and what it was shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from bascule.audit.events import SessionOpened, ToolsListed

if TYPE_CHECKING:
    from bascule.node.bridge.session import Session


def opened(session: Session) -> SessionOpened:
    """Return the event of a session that begins."""
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


def listed(
    session: Session, servers: Mapping[str, str], tool_count: int, warnings: Iterable[str]
) -> ToolsListed:
    """Return the event of a list; ``servers`` says how each server's own list went."""
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
