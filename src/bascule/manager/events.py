"""What an agent's manager tells whoever listens, as frozen events.

Arguments and results appear by their shape alone (names, kinds, lengths), as the bridge's ledger
has them; no event holds a value.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from bascule.model.json import JsonValue
from bascule.model.status import State

logger = logging.getLogger("bascule.manager")


class _OfAgent(Struct, frozen=True, kw_only=True, tag_field="event"):
    at: float
    agent_id: str


class _OfCall(_OfAgent, frozen=True, kw_only=True):
    server: str
    tool: str
    name: str
    call_id: str


class ToolStarted(_OfCall, frozen=True, kw_only=True, tag="tool_started"):
    """A call begins. ``call_id`` is the same in the event that ends it."""

    arguments: JsonValue


class ToolCompleted(_OfCall, frozen=True, kw_only=True, tag="tool_completed"):
    """A call ended: well, badly or cancelled. ``request_id`` is the bridge's, as in its ledger."""

    request_id: str | None
    duration_ms: float
    ok: bool
    code: str | None
    result: str


class ApprovalNeeded(_OfCall, frozen=True, kw_only=True, tag="approval_needed"):
    """A call needs somebody's approval, until ``expires_at``: it waits for that, or comes back."""

    approval_id: str
    expires_at: float | None


class ServerStateChanged(_OfAgent, frozen=True, kw_only=True, tag="server_state"):
    """A server's connection stands elsewhere than before."""

    server: str
    old: State
    new: State
    last_error: str | None


class ToolNamesCollided(_OfAgent, frozen=True, kw_only=True, tag="collision"):
    """Several tools would have had one name: each has got a hash in its name instead."""

    name: str
    tools: tuple[str, ...]


class ConfigReloaded(Struct, frozen=True, kw_only=True, tag="config_reloaded", tag_field="event"):
    """The file of agents was read again and is in force."""

    at: float
    source: str
    agents: tuple[str, ...]
    warnings: tuple[str, ...]


class ConfigRefused(Struct, frozen=True, kw_only=True, tag="config_refused", tag_field="event"):
    """The file of agents cannot be used as it is now; what was read before stays in force."""

    at: float
    source: str
    problems: tuple[str, ...]


ManagerEvent: TypeAlias = (
    ToolStarted
    | ApprovalNeeded
    | ToolCompleted
    | ServerStateChanged
    | ToolNamesCollided
    | ConfigReloaded
    | ConfigRefused
)
OnEvent: TypeAlias = Callable[[ManagerEvent], None]


def telling(on_event: OnEvent | None) -> OnEvent:
    """Return a listener that cannot disturb: what it raises is logged and nothing more."""

    def tell(event: ManagerEvent) -> None:
        if on_event is None:
            return
        try:
            on_event(event)
        except Exception:  # the host's own code: a call must not fail by it
            logger.exception("a listener failed on %s", type(event).__name__)

    return tell
