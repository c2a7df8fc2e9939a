"""What happened, as frozen events: one shape for memory, files and every later sink.

Below: the model. Above: the bridge makes them, ``ledger.py`` keeps them. Arguments are redacted
before they get here; no event ever holds a value that came from a reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from bascule.model.decision import Decision

CallStatus = Literal["ok", "denied", "failed", "cancelled", "unknown"]


class SessionOpened(Struct, frozen=True, kw_only=True, tag="session_opened", tag_field="event"):
    """A session was opened; ``mcp_effective_servers`` is the seeds' name for what it may use."""

    at: float
    session_id: str
    task: str | None
    caller: str | None
    revision: int
    mcp_effective_servers: tuple[str, ...]
    tool_count: int | None
    decisions: tuple[Decision, ...]
    warnings: tuple[str, ...]


class ToolsListed(Struct, frozen=True, kw_only=True, tag="tools_listed", tag_field="event"):
    """A session was shown its tools; ``servers`` says how each server's list went."""

    at: float
    session_id: str
    task: str | None
    caller: str | None
    revision: int
    servers: Mapping[str, str]
    tool_count: int
    warnings: tuple[str, ...]


class CallIntent(Struct, frozen=True, kw_only=True, tag="call_intent", tag_field="event", gc=False):
    """A call is about to leave: nothing after this line means its outcome is unknown."""

    at: float
    request_id: str
    session_id: str
    server: str
    tool: str
    revision: int
    arguments_digest: str
    approved: bool


class CallEvent(Struct, frozen=True, tag="call", tag_field="event", gc=False):
    """A call ended, one way or another; denials and cancellations are calls too.

    Give the fields by position: from the sixteenth keyword on, Python passes all of them in a
    dictionary, which takes seven times as long.
    """

    at: float
    request_id: str
    session_id: str
    task: str | None
    caller: str | None
    server: str
    tool: str
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


Event = SessionOpened | ToolsListed | CallIntent | CallEvent
