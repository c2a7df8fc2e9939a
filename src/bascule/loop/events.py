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
    """A tool is being called. ``server`` is empty for a name that nobody offered."""

    call_id: str
    name: str
    server: str = ""
    tool: str = ""


class CallReport(CallStarted, frozen=True, kw_only=True):
    """How a call ended. One that was cancelled has no duration, and may have been carried out."""

    status: CallStatus = "cancelled"
    error: ErrorCode | None = None
    duration_ms: float | None = None
    request_id: str = ""


class CallFinished(Struct, frozen=True):
    """A tool has answered."""

    report: CallReport


LoopEvent: TypeAlias = Began | Delta | CallStarted | CallFinished
Tell: TypeAlias = Callable[[LoopEvent], Awaitable[None]]


class Conclusion(Struct, frozen=True, kw_only=True):
    """How a conversation ended.

    ``tool_calls`` are calls of the caller's own tools, for the caller to make. ``appended`` is what
    the loop has added to the history, so that a caller who comes back can be understood.
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


async def unheard(event: LoopEvent) -> None:
    """Listen to nothing."""
    del event
