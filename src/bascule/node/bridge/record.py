"""The record of one call: whatever way it ends, it is written down.

An exit without an outcome is a cancelled caller, and is written as such.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from bascule.audit.events import CallEvent, CallIntent
from bascule.errors import BasculeError
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
_UNDECIDED = deny("", None, "node", "unavailable")  # stands in where nothing was decided


class CallRecord:
    """What is known of a call so far."""

    __slots__ = (
        "_accepted", "_arguments", "_decision", "_name", "_outcome", "_session", "_started",
        "_target", "cut", "misfit", "output_bytes", "request_id", "revision", "warnings",
    )  # fmt: skip

    def __init__(self, session: Session, name: str, arguments: Mapping[str, object] | None) -> None:
        self._session = session
        self._name = name
        self._arguments = arguments
        self._target: Target | None = None
        self._accepted: Accepted | None = None
        self._decision: Decision | None = None
        self._outcome: Outcome | None = None
        self._started = session.core.clock.monotonic()
        self.request_id = session.next_request_id()
        self.revision = session.revision
        self.output_bytes = 0
        self.cut = self.misfit = False
        self.warnings: list[str] = []

    def __enter__(self) -> Self:
        return self

    def resolved(self, target: Target) -> Target:
        """Note which tool it is."""
        self._target = target
        self._decision = target.grant.decision
        self.revision = self._session.revision
        return target

    def accepted(self, accepted: Accepted) -> Accepted:
        """Note the arguments as they will be sent."""
        self._accepted = accepted
        if accepted.leaks.counts:
            self.warnings.append(f"credentials masked in the arguments: {accepted.leaks}")
        return accepted

    def intent(self, *, approved: bool) -> CallIntent:
        """Return what is written when the call is about to leave."""
        target, accepted, session = self._target, self._accepted, self._session
        if target is None or accepted is None:
            raise AssertionError("a call leaves only after it was resolved and accepted")
        if approved:
            self.revision = session.revision  # it was decided on again after the wait
        return CallIntent(
            timestamp=session.core.clock.now(),
            request_id=self.request_id,
            session_id=session.session_id,
            server_id=target.server_id,
            tool_name=target.tool,
            revision=self.revision,
            arguments_digest=accepted.digest,
            approved=approved,
        )

    def done(self, outcome: Outcome) -> Outcome:
        """Note how it ended."""
        self._outcome = outcome
        return outcome

    def failed(self, error: BasculeError) -> Outcome:
        """Turn an error into the outcome its caller gets."""
        if self._target is None:
            self.revision = self._session.revision
        if isinstance(error, Refused):
            self._decision = error.decision or self._decision
            problem: Failure = error.failure
        else:
            problem = self._judged(failure_of(error))
        return self.done(
            Failed(
                error=self._session.core.presentable(problem),
                request_id=self.request_id,
                revision=self.revision,
                warnings=tuple(self.warnings),
            )
        )

    def _judged(self, problem: Failure) -> Failure:
        """A call that timed out may have happened: only what does no harm twice may be repeated."""
        if problem.code == "mcp_timeout" and self._target is not None:
            return replace(problem, retryable=self._target.grant.idempotent)
        return problem

    def __exit__(self, kind: object, error: object, *_: object) -> None:
        core, target = self._session.core, self._target
        duration = (core.clock.monotonic() - self._started) * 1000
        outcome = self._outcome
        failure = None if outcome is None else outcome.error
        code = None if failure is None else failure.code
        seen = "cancelled" if outcome is None else code
        if target is None:
            server, tool = self._where()
            core.count_refused(server, tool, seen or "")
        else:
            server, tool = target.server_id, target.tool
            target.stats.observe(
                status_code=seen, milliseconds=duration, output_bytes=self.output_bytes
            )
            target.stats.cut += self.cut
            target.stats.misfits += self.misfit
        if self._decision is not None and not self._decision.allowed:
            core.count_denied(server, self._decision.reason)
        status = "cancelled" if outcome is None else call_status(code)
        core.ledger.outcome(self._event(status, code, duration, server, tool))

    def _where(self) -> tuple[str, str]:
        """Say what a call was about that never found its tool."""
        if self._decision is not None and self._decision.tool is not None:
            return self._decision.server, self._decision.tool
        return guess_target(self._session.effective, self._name[:_MAX_NAME])

    def _event(
        self, status: CallStatus, code: str | None, duration: float, server: str, tool: str
    ) -> CallEvent:
        session, decision, accepted = self._session, self._decision or _UNDECIDED, self._accepted
        return CallEvent(
            session.core.clock.now(),
            self.request_id,
            session.session_id,
            session.task_id,
            session.caller,
            server,
            tool,
            self.revision,
            status,
            code,
            decision.layer,
            decision.reason if self._decision is not None else "",
            decision.rule,
            duration,
            self.output_bytes,
            self._redacted(),
            None if accepted is None else accepted.digest,
        )

    def _redacted(self) -> JsonValue:
        arguments = self._accepted.arguments if self._accepted is not None else self._arguments
        if not is_object(arguments):
            return None
        if self._target is None:
            return redact(arguments, "shape")
        mode = self._target.grant.record.hygiene.redact
        return redact(arguments, mode, self._session.core.caller.reference_values)
