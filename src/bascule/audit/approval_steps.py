"""The steps of an approval, each inside one transaction of whatever keeps the rows.

A step changes a row if it is still in the state that it was found in, and writes what happened to
the chain beside it. Nothing here waits, and no clock is read: ``now`` never goes back.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bascule.audit.approval_settings import ApprovalSettings
from bascule.audit.events import ApprovalMoved, CallIntent
from bascule.errors import BasculeError, BudgetExceeded
from bascule.model.approval import (
    STEPS,
    Approval,
    ApprovalRequest,
    ApprovalState,
    Decided,
    Decider,
    Denied,
    ExactCall,
    Separation,
    Shown,
    Verb,
)
from bascule.policy.separation import is_own, objection

#: So many denials of one tool in so many seconds, and nobody is asked about it for a while.
HELD_AFTER = 3
HELD_SECONDS = 600.0
_RETRY_AFTER = 60.0
#: Who makes the steps that nobody makes.
PROCESS = "bascule"
_WORDS: Mapping[ApprovalState, str] = {
    "pending": "waits for somebody to decide",
    "approved": "was given",
    "denied": "was denied",
    "expired": "was not decided on, or not used, in time",
    "withdrawn": "was withdrawn",
    "void": "is void",
    "claimed": "was used already",
}

#: What has changed, in words.
CHANGED = {
    "arguments_digest": "set of arguments",
    "definition_digest": "definition of the tool",
    "policy_digest": "record or rule",
}


class Rows(Protocol):
    """The rows of one transaction."""

    @property
    def now(self) -> float:
        """Return the time: the clock's, or the latest that was ever seen, if that is later."""
        ...

    def get(self, id: str) -> Approval | None: ...

    def newest_of(self, call: ExactCall) -> Approval | None:
        """Return the last question about exactly this call."""
        ...

    def put(self, approval: Approval, *, asked: Shown | None = None) -> None:
        """Keep an approval as it is now; ``asked`` is what is shown of a new one.

        What was shown is removed with the last step.
        """
        ...

    def pending_of(self, token_id: str) -> int:
        """Return how many questions of a token wait."""
        ...

    def denials(self, call: ExactCall, since: float) -> int:
        """Return how often the same asker was denied the same tool since then."""
        ...

    def open_of(self, call: ExactCall) -> Sequence[Approval]:
        """Return those of the same asker and tool that can still be decided on or claimed."""
        ...

    def due(self) -> Sequence[Approval]:
        """Return those whose time is up and that do not say so yet."""
        ...

    def open(self) -> Sequence[Approval]:
        """Return those that can still be decided on or claimed."""
        ...

    def write(self, event: ApprovalMoved | CallIntent) -> None:
        """Add an event to the chain."""
        ...


class ApprovalRefused(BasculeError):
    """A decision that is not taken; ``code`` says why, and nothing has changed."""

    def __init__(self, code: str, message: str, approval: Approval | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.approval = approval


def unknown(id: str) -> ApprovalRefused:
    """Return the refusal of what is not there."""
    return ApprovalRefused("not_found", f"there is no approval {id!r}")


class Decision(Struct, frozen=True, kw_only=True):
    """What somebody says to a question; ``digest`` is of what they were shown."""

    verb: Verb
    by: Decider
    digest: str
    reason: str = ""
    separation: Separation = "token"


def ask(
    rows: Rows, request: ApprovalRequest, settings: ApprovalSettings, node: str | None = None
) -> Approval | Denied:
    """Return the question about a call: one that is there already, or a new one.

    ``node`` is the one of another process that asks.
    """
    expire(rows)
    if request.approval_id is not None:
        return _again(rows, request)
    found = rows.newest_of(request.call)
    if found is not None and _answers(found, rows.now):
        return found
    _void_earlier(rows, request.call)
    refusal = _held(rows, request.call)
    if refusal is not None:
        return refusal
    _refuse_too_many(rows, request, settings.max_pending)
    shown = Shown(request.payload, msgspec.json.encode(request.definition))
    approval = Approval(
        id=f"apr-{secrets.token_hex(12)}",
        state="pending",
        call=request.call,
        session_id=request.session_id,
        request_id=request.request_id,
        revision=request.revision,
        maker=request.maker,
        asked_at=rows.now,
        expires_at=rows.now + settings.decide_seconds,
        digest=shown_digest(request.call, shown),
        node=node,
    )
    rows.put(approval, asked=shown)
    rows.write(_moved(approval, rows.now, request.caller or ""))
    return approval


def _again(rows: Rows, request: ApprovalRequest) -> Approval | Denied:
    """Return the question that a call was parked with, void if it is not that call any more."""
    found = rows.get(request.approval_id or "")
    if found is None or found.call.asker != request.call.asker:
        return Denied("there is no such approval")
    return _void_if_changed(rows, found, request.call)


def _void_earlier(rows: Rows, call: ExactCall) -> None:
    """End what was asked about the same call when its tool, record or rules were others.

    Nothing of it comes back when these do.
    """
    for found in rows.open_of(call):
        if found.call.arguments_digest == call.arguments_digest:
            _void_if_changed(rows, found, call)


def _answers(found: Approval, now: float) -> bool:
    """Say whether a question stands for the same call: open, or denied not long ago."""
    return found.state in STEPS or (found.state == "denied" and now < found.expires_at)


def _held(rows: Rows, call: ExactCall) -> Denied | None:
    if rows.denials(call, rows.now - HELD_SECONDS) < HELD_AFTER:
        return None
    return Denied(
        f"{call.tool_name} was denied {HELD_AFTER} times in {HELD_SECONDS / 60:.0f} minutes: "
        "nobody is asked about it for a while, whatever its arguments"
    )


def _refuse_too_many(rows: Rows, request: ApprovalRequest, most: int) -> None:
    if request.token_id is not None and rows.pending_of(request.token_id) >= most:
        raise BudgetExceeded(
            f"{most} approvals of this token wait already (approvals.max_pending)",
            retry_after=_RETRY_AFTER,
        )


def decide(rows: Rows, id: str, decision: Decision, settings: ApprovalSettings) -> Approval:
    """Decide on a question; raise ApprovalRefused, and nothing has changed."""
    expire(rows)
    found = rows.get(id)
    if found is None:
        raise unknown(id)
    if found.state != "pending":
        raise ApprovalRefused("wrong_state", f"{id} is {found.state} already", found)
    against = objection(found, decision.by, decision.separation)
    if against is not None:
        raise ApprovalRefused("own_call", against, found)
    if decision.digest != found.digest:
        raise ApprovalRefused("changed", "the digest is not of what is asked now", found)
    approves, by = decision.verb == "approve", decision.by
    decided = Decided(
        verb=decision.verb,
        by=by.name,
        token_id=by.token_id,
        person=by.person,
        at=rows.now,
        reason=decision.reason,
        self_approved=is_own(found, by),
    )
    until = rows.now + settings.claim_seconds if approves else found.expires_at
    new = replace(found, decided=decided, expires_at=until)
    return _step(rows, new, "approved" if approves else "denied", by, decision.reason)


def claim(
    rows: Rows, id: str, call: ExactCall, intent: CallIntent, node: str | None = None
) -> Approval:
    """Claim an approval for the call as it is now, and write its intent beside that.

    A ``node`` of another process may claim again for the very call that it claimed for: it has not
    heard the answer, so that call has not left. Raise ApprovalRefused when it cannot be claimed; it
    may be void since then.
    """
    expire(rows)
    found = rows.get(id)
    if found is None:
        raise unknown(id)
    if node is not None and _is_unheard(found, call, intent, node):
        return found
    found = _void_if_changed(rows, found, call)
    if found.state != "approved":
        raise ApprovalRefused(found.state, in_words(found), found)
    taken = replace(found, claimed_by=intent.request_id, node=node)
    claimed = _step(rows, taken, "claimed", None, "")
    rows.write(intent)
    return claimed


def _is_unheard(found: Approval, call: ExactCall, intent: CallIntent, node: str) -> bool:
    """Say whether an approval was claimed by this node for this very call already."""
    same = (found.node, found.claimed_by) == (node, intent.request_id)
    return found.state == "claimed" and same and not found.call.differences(call)


def _void_if_changed(rows: Rows, found: Approval, call: ExactCall) -> Approval:
    changed = found.call.differences(call)
    if not changed or found.state not in STEPS:
        return found
    what = CHANGED.get(changed[0], changed[0])
    return _step(rows, found, "void", None, f"since it was asked, there is another {what}")


def withdraw(rows: Rows, id: str, reason: str) -> Approval | None:
    """Take a question back that nobody has decided on; None if there is none."""
    found = rows.get(id)
    if found is None or found.state != "pending":
        return None
    return _step(rows, found, "withdrawn", None, reason)


def expire(rows: Rows) -> list[Approval]:
    """End what nobody decided on, or used, in time."""
    return [_step(rows, found, "expired", None, "") for found in rows.due()]


def void_all(rows: Rows, reason: str) -> list[Approval]:
    """End everything that is open."""
    return [_step(rows, found, "void", None, reason) for found in rows.open()]


def _step(
    rows: Rows, approval: Approval, state: ApprovalState, by: Decider | None, reason: str
) -> Approval:
    """Bring an approval into another state; there is no other way."""
    if state not in STEPS.get(approval.state, ()):
        raise AssertionError(f"there is no step from {approval.state} to {state}")
    new = replace(approval, state=state, reason=reason)
    rows.put(new)
    rows.write(_moved(new, rows.now, PROCESS if by is None else by.name, by))
    return new


def _moved(
    approval: Approval, now: float, by: str, decider: Decider | None = None
) -> ApprovalMoved:
    call = approval.call
    return ApprovalMoved(
        timestamp=now,
        approval_id=approval.id,
        state=approval.state,
        task_id=call.task_id,
        caller=call.caller,
        token_id=call.token_id,
        person=call.person,
        server_id=call.server_id,
        tool_name=call.tool_name,
        session_id=approval.session_id,
        request_id=approval.claimed_by or approval.request_id,
        revision=approval.revision,
        arguments_digest=call.arguments_digest,
        definition_digest=call.definition_digest,
        rule=call.rule,
        expires_at=approval.expires_at,
        by=by,
        by_token_id=None if decider is None else decider.token_id,
        by_person=None if decider is None else decider.person,
        reason=approval.reason,
        self_approved=approval.decided is not None and approval.decided.self_approved,
        node=approval.node,
    )


def in_words(approval: Approval) -> str:
    """Say what became of an approval."""
    because = f": {approval.reason}" if approval.reason else ""
    return f"the approval {_WORDS[approval.state]}{because}"


def shown_digest(call: ExactCall, shown: Shown) -> str:
    """Return the digest of what somebody decides on."""
    parts = (msgspec.json.encode(call), shown.arguments, shown.definition)
    mixed = b"".join(len(part).to_bytes(8) + part for part in parts)
    return sha256(mixed).hexdigest()


def digest_of(value: object) -> str:
    """Return a digest by which rows find equal values."""
    return sha256(msgspec.json.encode(value)).hexdigest()
