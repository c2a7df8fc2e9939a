"""What happened, as frozen events: one shape for memory, files and every later sink.

Fields have the names of the requirements: ``timestamp`` (seconds since 1970), ``request_id``,
``session_id``, ``task_id``, ``server_id``, ``tool_name``, ``status``. ``token_id`` says whose token
it was, where there was one, and ``person`` for whom it spoke. Arguments are redacted before they
get here; no event ever holds a value that came from a reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct

from bascule.model.approval import ApprovalState
from bascule.model.code import CallStatus
from bascule.model.decision import Decision

#: The ``reason`` of a call of a tool that is the caller's own: no server, and no policy, was asked.
OWN_TOOL = "own_tool"


class SessionOpened(Struct, frozen=True, kw_only=True, tag="session_opened", tag_field="event"):
    """A session was opened; ``mcp_effective_servers`` is the seeds' name for what it may use."""

    timestamp: float
    session_id: str
    task_id: str | None
    caller: str | None
    token_id: str | None
    revision: int
    mcp_effective_servers: tuple[str, ...]
    tool_count: int | None
    decisions: tuple[Decision, ...]
    warnings: tuple[str, ...]
    person: str | None = None


class SessionRefusal(Struct, frozen=True, kw_only=True, tag="session_refused", tag_field="event"):
    """A session was not opened, or what it was opened for is refused now; then it has an id."""

    timestamp: float
    session_id: str | None
    task_id: str | None
    caller: str | None
    token_id: str | None
    revision: int
    server_id: str | None
    reason: str
    message: str
    person: str | None = None


class ConnectionMoved(Struct, frozen=True, kw_only=True, tag="connection", tag_field="event"):
    """A server's connection stands elsewhere than before; ``reason`` is empty but for trouble."""

    timestamp: float
    server_id: str
    old_state: str
    state: str
    reason: str
    last_error: str | None


class EgressDecided(Struct, frozen=True, kw_only=True, tag="egress", tag_field="event"):
    """A confined server asked for a host: it was let through or not, and then what it carried."""

    timestamp: float
    server_id: str
    verdict: Literal["allowed", "refused", "ended"]
    host: str
    port: int
    reason: str
    bytes_sent: int
    bytes_received: int


class ToolsListed(Struct, frozen=True, kw_only=True, tag="tools_listed", tag_field="event"):
    """A session was shown its tools; ``servers`` says how each server's list went."""

    timestamp: float
    session_id: str
    task_id: str | None
    caller: str | None
    token_id: str | None
    revision: int
    servers: Mapping[str, str]
    tool_count: int
    warnings: tuple[str, ...]
    person: str | None = None


class GuestEnded(Struct, frozen=True, kw_only=True, tag="guest_ended", tag_field="event"):
    """A client had a task's module run, and it ended; ``sha256`` is of the bytes that ran.

    ``calls`` are those that it knew of itself: each of them is an event of its own.
    """

    timestamp: float
    task_id: str
    caller: str | None
    token_id: str | None
    path: str
    sha256: str
    reason: str
    exit_code: int
    duration_ms: float
    calls: int
    person: str | None = None


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
    """A call is about to leave: nothing after this line means its outcome is unknown.

    ``arguments_digest`` is keyed: the plain hash of a small argument can be guessed.
    """

    timestamp: float
    request_id: str
    session_id: str
    task_id: str | None
    caller: str | None
    token_id: str | None
    server_id: str
    tool_name: str
    revision: int
    arguments_digest: str
    approved: bool
    approval_id: str | None
    person: str | None = None


class CallEvent(Struct, frozen=True, tag="call", tag_field="event", gc=False):
    """A call ended, one way or another; denials and cancellations are calls too.

    One of a caller's own tool has no server, the layer ``caller`` and the reason ``own_tool``.

    Give the fields by position: from the sixteenth keyword on, Python passes all of them in a
    dictionary, which takes seven times as long.
    """

    timestamp: float
    request_id: str
    session_id: str
    task_id: str | None
    caller: str | None
    token_id: str | None
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
    approval_id: str | None
    person: str | None = None


class DenialsCounted(Struct, frozen=True, kw_only=True, tag="denials_counted", tag_field="event"):
    """So many further calls of a token were refused in a minute, and not written one by one."""

    timestamp: float
    token_id: str
    task_id: str | None
    caller: str | None
    count: int
    since: float


class TokenMade(Struct, frozen=True, kw_only=True, tag="token_made", tag_field="event"):
    """A token was made, by whom and for what. Like every act, it is written before it is done."""

    timestamp: float
    by: str
    token_id: str
    name: str
    role: str
    task_id: str | None
    expires_at: float | None
    person: str | None = None
    acts_for_users: bool = False
    tasks: tuple[str, ...] | None = None
    #: What a link is exchanged for.
    grants: str | None = None


class TokenEnded(Struct, frozen=True, kw_only=True, tag="token_ended", tag_field="event"):
    """A token was revoked."""

    timestamp: float
    by: str
    token_id: str


SecretAction = Literal["set", "bound", "unbound", "removed", "rekeyed", "read"]


class SecretChanged(Struct, frozen=True, kw_only=True, tag="secret", tag_field="event"):
    """Something was done with a secret; ``server_id`` is whom it was bound to, or read for."""

    timestamp: float
    by: str
    action: SecretAction
    name: str
    version: int | None = None
    server_id: str | None = None


class PolicyLoosened(Struct, frozen=True, kw_only=True, tag="policy_loosened", tag_field="event"):
    """A write to the registry allows more than before; ``changes`` say what, a line each."""

    timestamp: float
    by: str
    revision: int
    kind: str
    id: str
    changes: tuple[str, ...]


class StoreAnnounced(Struct, frozen=True, kw_only=True, tag="store_announced", tag_field="event"):
    """Somebody said that this registry's store replaces another: nodes of that one follow this."""

    timestamp: float
    by: str
    store_id: str
    succeeds: str


class NodeAssigned(Struct, frozen=True, kw_only=True, tag="node_assigned", tag_field="event"):
    """Somebody said what a node serves: tasks, and labels of servers; None is all."""

    timestamp: float
    by: str
    node: str
    tasks: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None


class ApprovalMoved(Struct, frozen=True, kw_only=True, tag="approval", tag_field="event"):
    """An approval came into a state: asked for (``pending``), decided on, claimed, or at its end.

    ``caller``, ``token_id`` and ``person`` are of whoever asked, and ``node`` is where, unless that
    is the process itself; ``by`` is who made the step, with their token and person. Of the
    arguments there is the digest alone.
    """

    timestamp: float
    approval_id: str
    state: ApprovalState
    task_id: str | None
    caller: str | None
    token_id: str | None
    person: str | None
    server_id: str
    tool_name: str
    session_id: str
    request_id: str
    revision: int
    arguments_digest: str
    definition_digest: str
    rule: str
    expires_at: float
    by: str
    by_token_id: str | None = None
    by_person: str | None = None
    reason: str = ""
    self_approved: bool = False
    node: str | None = None


class LedgerCut(Struct, frozen=True, kw_only=True, tag="ledger_cut", tag_field="event"):
    """The oldest rows were taken away: from which to which, and the hash of the last of them.

    ``chain`` is the id of another chain of which all were: its replica is gone; with ``partial``
    they were the oldest of a node's, or, by ``fork``, are in an earlier chain of that node.
    """

    timestamp: float
    by: str
    reason: Literal["age", "size", "fork"]
    first: int
    last: int
    count: int
    tip: str
    chain: str | None = None
    partial: bool = False


class NodeLedger(Struct, frozen=True, kw_only=True, tag="node_ledger", tag_field="event"):
    """A node, ``by``, began to send the rows of a ledger, or sent rows that were not taken.

    That its ledger goes on under another id, the node says itself: its owner has ``accepted`` what
    was refused.

    ``refused`` ones are others than it sent before, or do not follow them: the ledger at the node
    was changed, or somebody else speaks in its name. After a ``gap`` rows before ``number`` are
    missing here.
    """

    timestamp: float
    by: str
    action: Literal["began", "gap", "refused", "accepted"]
    ledger: str
    number: int
    reason: str = ""


class JournalSetAside(Struct, frozen=True, kw_only=True, tag="set_aside", tag_field="event"):
    """A journal's file was not taken in, or not from some line on; it is kept under ``name``."""

    timestamp: float
    name: str
    reason: str
    lines: int


class LeavingCall(Protocol):
    """A call that is about to leave."""

    @property
    def reads(self) -> bool:
        """Say whether the platform classes its tool as one that only reads."""
        ...

    @property
    def token_id(self) -> str | None: ...

    def intent(self) -> CallIntent:
        """Return what is written of that; the same whenever it is asked for."""
        ...


class EndedCall(Protocol):
    """A call that ended; its event is made when somebody has the time."""

    @property
    def status(self) -> CallStatus: ...

    @property
    def left(self) -> bool:
        """Say whether its intent was written."""
        ...

    @property
    def token_id(self) -> str | None: ...

    @property
    def duration_ms(self) -> float: ...

    def event(self) -> CallEvent:
        """Return what is written of it; the same whenever it is asked for."""
        ...


#: What somebody did, written before it is done.
Act = (
    TokenMade
    | TokenEnded
    | SecretChanged
    | PolicyLoosened
    | StoreAnnounced
    | NodeAssigned
    | NodeLedger
)
Event = (
    SessionOpened
    | SessionRefusal
    | ConnectionMoved
    | EgressDecided
    | ToolsListed
    | GuestEnded
    | CallIntent
    | CallEvent
    | DenialsCounted
    | ApprovalMoved
    | Act
    | LedgerCut
    | JournalSetAside
)

#: Events that a token has a share of, besides calls.
OF_TOKENS = SessionOpened | SessionRefusal | ToolsListed | GuestEnded
