"""The events of the live stream, each with its name and the struct that is its data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from bascule.model.code import CallStatus
from bascule.model.kinds import Kind
from bascule.model.status import CombinedStatus
from bascule.wire.api.approvals import ApprovalShown
from bascule.wire.api.overview import Figures


class Hello(Struct, frozen=True, kw_only=True):
    """The first event; then come the status of every server and all approvals that are pending."""

    revision: int
    now: str


class RecordChange(Struct, frozen=True, kw_only=True):
    """What a revision did to one record."""

    kind: Kind
    id: str
    action: Literal["upsert", "delete"]


class RevisionMoved(Struct, frozen=True, kw_only=True):
    """The registry is at another revision; ``more`` are the changes that are not listed."""

    revision: int
    changes: tuple[RecordChange, ...]
    more: int = 0


class StatusMoved(Struct, frozen=True, kw_only=True):
    """A server stands otherwise than it did."""

    server_id: str
    status: CombinedStatus


class EndedCall(Struct, frozen=True, kw_only=True):
    """A call that ended. Of very many in a second the last are told; the figures count all."""

    request_id: str
    at: str
    server_id: str
    tool_name: str
    task_id: str | None
    person: str | None
    status: CallStatus
    code: str | None
    duration_ms: float


#: What each event of the stream carries.
EVENTS: Mapping[str, type[Struct]] = {
    "hello": Hello,
    "revision": RevisionMoved,
    "status": StatusMoved,
    "figures": Figures,
    "approval": ApprovalShown,
    "call": EndedCall,
}
