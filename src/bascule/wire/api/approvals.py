"""Approvals: what is asked, how it stands, and what somebody decides."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from bascule.model.approval import ApprovalState, Verb

MAX_REASON = 1_000
#: What a list and the feed can be narrowed by.
FILTERS = ("task", "server", "tool", "person")


class DecisionShown(Struct, frozen=True, kw_only=True):
    """What somebody decided; ``self_approved``: on a call of their own."""

    decision: Verb
    by: str
    token_id: str | None
    person: str | None
    at: str
    reason: str
    self_approved: bool


class ApprovalShown(Struct, frozen=True, kw_only=True):
    """One question and what became of it; ``reason`` says why it is denied, withdrawn or void.

    ``request_id`` is the call that asked, ``claimed_by`` the one that used the approval. ``rule``
    is what requires it, ``digest`` is of all that is shown to whoever decides. ``node`` is where it
    was asked, or used, unless that is the process that keeps it.
    """

    id: str
    state: ApprovalState
    server_id: str
    tool_name: str
    task_id: str | None
    person: str | None
    caller: str | None
    token_id: str | None
    rule: str
    session_id: str
    request_id: str
    revision: int
    arguments_digest: str
    definition_digest: str
    asked_at: str
    expires_at: str
    digest: str
    decided: DecisionShown | None
    reason: str
    claimed_by: str | None
    node: str | None = None


class ApprovalQuestion(ApprovalShown, frozen=True, kw_only=True):
    """A question with all that is decided on, as text in which every character can be seen.

    ``arguments`` is the JSON that will be sent, ``definition`` the tool as its server lists it. Not
    ``whole``: some of it is missing, ``missing`` says why, and it cannot be approved. ``objection``
    says why whoever looks may not decide on it; empty if they may.
    """

    arguments: str
    definition: str
    description: str
    whole: bool
    missing: str
    objection: str = ""


class ApprovalPage(Struct, frozen=True):
    """Approvals, the newest first; ``next_cursor`` asks for the page after."""

    approvals: tuple[ApprovalShown, ...]
    next_cursor: str | None


class NewDecision(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decision on what was shown under ``digest``."""

    decision: Verb
    digest: Annotated[str, Meta(min_length=1, max_length=128)]
    reason: Annotated[str, Meta(max_length=MAX_REASON)] = ""
