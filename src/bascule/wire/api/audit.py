"""The audit trail: what is searched for, and how it is shown."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from bascule.model.code import CallStatus, ErrorCode
from bascule.model.json import JsonObject

#: How a call stands: ``running`` has not ended yet.
CallState: TypeAlias = CallStatus | Literal["running"]


class AuditFilters(Struct, frozen=True, kw_only=True):
    """What an entry must be; the names are those of an event's fields.

    ``since`` and ``until`` are seconds since 1970 and count as inside.
    """

    since: float | None = None
    until: float | None = None
    event: str | None = None
    request_id: str | None = None
    session_id: str | None = None
    task_id: str | None = None
    caller: str | None = None
    token_id: str | None = None
    person: str | None = None
    server_id: str | None = None
    tool_name: str | None = None
    status: CallState | None = None
    code: ErrorCode | None = None
    approval_id: str | None = None
    #: The node that wrote it.
    node: str | None = None


class AuditEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row of the ledger: ``event`` as it was written, ``status`` as it stands now.

    A call that left and has not ended is ``running`` while its process lives, else ``unknown``.
    ``node`` is the node that wrote it, where it was not the control plane.
    """

    number: int
    at: str | None
    status: str | None
    event: JsonObject
    node: str | None = None


class AuditPage(Struct, frozen=True, kw_only=True):
    """Entries, the newest first; ``next_before`` asks for the page after.

    A page may have fewer entries than asked for, even none, and yet a ``next_before``: it looked at
    as many rows as one request may. ``tip`` is the number of the ledger's last row.
    """

    entries: tuple[AuditEntry, ...]
    tip: int
    next_before: int | None


class CallLife(Struct, frozen=True, kw_only=True):
    """Everything that was written about one call, in order, and how it stands."""

    request_id: str
    status: str | None
    entries: tuple[AuditEntry, ...]


class Bookmark(Struct, frozen=True):
    """Nothing that is watched for has happened up to this row."""

    number: int


class VerifyProgress(Struct, frozen=True, kw_only=True):
    """How many rows a verification has compared, of how many there were when it began."""

    checked: int
    total: int


class NewCheckpoint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A checkpoint to sign now; ``new_key`` has the next ones signed with another key."""

    new_key: bool = False


class CheckpointMade(Struct, frozen=True):
    """The line of the anchor, or None where nothing was new since the last one."""

    anchor: Annotated[str, Meta(description="the line as it was signed")] | None
