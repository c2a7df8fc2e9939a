"""What a conversation tells of itself while it runs, and what it ends with.

Below: plain values. Above: ``turns.py`` tells them; a door streams them, the command line prints
them. Whoever only wants the answer listens to nothing and takes the ``Conclusion``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from msgspec import Struct

from bascule.loop.budgets import BudgetName
from bascule.model.code import CallStatus, ErrorCode
from bascule.model.json import JsonObject


class Began(Struct, frozen=True):
    """The model has begun to answer: the id, time and model of the whole response."""

    head: JsonObject


class Delta(Struct, frozen=True):
    """A part of the answer, in the fields of a chunk's delta."""

    fields: JsonObject
    logprobs: Any = None


class CallStarted(Struct, frozen=True, kw_only=True):
    """A tool is being called. ``server`` is empty for a name that nobody offered."""

    call_id: str
    name: str
    server: str = ""
    tool: str = ""


class CallReport(Struct, frozen=True, kw_only=True):
    """How a call ended. One that was cancelled has no duration, and may have been carried out."""

    call_id: str
    name: str
    server: str
    tool: str
    status: CallStatus
    error: ErrorCode | None
    duration_ms: float | None
    request_id: str


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
    logprobs: Any = None
    usage: JsonObject | None = None
    appended: tuple[JsonObject, ...] = ()
    calls: tuple[CallReport, ...] = ()
    budgets: JsonObject = {}
    budget_hit: BudgetName | None = None
    iterations: int = 0
    revision: int = 0
    warnings: tuple[str, ...] = ()


def cancelled(call: CallStarted) -> CallReport:
    """Return what is known of a call that has begun, until it ends: nothing, if it never does."""
    return CallReport(
        call_id=call.call_id,
        name=call.name,
        server=call.server,
        tool=call.tool,
        status="cancelled",
        error=None,
        duration_ms=None,
        request_id="",
    )


async def unheard(event: LoopEvent) -> None:
    """Listen to nothing."""
    del event
