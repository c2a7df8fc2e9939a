"""An approval: somebody's answer, once, for exactly one call.

    pending ── approved ── claimed
       │          └─────── expired, void
       └─ denied, expired, withdrawn, void

Using an approval is a *claim*. ``bascule.audit.approvals`` keeps them; the bridge asks and claims.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct

from bascule.model.json import JsonObject
from bascule.model.outcome import Outcome

ApprovalState = Literal["pending", "approved", "denied", "expired", "withdrawn", "void", "claimed"]
STATES: tuple[ApprovalState, ...] = get_args(ApprovalState)
#: The steps there are; every other one is refused.
STEPS: Mapping[ApprovalState, frozenset[ApprovalState]] = {
    "pending": frozenset({"approved", "denied", "expired", "withdrawn", "void"}),
    "approved": frozenset({"claimed", "expired", "void"}),
}
Verb = Literal["approve", "deny"]
#: May somebody decide on calls of their own? "person": not at all; "token": by another token.
Separation = Literal["person", "token"]


class ExactCall(Struct, frozen=True, kw_only=True):
    """The call that an approval is for, and no other.

    ``policy_digest`` is of the server's record, of the rules that cover the tool, and of which of
    them asks: when any of it changes, nobody has approved the call as it would be made now.
    ``rule`` has that in words, with a place in a list that rules of other tools may move.
    """

    task_id: str | None
    server_id: str
    tool_name: str
    arguments_digest: str
    definition_digest: str
    policy_digest: str
    rule: str
    person: str | None
    caller: str | None
    token_id: str | None

    def differences(self, other: ExactCall) -> tuple[str, ...]:
        """Name what is not the same."""
        if self == other:
            return ()
        return tuple(name for name in BOUND if getattr(self, name) != getattr(other, name))

    @property
    def bound(self) -> tuple[str | None, ...]:
        """Return all that has to be the same."""
        return tuple(getattr(self, name) for name in BOUND)

    @property
    def asker(self) -> tuple[str | None, ...]:
        """Return whose call it is."""
        return self.task_id, self.token_id, self.person, self.caller


#: What an approval is bound to.
BOUND = tuple(name for name in ExactCall.__struct_fields__ if name != "rule")


class ApprovalRequest(Struct, frozen=True, kw_only=True):
    """What a person is asked: who wants to call what, with which arguments, and by which rule.

    ``payload`` are the very bytes that will be sent, ``definition`` the tool as its server lists
    it. With ``approval_id`` the answer to that question is wanted, and no other is asked.
    """

    request_id: str
    session_id: str
    caller: str | None
    task_id: str | None
    server: str
    tool: str
    arguments: Mapping[str, Any]
    arguments_digest: str
    definition_digest: str
    revision: int
    rule: str
    policy_digest: str = ""
    person: str | None = None
    token_id: str | None = None
    #: Who made that token.
    maker: str | None = None
    payload: bytes = b"{}"
    definition: JsonObject = {}
    approval_id: str | None = None

    @property
    def call(self) -> ExactCall:
        """Return what the answer will be bound to."""
        return ExactCall(
            task_id=self.task_id,
            server_id=self.server,
            tool_name=self.tool,
            arguments_digest=self.arguments_digest,
            definition_digest=self.definition_digest,
            policy_digest=self.policy_digest,
            rule=self.rule,
            person=self.person,
            caller=self.caller,
            token_id=self.token_id,
        )


class Approved(Struct, frozen=True):
    """Somebody agreed to this very call; it leaves when that was claimed.

    There is no id where a function of the program was asked: nobody else can use its answer.
    """

    call: ExactCall
    approval_id: str | None = None


class Denied(Struct, frozen=True):
    """Somebody said no, or nobody may be asked; ``reason`` is in words."""

    reason: str
    approval_id: str | None = None


class Waiting(Struct, frozen=True):
    """Nobody has decided on this question yet."""

    approval_id: str
    expires_at: float | None


class Unasked(Struct, frozen=True):
    """There is nobody to ask, or nobody who answers, and so no question to come back to."""

    approval_id: None = None


Answer: TypeAlias = Approved | Denied | Waiting | Unasked
OnWaiting: TypeAlias = Callable[[Waiting], None]


class Asking(Struct, frozen=True, kw_only=True):
    """What a caller wants to happen where a call needs approval.

    ``wait`` is for how many seconds it waits, None until the question's own deadline; ``told`` is
    called once when there is a question that is waited for. ``approval_id``: see ApprovalRequest.
    """

    wait: float | None = None
    told: OnWaiting | None = None
    approval_id: str | None = None


WAIT = Asking()
RETURN = Asking(wait=0.0)
#: How ``Session.call`` is told: by a word, or exactly.
Approving: TypeAlias = Literal["wait", "return"] | Asking


def asking_of(approving: Approving) -> Asking:
    """Return what a word means; raise ValueError for another word."""
    if isinstance(approving, Asking):
        return approving
    if approving not in ("wait", "return"):
        raise ValueError(f"approval: {approving!r} is not one of: wait, return")
    return WAIT if approving == "wait" else RETURN


def waiting_of(outcome: Outcome) -> Waiting | None:
    """Return the question that a call came back with; None where there is nothing to wait for."""
    error = outcome.error
    if error is None or error.code != "mcp_approval_required":
        return None
    details = error.details or {}
    id, expires_at = details.get("approval_id"), details.get("expires_at")
    if not isinstance(id, str):
        return None
    return Waiting(id, expires_at if isinstance(expires_at, int | float) else None)


class Decider(Struct, frozen=True, kw_only=True):
    """Who decides: by name, and by token and person where these are known."""

    name: str
    token_id: str | None = None
    person: str | None = None
    #: Who made that token.
    maker: str | None = None


class Decided(Struct, frozen=True, kw_only=True):
    """What somebody said, when, and whether it was on a call of their own."""

    verb: Verb
    by: str
    token_id: str | None
    person: str | None
    at: float
    reason: str = ""
    self_approved: bool = False


class Approval(Struct, frozen=True, kw_only=True):
    """One question and what became of it.

    ``digest`` is of what is shown to whoever decides: arguments, definition and call. ``reason``
    says why it is denied, withdrawn or void.
    """

    id: str
    state: ApprovalState
    call: ExactCall
    session_id: str
    request_id: str
    revision: int
    maker: str | None
    asked_at: float
    expires_at: float
    digest: str
    decided: Decided | None = None
    reason: str = ""
    #: The call that claimed it.
    claimed_by: str | None = None
    #: Whether the hook knows of it, and leaves it to others.
    told: bool = False
    #: The node of another process that asked, then the one that claimed; None for this process.
    node: str | None = None


class Shown(Struct, frozen=True):
    """What is shown of a question while it can still be used: the exact bytes."""

    arguments: bytes
    definition: bytes
