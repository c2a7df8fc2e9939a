"""What happened, as frozen events: one shape for memory, files and every later sink.

Fields have the names of the requirements: ``timestamp`` (seconds since 1970), ``request_id``,
``session_id``, ``task_id``, ``server_id``, ``tool_name``, ``status``. Arguments are redacted before
they get here; no event ever holds a value that came from a reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from bascule.model.code import CallStatus
from bascule.model.decision import Decision


class SessionOpened(Struct, frozen=True, kw_only=True, tag="session_opened", tag_field="event"):
    """A session was opened; ``mcp_effective_servers`` is the seeds' name for what it may use."""

    timestamp: float
    session_id: str
    task_id: str | None
    caller: str | None
    revision: int
    mcp_effective_servers: tuple[str, ...]
    tool_count: int | None
    decisions: tuple[Decision, ...]
    warnings: tuple[str, ...]


class SessionRefusal(Struct, frozen=True, kw_only=True, tag="session_refused", tag_field="event"):
    """A session was not opened, or what it was opened for is refused now; then it has an id."""

    timestamp: float
    session_id: str | None
    task_id: str | None
    caller: str | None
    revision: int
    server_id: str | None
    reason: str
    message: str


class ConnectionMoved(Struct, frozen=True, kw_only=True, tag="connection", tag_field="event"):
    """A server's connection stands elsewhere than before; ``reason`` is empty but for trouble."""

    timestamp: float
    server_id: str
    old_state: str
    state: str
    reason: str
    last_error: str | None


class ToolsListed(Struct, frozen=True, kw_only=True, tag="tools_listed", tag_field="event"):
    """A session was shown its tools; ``servers`` says how each server's list went."""

    timestamp: float
    session_id: str
    task_id: str | None
    caller: str | None
    revision: int
    servers: Mapping[str, str]
    tool_count: int
    warnings: tuple[str, ...]


class AccessRefused(Struct, frozen=True, kw_only=True, tag="access_refused", tag_field="event"):
    """A request was turned away before any session. It is said, and not kept.

    Whoever needs no token for it could otherwise push out what is kept.
    """

    request_id: str
    method: str
    path: str
    status: int
    code: str
    message: str
    caller: str | None
    client: str | None


class CallIntent(Struct, frozen=True, tag="call_intent", tag_field="event", gc=False):
    """A call is about to leave: nothing after this line means its outcome is unknown."""

    timestamp: float
    request_id: str
    session_id: str
    server_id: str
    tool_name: str
    revision: int
    arguments_digest: str
    approved: bool


class CallEvent(Struct, frozen=True, tag="call", tag_field="event", gc=False):
    """A call ended, one way or another; denials and cancellations are calls too.

    Give the fields by position: from the sixteenth keyword on, Python passes all of them in a
    dictionary, which takes seven times as long.
    """

    timestamp: float
    request_id: str
    session_id: str
    task_id: str | None
    caller: str | None
    server_id: str
    tool_name: str
    revision: int
    status: CallStatus
    code: str | None
    layer: str
    reason: str
    rule: str
    duration_ms: float
    output_bytes: int
    arguments: Any
    arguments_digest: str | None


class LeavingCall(Protocol):
    """A call that is about to leave."""

    def intent(self) -> CallIntent:
        """Return what is written of that; the same whenever it is asked for."""
        ...


class EndedCall(Protocol):
    """A call that ended; its event is made when somebody has the time."""

    @property
    def status(self) -> CallStatus: ...

    @property
    def duration_ms(self) -> float: ...

    def event(self) -> CallEvent:
        """Return what is written of it; the same whenever it is asked for."""
        ...


Event = SessionOpened | SessionRefusal | ConnectionMoved | ToolsListed | CallIntent | CallEvent
