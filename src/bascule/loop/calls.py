"""The calls of one turn: read, decided on, made, and answered in their order.

A call that cannot be made is answered like one that failed: with a structured error that the model
reads. One that needs approval waits for a while, and tells so. The session is the bridge; nothing
else reaches a tool.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import asdict, replace

from bascule.clock import Clock
from bascule.errors import ServerUnavailable
from bascule.loop.budgets import Spending
from bascule.loop.deltas import Asked, Turn
from bascule.loop.events import (
    ApprovalWaiting,
    CallFinished,
    CallReport,
    CallShown,
    CallStarted,
    Tell,
)
from bascule.loop.offer import Offer, offered_name
from bascule.loop.own_tools import OwnTools
from bascule.loop.parking import Answered, WaitingCall
from bascule.loop.time_budget import TimeBudget
from bascule.model.approval import Asking, Waiting, waiting_of
from bascule.model.code import call_status
from bascule.model.json import JsonObject, JsonValue
from bascule.model.outcome import Failed, Failure, Outcome, failure, shown_error
from bascule.node.contract import ToolSession
from bascule.policy.naming import no_such_tool
from bascule.wire.arguments import NotAnObject, read_arguments
from bascule.wire.faults import failure_of, tool_message
from bascule.wire.strict_json import StrictJsonError

_SHOWN = 200
_SHOWN_ARGUMENTS = 4_000
#: How much is told of arguments and of a result where calls are shown.
SHOWN_CALL = 65_536
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME = 64
#: For how long a conversation that is cancelled waits until its tool is written down, in seconds.
_LAST_WORD = 0.1
_ABANDONED = Failed(
    error=failure("mcp_outcome_unknown", "the conversation ended while the tool ran"),
    request_id="",
    revision=0,
)


class Planned(Struct, frozen=True, kw_only=True):
    """A call that was read: what it means, or why it will not be made.

    ``server`` is empty for a tool of the caller's own, and for a name that nobody offered; that has
    no ``tool`` either. ``approval_id`` is of the question that the call has waited for before.
    """

    asked: Asked
    name: str
    server: str = ""
    tool: str = ""
    arguments: JsonObject | None = None
    refused: Failure | None = None
    approval_id: str | None = None

    @property
    def is_own(self) -> bool:
        """Say whether it is of a tool of the caller's that runs here."""
        return bool(self.tool) and not self.server


#: What is done with an answer as soon as it is there, before anybody is told.
Settle: TypeAlias = Callable[[CallReport, Answered], Awaitable[None]]


class Caller(Struct, frozen=True, kw_only=True, eq=False):
    """Makes the calls of one conversation."""

    session: ToolSession
    offer: Offer
    spending: Spending
    tell: Tell
    clock: Clock
    time: TimeBudget
    #: Whether the calls of a turn run side by side.
    at_once: bool = True
    own_tools: OwnTools | None = None

    def is_theirs(self, asked: Asked) -> bool:
        """Say whether a call is of a tool that the caller runs elsewhere."""
        return asked.name in self.offer.theirs

    def plan(self, asked: Asked, *, cut: bool) -> Planned:
        """Read a call and reserve room for it."""
        known = None if asked.other is not None else self._offered(asked.name)
        if known is None:
            refused = self._not_offered(asked.name)
            return Planned(asked=asked, name=asked.name[:_SHOWN], refused=refused)
        name, server, tool = known
        try:
            arguments = _arguments(asked.arguments, cut=cut)
        except StrictJsonError as error:
            refused, arguments = failure("mcp_invalid_arguments", f"the arguments {error}"), None
        else:
            refused = self.spending.take(name, arguments)
        return Planned(
            asked=asked,
            name=name,
            server=server,
            tool=tool,
            arguments=arguments,
            refused=refused,
        )

    def _offered(self, asked: str) -> tuple[str, str, str] | None:
        """Return a tool's name for the model, its server and its name there, if it was offered."""
        if asked in self.offer.own:
            return asked, "", asked
        name = offered_name(self.session, self.offer.ours, asked)
        tool = self.offer.ours.get(name)
        return None if tool is None else (name, tool.server_id, tool.name)

    def plan_again(self, waiting: WaitingCall) -> Planned:
        """Read a call that has waited for approval; whether it may be made, the bridge says."""
        return Planned(
            asked=waiting.asked,
            name=waiting.name,
            server=waiting.server,
            tool=waiting.tool,
            arguments=read_arguments(waiting.asked.arguments),
            refused=self.spending.take_again(),
            approval_id=waiting.approval_id,
        )

    async def answer(self, planned: Sequence[Planned], settle: Settle) -> list[Answered]:
        """Make the calls and return their results, in the order of the calls."""
        ready = sum(plan.refused is None for plan in planned)
        share = max(1, self.spending.output_left // max(1, ready))
        if not self.at_once or len(planned) <= 1:
            return [await self._one(plan, share, settle) for plan in planned]
        line = asyncio.Lock()  # in which the caller's own tools wait for each other

        async def one(plan: Planned) -> Answered:
            async with line if plan.is_own else nullcontext():
                return await self._one(plan, share, settle)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(plan)) for plan in planned]
        return [task.result() for task in tasks]

    async def _one(self, plan: Planned, max_output_bytes: int, settle: Settle) -> Answered:
        call = self._started(plan)
        started = self.clock.monotonic()
        await self.tell(call)
        async with _Question(self, plan) as question:
            outcome = await self._outcome(plan, max_output_bytes, question)
        answer = self._answered(plan, outcome)
        report = self._report(call, outcome, started)
        await settle(report, answer)
        shown = _cut(str(answer.message["content"]), SHOWN_CALL) if self._shows else None
        await self.tell(CallFinished(report, shown))
        return answer

    @property
    def _shows(self) -> bool:
        return self.spending.settings.show_calls

    def _started(self, plan: Planned) -> CallStarted:
        call = CallStarted(
            call_id=plan.asked.call_id, name=plan.name, server=plan.server, tool=plan.tool
        )
        if not self._shows:
            return call
        turn = self.spending.used.iterations
        return CallShown(
            **asdict(call), turn=turn, arguments=_cut(plan.asked.arguments, SHOWN_CALL)
        )

    def _answered(self, plan: Planned, outcome: Outcome) -> Answered:
        """Return what the model reads, and count it."""
        text = tool_message(outcome, always_json=self.spending.settings.always_json)
        if plan.arguments is not None and plan.refused is None:
            size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
            self.spending.settle(outcome, size)
        message = {"role": "tool", "tool_call_id": plan.asked.call_id, "content": text}
        waiting = _waiting(plan, outcome)
        return Answered(message=message, warnings=outcome.warnings, waiting=waiting)

    def _report(self, call: CallStarted, outcome: Outcome, started: float) -> CallReport:
        error = shown_error(outcome)
        code = None if outcome.error is None else outcome.error.code
        return CallReport(
            call_id=call.call_id,
            name=call.name,
            server=call.server,
            tool=call.tool,
            status=call_status(code),
            error=None if error is None else error.code,
            duration_ms=round((self.clock.monotonic() - started) * 1000, 3),
            request_id=outcome.request_id,
        )

    async def _outcome(self, plan: Planned, max_output_bytes: int, question: _Question) -> Outcome:
        if plan.refused is None and plan.is_own:
            return await self._ran(plan.name, plan.arguments or {}, max_output_bytes)
        if plan.refused is None:
            return await self.session.call(
                plan.name,
                plan.arguments,
                max_output_bytes=max_output_bytes,
                approval=question.asking,
            )
        if plan.tool:
            return Failed(error=plan.refused, request_id="", revision=self.offer.revision)
        return await self._unoffered(plan.name, plan.refused)

    async def _ran(self, name: str, arguments: JsonObject, max_output_bytes: int) -> Outcome:
        """Run a tool of the caller's own, and have it written down, however it ends."""
        if self.own_tools is None:
            raise AssertionError("only what can be run here is planned")
        started = self.clock.monotonic()
        try:
            outcome = await self.own_tools.run(name, arguments, max_output_bytes=max_output_bytes)
        except asyncio.CancelledError:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORD):
                    await self._note(name, arguments, _ABANDONED, started)
            raise
        return await self._note(name, arguments, outcome, started)

    async def _note(
        self, name: str, arguments: JsonObject, outcome: Outcome, started: float
    ) -> Outcome:
        seconds = self.clock.monotonic() - started
        return await self.session.note_own(name, arguments, outcome, seconds)

    async def _unoffered(self, name: str, refused: Failure) -> Outcome:
        """Answer a call of what was not offered as the bridge would; it is never made.

        What policy denies whatever its server lists may be asked of the bridge itself. A server
        that did not list might do so now: its tool would run without having been offered.
        """
        decision = self.session.explain(name).decision
        denied = not decision.allowed and decision.layer != "node"
        if denied and not decision.names_nothing:
            return await self.session.call(name, {})
        return self.session.decline(name, None, refused)  # so that it is written down

    def _not_offered(self, name: str) -> Failure:
        """Return what to tell a model that calls a tool it was not offered."""
        decision = self.session.explain(name[:_SHOWN]).decision
        if decision.names_nothing:
            return no_such_tool(decision, self.offer.ours.values())
        if decision.layer == "node" and not decision.allowed:
            return failure_of(ServerUnavailable(decision.rule, reason=decision.reason))
        return failure("mcp_policy_denied", f"no tool named {name[:_SHOWN]!r} was offered to you")


class _Question:
    """A call while it is under way: tells, once, that somebody is asked about it."""

    def __init__(self, caller: Caller, plan: Planned) -> None:
        self._caller = caller
        self._plan = plan
        self._telling: asyncio.Future[None] | None = None

    @property
    def asking(self) -> Asking:
        """Return what is to happen where the call needs approval."""
        seconds = self._caller.spending.settings.approval_wait_seconds
        return Asking(wait=seconds, told=self._told, approval_id=self._plan.approval_id)

    def _told(self, waiting: Waiting) -> None:
        plan = self._plan
        event = ApprovalWaiting(
            call_id=plan.asked.call_id,
            name=plan.name,
            server=plan.server,
            tool=plan.tool,
            approval_id=waiting.approval_id,
            expires_at=waiting.expires_at or 0.0,
            arguments=_cut(plan.asked.arguments, _SHOWN_ARGUMENTS),
        )
        self._telling = asyncio.ensure_future(self._caller.tell(event))
        self._caller.time.begin_wait()

    async def __aenter__(self) -> _Question:
        self._caller.time.begin_call()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        telling = self._telling
        self._caller.time.end_call(waited=telling is not None)
        if telling is not None:
            if kind is not None:
                telling.cancel()
                await asyncio.wait({telling})
            else:
                await telling


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _waiting(plan: Planned, outcome: Outcome) -> WaitingCall | None:
    """Return the call, if somebody can still approve it."""
    question = waiting_of(outcome)
    if question is None:
        return None
    return WaitingCall(
        asked=plan.asked,
        name=plan.name,
        server=plan.server,
        tool=plan.tool,
        approval_id=question.approval_id,
        expires_at=question.expires_at or 0.0,
    )


def _arguments(text: str, *, cut: bool) -> JsonObject:
    """Return a call's arguments; one of a model that was cut short has to have some."""
    given = repr(text[:_SHOWN])
    if cut and not text.strip():
        raise StrictJsonError(f"are cut short; given: {given}")
    try:
        return read_arguments(text)
    except NotAnObject as error:
        raise StrictJsonError(f"{error}, not {given}") from None
    except StrictJsonError as error:
        cause = "cut short" if cut else f"not valid JSON: {error}"
        raise StrictJsonError(f"are {cause}; given: {given}") from None


def assistant_message(turn: Turn) -> dict[str, JsonValue]:
    """Return a turn as it stands in the history.

    What an upstream says of its own (thoughts, signatures) stands there too: some refuse a history
    without it. Upstreams choke on calls that are not well formed, so garbled names and arguments
    are put right; their results say what was wrong.
    """
    own = {key: value for key, value in turn.extra.items() if value is not None}
    calls = [*map(call_entry, turn.calls)]
    return {**own, "role": "assistant", "content": turn.text or None, "tool_calls": calls}


def call_entry(asked: Asked) -> JsonObject:
    """Return a call as it stands in a message."""
    arguments = asked.arguments if _is_readable(asked.arguments) else "{}"
    name = _ILLEGAL.sub("_", asked.name)[:_MAX_NAME] or "unnamed"
    return raw_entry(replace(asked, name=name, arguments=arguments))


def raw_entry(asked: Asked) -> JsonObject:
    """Return a call as the model made it, well formed or not."""
    if asked.other is not None:
        return asked.other
    return {
        **asked.extra,
        "id": asked.call_id,
        "type": "function",
        "function": {"name": asked.name, "arguments": asked.arguments},
    }


def _is_readable(arguments: str) -> bool:
    try:
        read_arguments(arguments)
    except StrictJsonError:
        return False
    return bool(arguments.strip())
