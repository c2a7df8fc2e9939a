"""The record of one call: whatever way it ends, it is written down.

An end without an outcome is a cancelled caller, and is written as such. What is written is made
later, by the ledger; what it is made of cannot change any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bascule.audit.events import CallEvent, CallIntent
from bascule.audit.ledger import LedgerUnavailable
from bascule.errors import BasculeError
from bascule.model.approval import Approved
from bascule.model.code import CallStatus, call_status
from bascule.model.decision import Decision, deny
from bascule.model.json import JsonValue, is_object
from bascule.model.outcome import Failed, Failure, Outcome
from bascule.node.bridge.refusal import Refused
from bascule.node.bridge.table import Accepted, Target
from bascule.policy.access import guess_target
from bascule.policy.redact import redact
from bascule.wire.faults import failure_of

if TYPE_CHECKING:
    from bascule.node.bridge.session import Session


_MAX_NAME = 256  # of a name that a model made up
_SMALL = 4096  # bytes of arguments that may wait to be redacted
_decode = msgspec.json.Decoder().decode
_UNDECIDED = deny("", None, "node", "unavailable")  # stands in where nothing was decided


class CallRecord(Struct, eq=False):
    """What is known of a call so far; then, what became of it."""

    session: Session
    name: str
    arguments: Mapping[str, object] | None
    started: float
    request_id: str
    revision: int
    target: Target | None = None
    taken: Accepted | None = None
    decision: Decision | None = None
    #: What somebody agreed to, the question they were asked, and whether it holds room.
    approved: Approved | None = None
    approval_id: str | None = None
    reserved: bool = False
    warnings: list[str] = []
    output_bytes: int = 0
    cut: bool = False
    misfit: bool = False
    status: CallStatus = "cancelled"
    code: str | None = None
    #: Whether its intent was written.
    left: bool = False
    left_at: float = 0.0
    ended_at: float = 0.0
    duration_ms: float = 0.0
    redacted: JsonValue = None
    #: What it was about, if it never found its tool.
    where: tuple[str, str] = ("", "")

    @property
    def token_id(self) -> str | None:
        """Return whose token it is, where there is one."""
        return self.session.token_id

    @property
    def reads(self) -> bool:
        """Say whether the platform classes its tool as one that only reads."""
        return self.target is not None and self.target.grant.read

    def resolved(self, target: Target) -> Target:
        """Note which tool it is."""
        self.target = target
        self.revision = self.session.revision
        return target

    def accepted(self, accepted: Accepted) -> Accepted:
        """Note the arguments as they will be sent."""
        self.taken = accepted
        if accepted.leaks.counts:
            self.warnings.append(f"credentials masked in the arguments: {accepted.leaks}")
        return accepted

    def leaving(self) -> Self:
        """Note that the call is about to leave."""
        if self.approved is not None:
            self.revision = self.session.revision  # it was decided on again after the wait
        self.left_at = self.session.core.clock.now()
        return self

    def intent(self) -> CallIntent:
        """Return what is written of a call that is about to leave."""
        target, accepted, session = self.target, self.taken, self.session
        if target is None or accepted is None:
            raise AssertionError("a call leaves only after it was resolved and accepted")
        return CallIntent(
            self.left_at,
            self.request_id,
            session.session_id,
            session.task_id,
            session.caller,
            session.token_id,
            target.server_id,
            target.tool,
            self.revision,
            accepted.digest,
            self.approved is not None,
            self.approval_id,
            session.person,
        )

    def done(self, outcome: Outcome) -> Outcome:
        """Note how it ended."""
        if type(outcome) is Failed:
            self.code = outcome.error.code
            self.status = call_status(outcome.error.code)
        else:
            self.status = "ok"
        return outcome

    def failed(self, error: BasculeError) -> Outcome:
        """Turn an error into the outcome its caller gets."""
        if self.target is None:
            self.revision = self.session.revision
        if isinstance(error, Refused):
            self.decision = error.decision
            problem: Failure = error.failure
        else:
            if isinstance(error, LedgerUnavailable) and self.target is not None:
                target = self.target
                self.decision = deny(target.server_id, target.tool, "node", "ledger_unavailable")
            problem = self._judged(failure_of(error))
        return self.done(
            Failed(
                error=self.session.core.presentable(problem),
                request_id=self.request_id,
                revision=self.revision,
                warnings=tuple(self.warnings),
            )
        )

    def _judged(self, problem: Failure) -> Failure:
        """A call that timed out may have happened: only what does no harm twice may be repeated."""
        if problem.code == "mcp_timeout" and self.target is not None:
            return replace(problem, retryable=self.target.grant.idempotent)
        return problem

    def leave(self) -> None:
        """Give back what is held; a record alone holds nothing."""

    def end(self) -> None:
        """Give back what is held, count the call, and leave it to the ledger."""
        if self.reserved:
            self.leave()
        core, target, accepted = self.session.core, self.target, self.taken
        self.ended_at = core.clock.now()
        self.duration_ms = milliseconds = (core.clock.monotonic() - self.started) * 1000
        if accepted is None or len(accepted.payload) > _SMALL:
            arguments = self.arguments if accepted is None else accepted.arguments
            self.redacted = self._redacted(arguments)
        seen = self.code if self.status != "cancelled" else "cancelled"
        if target is None:
            self.where = self._about()
            core.count_refused(*self.where, seen or "")
        else:
            target.stats.observe(seen, milliseconds, self.output_bytes)
            if self.cut or self.misfit:
                target.stats.cut += self.cut
                target.stats.misfits += self.misfit
        if self.decision is not None and not self.decision.allowed:
            server = self.where[0] if target is None else target.server_id
            core.count_denied(server, self.decision.reason)
        core.ledger.outcome(self)

    def _about(self) -> tuple[str, str]:
        """Say what a call was about that never found its tool."""
        if self.decision is not None and self.decision.tool is not None:
            return self.decision.server[:_MAX_NAME], self.decision.tool[:_MAX_NAME]
        return guess_target(self.session.effective, self.name[:_MAX_NAME])

    def event(self) -> CallEvent:
        """Return what is written of the call."""
        session, target, accepted, decision = self.session, self.target, self.taken, self.decision
        server, tool = self.where
        if target is not None:
            server, tool, decision = (
                target.server_id,
                target.tool,
                decision or target.grant.decision,
            )
        redacted, digest = self.redacted, None
        if accepted is not None:
            digest = accepted.digest
            if redacted is None:
                redacted = self._redacted(_decode(accepted.payload))
        return CallEvent(
            self.ended_at,
            self.request_id,
            session.session_id,
            session.task_id,
            session.caller,
            session.token_id,
            server,
            tool,
            self.revision,
            self.status,
            self.code,
            (decision or _UNDECIDED).layer,
            "" if decision is None else decision.reason,
            (decision or _UNDECIDED).rule,
            self.duration_ms,
            self.output_bytes,
            redacted,
            digest,
            self.approval_id,
            session.person,
        )

    def _redacted(self, arguments: object) -> JsonValue:
        if not is_object(arguments):
            return None
        if self.target is None:
            return redact(arguments, "shape")
        mode = self.target.grant.record.hygiene.redact
        return redact(arguments, mode, self.session.core.caller.reference_values)


def declined(
    session: Session, name: str, arguments: Mapping[str, object] | None, problem: Failure
) -> Outcome:
    """Write down a call that is not made, and return it as failed."""
    decision = session.explain(name).decision
    started, id = session.core.clock.monotonic(), session.next_request_id()
    record = CallRecord(session, name, arguments, started, id, session.revision)
    outcome = record.failed(Refused(problem, None if decision.allowed else decision))
    record.end()
    return outcome
