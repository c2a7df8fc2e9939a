"""Calls of tools that are the caller's own and ran where the caller is: written down and counted.

What is known of one is its caller's word; no policy decided on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from bascule.audit.events import OWN_TOOL, CallEvent
from bascule.model.code import CallStatus, ErrorCode, call_status
from bascule.model.json import JsonObject, JsonValue
from bascule.model.outcome import Outcome
from bascule.node.bridge.table import Accepted
from bascule.policy.leaks import NOTHING
from bascule.policy.redact import redact
from bascule.wire.api.tools import OwnCallBody
from bascule.wire.strict_json import StrictJsonError, dumps

if TYPE_CHECKING:
    from bascule.node.bridge.session import Session

_MAX_NAME = 256


class OwnCall(Struct, frozen=True, kw_only=True, eq=False):
    """A call of an own tool that has ended, as the ledger takes it."""

    session: Session
    tool: str
    arguments: JsonValue
    arguments_digest: str | None
    code: ErrorCode | None
    output_bytes: int
    duration_ms: float
    request_id: str
    revision: int
    ended_at: float
    #: It was never sent anywhere.
    left: bool = False

    @property
    def status(self) -> CallStatus:
        return call_status(self.code)

    @property
    def token_id(self) -> str | None:
        return self.session.token_id

    def event(self) -> CallEvent:
        """Return what is written of the call."""
        session = self.session
        return CallEvent(
            self.ended_at,
            self.request_id,
            session.session_id,
            session.task_id,
            session.caller,
            session.token_id,
            "",
            self.tool,
            self.revision,
            self.status,
            self.code,
            "caller",
            OWN_TOOL,
            "",
            self.duration_ms,
            self.output_bytes,
            self.arguments,
            self.arguments_digest,
            None,
            session.person,
        )


def note_own(session: Session, told: OwnCallBody) -> OwnCall:
    """Write a call down and count it."""
    core = session.core
    call = OwnCall(
        session=session,
        tool=core.presentable_text(told.name)[:_MAX_NAME],
        arguments=redact(told.arguments, "shape", core.caller.reference_values),
        arguments_digest=_digest(told.arguments, session.digest_key),
        code=told.code,
        output_bytes=told.output_bytes,
        duration_ms=told.duration_ms,
        request_id=session.next_request_id(),
        revision=session.revision,
        ended_at=core.clock.now(),
    )
    core.metrics.own(call.tool).observe(told.code, told.duration_ms, told.output_bytes)
    core.ledger.outcome(call)
    return call


def noted(outcome: Outcome, request_id: str, revision: int) -> Outcome:
    """Return an outcome under the id that it is written down with."""
    return replace(outcome, request_id=request_id, revision=revision)


def unnoted(outcome: Outcome, why: object) -> Outcome:
    """Return an outcome that could not be written down, with a warning that says so."""
    warning = f"the call of an own tool was not written down: {why}"
    return replace(outcome, warnings=(*outcome.warnings, warning))


def _digest(arguments: JsonObject, key: bytes) -> str | None:
    try:
        return Accepted(arguments, dumps(arguments), NOTHING, key).digest
    except StrictJsonError:
        return None
