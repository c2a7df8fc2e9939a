"""The bodies of the tools API: a call and its outcome, the tools, a part of an output, an approval.

``Progress`` (``model.call``) and ``Explanation`` (``model.explanation``) are sent as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from bascule.model.approval import RETURN, ApprovalState, Asking, OnWaiting
from bascule.model.call import NO_LIMITS, CallLimits
from bascule.model.code import ErrorCode
from bascule.model.explanation import Explanation
from bascule.model.json import JsonObject, JsonValue
from bascule.model.outcome import Failed, Failure, Outcome, Success, Truncation, shown_error
from bascule.model.session import OutputBytes
from bascule.model.task import TaskBudgets
from bascule.model.tool import ToolDescriptor

_MAX_MILLISECONDS = 86_400_000
_MAX_OUTPUT_BYTES = 104_857_600
_MAX_NAME = 512
_UNLIMITED = (None, None, None, None)
#: For how long one request may wait for somebody's approval.
MAX_WAIT_MS = 600_000
Milliseconds = Annotated[int, Meta(ge=1, le=_MAX_MILLISECONDS)]


class CallBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a caller sends: the tool by the name a model uses, its arguments, and own limits.

    ``max_tool_output_bytes`` is the record's name for ``max_output_bytes``: the lower one counts.
    Where approval is needed, the call waits for it for ``approval_wait_ms``; with ``approval_id``
    it uses the answer to that question, and asks no other.
    """

    name: Annotated[str, Meta(min_length=1, max_length=_MAX_NAME)]
    arguments: JsonObject = {}
    timeout_ms: Milliseconds | None = None
    idle_timeout_ms: Milliseconds | None = None
    max_output_bytes: Annotated[int, Meta(ge=0, le=_MAX_OUTPUT_BYTES)] | None = None
    max_tool_output_bytes: OutputBytes | None = None
    approval_wait_ms: Annotated[int, Meta(ge=0, le=MAX_WAIT_MS)] | None = None
    approval_id: Annotated[str, Meta(min_length=1, max_length=64)] | None = None

    @classmethod
    def of(cls, name: str, arguments: JsonObject, limits: CallLimits) -> CallBody:
        cap = limits.max_output_bytes
        return cls(
            name=name,
            arguments=arguments,
            timeout_ms=_milliseconds(limits.timeout),
            idle_timeout_ms=_milliseconds(limits.idle_timeout),
            max_output_bytes=None if cap is None else min(max(cap, 0), _MAX_OUTPUT_BYTES),
        )

    @property
    def limits(self) -> CallLimits:
        """Return the caller's own limits; they only lower what the record gives."""
        given = self.max_output_bytes, self.max_tool_output_bytes
        if (self.timeout_ms, self.idle_timeout_ms, *given) == _UNLIMITED:
            return NO_LIMITS
        caps = [cap for cap in given if cap is not None]
        return CallLimits(
            timeout=_seconds(self.timeout_ms),
            idle_timeout=_seconds(self.idle_timeout_ms),
            max_output_bytes=min(caps, default=None),
        )

    def asking(self, told: OnWaiting | None = None) -> Asking:
        """Return what is to happen where the call needs approval: unless it says so, no wait."""
        if not self.approval_wait_ms and self.approval_id is None:
            return RETURN
        wait = (self.approval_wait_ms or 0) / 1000
        return Asking(wait=wait, told=told, approval_id=self.approval_id)


class OwnCallBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call of a tool of the caller's own that has ended, as the caller tells it.

    ``code`` is absent where it succeeded. Of the arguments, their shape and digest are written.
    """

    name: Annotated[str, Meta(min_length=1, max_length=_MAX_NAME)]
    arguments: JsonObject = {}
    code: ErrorCode | None = None
    output_bytes: Annotated[int, Meta(ge=0, le=_MAX_OUTPUT_BYTES)] = 0
    duration_ms: Annotated[float, Meta(ge=0, le=_MAX_MILLISECONDS)] = 0.0

    @classmethod
    def of(
        cls, name: str, arguments: Mapping[str, Any] | None, outcome: Outcome, seconds: float
    ) -> OwnCallBody:
        """Return what is told of a call; what is beyond the limits is told as the limit."""
        size = len(outcome.text.encode("utf-8", "replace"))
        return cls(
            name=name[:_MAX_NAME],
            arguments=dict(arguments or {}),
            code=None if outcome.error is None else outcome.error.code,
            output_bytes=min(size, _MAX_OUTPUT_BYTES),
            duration_ms=min(max(seconds, 0.0) * 1000, _MAX_MILLISECONDS),
        )


class OwnCallNoted(Struct, frozen=True, kw_only=True):
    """Under which id a call of the caller's own tool was written down."""

    request_id: str
    revision: int


class OutcomeBody(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of a call: the same fields whatever it was, and warnings only if there are any.

    A result that was cut is ``ok`` and says in ``error`` that it was cut.
    """

    ok: bool
    text: str
    structured: JsonValue
    content: tuple[JsonObject, ...]
    error: Failure | None
    truncated: Truncation | None
    request_id: str
    revision: int
    warnings: tuple[str, ...] = ()
    extra: JsonObject = {}

    @classmethod
    def of(cls, outcome: Outcome) -> OutcomeBody:
        """Return an outcome as it is sent."""
        return cls(
            ok=outcome.ok,
            text=outcome.text,
            structured=outcome.structured,
            content=outcome.content,
            error=shown_error(outcome),
            truncated=outcome.truncated,
            request_id=outcome.request_id,
            revision=outcome.revision,
            warnings=outcome.warnings,
            extra=outcome.extra,
        )

    @property
    def outcome(self) -> Outcome:
        """Return the outcome as the caller's own object."""
        said = {name: getattr(self, name) for name in Success.__struct_fields__}
        if self.ok or self.error is None:
            return Success(**said)
        return Failed(error=self.error, **said)


class WaitingBody(Struct, frozen=True, kw_only=True):
    """The event ``approval`` of a call's stream: which question it waits for, and until when."""

    approval_id: str
    expires_at: str | None


class DecidedBody(Struct, frozen=True, kw_only=True):
    """Who decided, when, and why."""

    by: str
    at: str | None
    reason: str


class AskedBody(Struct, frozen=True, kw_only=True):
    """What became of a question, for whoever asked it; ``reason`` says why it came to its end."""

    id: str
    state: ApprovalState
    expires_at: str | None
    server: str
    tool: str
    reason: str
    decided: DecidedBody | None


class ToolBody(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One tool: what a model is shown of it, and where it is from.

    ``definition`` is what the server listed, for callers who ask for it.
    """

    name: str
    description: str
    input_schema: JsonObject
    server: str
    tool: str
    output_schema: JsonValue
    annotations: JsonValue
    digest: str
    definition: JsonObject = {}

    @property
    def descriptor(self) -> ToolDescriptor:
        """Return the tool as the caller's own object."""
        return ToolDescriptor(
            server_id=self.server,
            name=self.tool,
            model_name=self.name,
            description=self.description,
            input_schema=self.input_schema,
            output_schema=self.output_schema,
            annotations=self.annotations,
            definition=self.definition,
            digest=self.digest,
        )


class ToolsBody(Struct, frozen=True, kw_only=True):
    """The tools of a session, and, if asked for, the decision on everything considered."""

    revision: int
    tools: tuple[ToolBody, ...]
    warnings: tuple[str, ...]
    explanations: tuple[Explanation, ...] | UnsetType = UNSET


class SessionBody(Struct, frozen=True, kw_only=True):
    """What counts for a session besides its tools: what its task leaves to one conversation."""

    revision: int
    budgets: TaskBudgets


class OutputBody(Struct, frozen=True, kw_only=True):
    """A part of an output that was cut, from the byte ``start`` on."""

    handle: str
    start: int
    text: str


def _milliseconds(seconds: float | None) -> int | None:
    """Return a time as the API takes it; one that is up already is the shortest there is."""
    if seconds is None:
        return None
    return min(max(math.ceil(seconds * 1000), 1), _MAX_MILLISECONDS)


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
