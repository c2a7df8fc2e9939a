"""Events as lines of an ordinary log: the one place that says in words what a bridge does.

A ledger around another one: each event goes to that one first. What goes wrong is a warning, what a
session may use is information, what goes well is said at level ``debug``. Nothing is formatted for
a level that is off. The library only names loggers; a composition root decides where lines go.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import msgspec

from bascule.audit.events import (
    OWN_TOOL,
    AccessRefused,
    Act,
    CallEvent,
    ConnectionMoved,
    EgressDecided,
    EndedCall,
    GuestEnded,
    LeavingCall,
    NodeAssigned,
    NodeLedger,
    PolicyLoosened,
    SecretChanged,
    SessionOpened,
    SessionRefusal,
    StoreAnnounced,
    TokenEnded,
    TokenMade,
    ToolsListed,
)
from bascule.audit.ledger import Ledger
from bascule.model.approval import Approval
from bascule.model.assignment import Assignment
from bascule.model.code import CallStatus
from bascule.model.json import JsonValue

SLOW_CALL_MS = 10_000

_SESSIONS = logging.getLogger("bascule.session")
_CALLS = logging.getLogger("bascule.call")
_GUESTS = logging.getLogger("bascule.guests")
_ACCESS = logging.getLogger("bascule.http")
_ACTS = logging.getLogger("bascule.act")
_APPROVALS = logging.getLogger("bascule.approvals")
_DECIDED = frozenset({"approved", "denied"})
_CONNECTIONS = logging.getLogger("bascule.connection")
_TROUBLED = frozenset({"degraded", "reconnecting", "down", "parked"})


def say(logger: logging.Logger, level: int, words: str, **fields: object) -> None:
    """Write a line with fields, which a form for machines shows one by one."""
    logger.log(level, "%s", words, extra={"fields": fields})


def say_refused(event: AccessRefused) -> None:
    """Say that a request was turned away."""
    if _ACCESS.isEnabledFor(logging.WARNING):
        words = f"{event.status} {event.code} for {event.method} {event.path}: {event.message}"
        say(_ACCESS, logging.WARNING, words, **_fields(event, "message"))


def say_approval(approval: Approval) -> None:
    """Say where an approval stands; of its arguments there is the digest alone."""
    call, decided = approval.call, approval.decided
    level = logging.WARNING if approval.state == "void" else logging.INFO
    if not _APPROVALS.isEnabledFor(level):
        return
    who = "" if decided is None or approval.state not in _DECIDED else f" by {decided.by}"
    own = ", on a call of their own" if who and decided and decided.self_approved else ""
    because = f": {approval.reason}" if approval.reason else ""
    words = f"approval {approval.id} of {call.server_id}/{call.tool_name} is {approval.state}"
    say(_APPROVALS, level, f"{words}{who}{own}{because}", **_fields(call), approval_id=approval.id)


class LoggedLedger:
    """A ledger whose events are also lines of the log."""

    def __init__(self, inner: Ledger, *, slow_call_ms: float = SLOW_CALL_MS) -> None:
        self._inner = inner
        self.digest_key = inner.digest_key
        self._slow_call_ms = slow_call_ms
        #: Told of every call that ended, while somebody wants to know; it must be quick.
        self.on_ended: Callable[[EndedCall], None] | None = None

    def session_opened(self, event: SessionOpened) -> None:
        """Say which servers are effective; none where some were wanted is a warning."""
        self._inner.session_opened(event)
        level = logging.WARNING if event.warnings else logging.INFO
        if _SESSIONS.isEnabledFor(level):
            servers = ", ".join(event.mcp_effective_servers) or "none"
            more = "".join(f"; {warning}" for warning in event.warnings)
            say(_SESSIONS, level, f"session opened, effective servers: {servers}{more}",
                **_fields(event, "tool_count"))  # fmt: skip

    def session_refused(self, event: SessionRefusal) -> None:
        """Say why."""
        self._inner.session_refused(event)
        if _SESSIONS.isEnabledFor(logging.WARNING):
            words = f"session refused ({event.reason}): {event.message}"
            say(_SESSIONS, logging.WARNING, words, **_fields(event, "message"))

    def connection_moved(self, event: ConnectionMoved) -> None:
        """Say where a connection stands; trouble is a warning."""
        self._inner.connection_moved(event)
        level = logging.WARNING if event.state in _TROUBLED else logging.DEBUG
        level = logging.INFO if event.state == "connected" else level
        if _CONNECTIONS.isEnabledFor(level):
            because = f": {event.last_error}" if level > logging.INFO and event.last_error else ""
            words = f"server {event.server_id} is {event.state}{because}"
            say(_CONNECTIONS, level, words, **_fields(event))

    def egress_decided(self, event: EgressDecided) -> None:
        """Say which host a confined server asked for; a refusal is a warning."""
        self._inner.egress_decided(event)
        level = logging.WARNING if event.verdict == "refused" else logging.DEBUG
        if _CONNECTIONS.isEnabledFor(level):
            words = f"server {event.server_id}: {event.host}:{event.port} {event.verdict}"
            say(_CONNECTIONS, level, words, **_fields(event))

    def tools_listed(self, event: ToolsListed) -> None:
        """Say what a session was shown."""
        self._inner.tools_listed(event)
        if _SESSIONS.isEnabledFor(logging.DEBUG):
            say(_SESSIONS, logging.DEBUG, f"{event.tool_count} tools listed", **_fields(event))

    def guest_ended(self, event: GuestEnded) -> None:
        """Say who ran what, and how it ended."""
        self._inner.guest_ended(event)
        if _GUESTS.isEnabledFor(logging.INFO):
            words = f"the guest of task {event.task_id} ended: {event.reason} {event.exit_code}"
            say(_GUESTS, logging.INFO, words, **_fields(event))

    def intent(self, leaving: LeavingCall) -> Awaitable[None] | None:
        """Keep it; the line comes with the outcome."""
        return self._inner.intent(leaving)

    def outcome(self, ended: EndedCall) -> None:
        """Say how a call ended."""
        self._inner.outcome(ended)
        if self.on_ended is not None:
            self.on_ended(ended)
        level = _level(ended.status)
        slow = ended.duration_ms >= self._slow_call_ms
        if slow and level < logging.WARNING:
            level = logging.WARNING
        if _CALLS.isEnabledFor(level):
            event = ended.event()
            say(_CALLS, level, _sentence(event, slow=slow), **_fields(event), slow=slow)

    async def note(self, act: Act) -> None:
        """Say what somebody does."""
        await self._inner.note(act)
        if _ACTS.isEnabledFor(logging.INFO):
            say(_ACTS, logging.INFO, f"{_deed(act)}, by {act.by}", **_fields(act, "by"))

    def settle(self) -> None:
        """Write what waits; lines of the log never do."""
        self._inner.settle()


_SENT = {
    "began": "are sent from now on",
    "gap": "are sent with a gap",
    "refused": "are refused",
    "accepted": "go on as those of a new one",
}


def _deed(act: Act) -> str:
    match act:
        case TokenMade():
            return f"token {act.name} made: {act.role}"
        case TokenEnded():
            return f"token {act.token_id} ended"
        case SecretChanged():
            return f"secret {act.name} {act.action}"
        case PolicyLoosened():
            return f"{act.kind} {act.id} allows more"
        case StoreAnnounced():
            return f"this registry replaces store {act.succeeds}"
        case NodeLedger() | NodeAssigned():
            return _deed_about_node(act)


def _deed_about_node(act: NodeLedger | NodeAssigned) -> str:
    if isinstance(act, NodeLedger):
        return f"rows of ledger {act.ledger} {_SENT[act.action]}"
    return f"node {act.node} is assigned {Assignment(tasks=act.tasks, labels=act.labels)}"


def _level(status: CallStatus) -> int:
    if status == "ok":
        return logging.DEBUG
    return logging.WARNING if status in {"denied", "unknown"} else logging.INFO


def _sentence(event: CallEvent, *, slow: bool) -> str:
    own = "own tool " if event.reason == OWN_TOOL else ""
    what = own + "/".join(filter(None, (event.server_id, event.tool_name)))
    how = "succeeded" if event.status == "ok" else event.status
    code = f" ({event.code})" if event.code else ""
    why = f": {event.layer}, {event.reason} {event.rule}".rstrip() if event.reason else ""
    tail = why if event.status == "denied" else ""
    return (
        f"{'slow ' if slow else ''}call of {what} {how}{code} in {event.duration_ms:.0f} ms{tail}"
    )


def _fields(event: msgspec.Struct, *left_out: str) -> dict[str, JsonValue]:
    """Return an event's fields; the line has a time of its own."""
    plain: dict[str, JsonValue] = msgspec.to_builtins(event)
    return {k: v for k, v in plain.items() if k not in {"timestamp", *left_out} and v is not None}
