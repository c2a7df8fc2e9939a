"""What a conversation tells of itself while it runs, and what it ends with.

Whoever only wants the answer listens to nothing and takes the ``Conclusion``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct

from bascule.loop.budgets import BudgetName
from bascule.model.code import CallStatus, ErrorCode
from bascule.model.json import JsonObject, JsonValue


class Began(Struct, frozen=True):
    """The model has begun to answer: the id, time and model of the whole response."""

    head: JsonObject


class Delta(Struct, frozen=True):
    """A part of the answer, in the fields of a chunk's delta."""

    fields: JsonObject
    logprobs: JsonValue = None


class CallStarted(Struct, frozen=True, kw_only=True):
    """A tool is being called.

    ``server`` is empty for a tool of the caller's own, and for a name that nobody offered; that has
    no ``tool`` either.
    """

    call_id: str
    name: str
    server: str = ""
    tool: str = ""


class CallShown(CallStarted, frozen=True, kw_only=True):
    """A tool is being called, with what it is given, in which turn: for whoever shows calls."""

    turn: int
    #: The model's text, cut if long.
    arguments: str


class CallReport(CallStarted, frozen=True, kw_only=True):
    """How a call ended. One that was cancelled has no duration, and may have been carried out."""

    status: CallStatus = "cancelled"
    error: ErrorCode | None = None
    duration_ms: float | None = None
    request_id: str = ""


class ApprovalWaiting(CallStarted, frozen=True, kw_only=True):
    """A call waits for somebody to approve it. ``arguments`` is the model's text, cut if long."""

    approval_id: str
    expires_at: float
    arguments: str = ""


class CallFinished(Struct, frozen=True):
    """A tool has answered. ``result`` is what the model reads, cut, for whoever shows calls."""

    report: CallReport
    result: str | None = None


class TurnParked(Struct, frozen=True):
    """The turn is parked. ``text`` is the part of the answer that says so."""

    text: str


LoopEvent: TypeAlias = Began | Delta | CallStarted | ApprovalWaiting | CallFinished | TurnParked
Tell: TypeAlias = Callable[[LoopEvent], Awaitable[None]]


class AwaitedApproval(Struct, frozen=True, kw_only=True):
    """A question that a parked turn waits for."""

    approval_id: str
    expires_at: float
    server: str
    tool: str


class Paused(Struct, frozen=True):
    """A turn that was parked: by what it is resumed, and what it waits for."""

    resume: str
    approvals: tuple[AwaitedApproval, ...]


class Conclusion(Struct, frozen=True, kw_only=True):
    """How a conversation ended.

    ``tool_calls`` are calls of the caller's own tools, for the caller to make. ``appended`` is what
    the loop has added to the history, so that a caller who comes back can be understood. One that
    is ``paused`` goes on when it is resumed.
    """

    head: JsonObject
    content: str | None
    finish_reason: str
    refusal: str | None = None
    tool_calls: tuple[JsonObject, ...] = ()
    extra: JsonObject = {}
    logprobs: JsonValue = None
    usage: JsonObject | None = None
    appended: tuple[JsonObject, ...] = ()
    calls: tuple[CallReport, ...] = ()
    budgets: JsonObject = {}
    budget_hit: BudgetName | None = None
    iterations: int = 0
    revision: int = 0
    warnings: tuple[str, ...] = ()
    paused: Paused | None = None


async def unheard(event: LoopEvent) -> None:
    """Listen to nothing."""
    del event
