"""What is known of one conversation while it runs, and what it comes to.

``turns.py`` carries it on.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias

from msgspec.structs import replace

from bascule.audit.metrics import Metrics
from bascule.clock import Clock
from bascule.errors import BasculeError
from bascule.loop.backend import ChatUpstream, UpstreamFailed
from bascule.loop.budgets import BudgetName, LoopSettings, Spending
from bascule.loop.calls import Caller, assistant_message, call_entry
from bascule.loop.deltas import Turn, text_of
from bascule.loop.events import (
    AwaitedApproval,
    Began,
    CallFinished,
    CallReport,
    CallStarted,
    Conclusion,
    Delta,
    LoopEvent,
    Paused,
    Tell,
    TurnParked,
)
from bascule.loop.history import History
from bascule.loop.offer import NOTHING_OFFERED
from bascule.loop.own_tools import OwnTools
from bascule.loop.parking import Answered, ParkedTurn, Parking, paused_words
from bascule.loop.request import ChatRequest
from bascule.loop.time_budget import TimeBudget
from bascule.model.json import JsonObject
from bascule.node.contract import ToolSession

WaitTurn: TypeAlias = Callable[[], Awaitable[None]]
_GRACE = 1.0
_SERVER_ERROR = 500
_JSON_BEGINS = frozenset("{[")
#: The turn of a conversation that a budget ended.
_CUT_SHORT = Turn(text="", calls=(), finish_reason="length")
_SILENCE: Mapping[BudgetName, str] = {
    "max_iterations": "(No answer: the model kept calling tools until its turns were used up.)",
    "max_total_tool_calls": "(No answer: the tool calls of this request are used up.)",
    "max_output_bytes": "(No answer: the tools gave more than this request may read.)",
    "max_seconds": "(No answer: the time for this request is up.)",
    "max_repeats": "(No answer: the model kept repeating the same call.)",
}


class Conversation:
    """What is known of one conversation while it runs."""

    def __init__(
        self,
        chat: ChatRequest,
        upstream: ChatUpstream,
        settings: LoopSettings,
        tell: Tell,
        clock: Clock,
        wait_turn: WaitTurn,
    ) -> None:
        self.chat = chat
        self.upstream = upstream
        self.offer = NOTHING_OFFERED
        self.spending = Spending(settings)
        self.clock = clock
        self.wait_turn = wait_turn
        self.history = History(chat.messages)
        self._wants_json = chat.wants_json
        self.usage: JsonObject | None = None
        self.warnings: list[str] = []
        self.handed_back: tuple[JsonObject, ...] = ()
        self._handed_back_for = "tool_calls"
        self.parking: Parking | None = None
        self.paused: Paused | None = None
        self.time = TimeBudget(settings.max_seconds, settings.approval_wait_seconds, clock)
        self._resumed = self.spending.used
        #: Questions of this turn that calls have stopped to wait for.
        self._questions: list[str] = []
        self._tell = tell
        self._head: JsonObject = {}
        self._calls: dict[tuple[int, str], CallReport] = {}
        self._shown: list[str] = []
        self._spoke = False
        self._withheld: list[Delta] = []
        #: Whether this turn's text is passed on as it comes; None: that is not known yet.
        self._flows: bool | None = None
        self._heard = False

    @property
    def seconds_left(self) -> float:
        """Return how long an upstream may take: a little beyond the end, which comes from here."""
        return self.time.left + _GRACE

    @property
    def is_over(self) -> bool:
        """Say whether it is the caller's turn: to make its own calls, or to resume."""
        return bool(self.handed_back) or self.paused is not None

    def count(self, metrics: Metrics) -> None:
        """Count what this request has used."""
        used, before = self.spending.used, self._resumed
        if used.iterations:
            metrics.conversed(
                iterations=used.iterations - before.iterations,
                calls=used.calls - before.calls,
                budget=self.spending.hit,
            )

    def caller_of(self, session: ToolSession, own_tools: OwnTools | None) -> Caller:
        """Return who makes this conversation's calls."""
        return Caller(
            session=session,
            offer=self.offer,
            spending=self.spending,
            tell=self.tell,
            clock=self.clock,
            time=self.time,
            at_once=self.chat.parallel is not False,
            own_tools=own_tools,
        )

    @property
    def reports(self) -> tuple[CallReport, ...]:
        """Return what became of the calls, in their order."""
        return tuple(self._calls.values())

    def may_ask_again(self, error: UpstreamFailed) -> bool:
        """Say whether a failed request is worth repeating, and can be: nothing of it was shown."""
        passing = error.status in {None, 408, 429} or (error.status or 0) >= _SERVER_ERROR
        return passing and not error.timed_out and bool(self._calls) and not self._heard

    async def tell(self, event: LoopEvent) -> None:
        """Tell whoever listens; write calls into the answer if that was asked for."""
        report = event.report if isinstance(event, CallFinished) else None
        if isinstance(event, CallStarted):
            begun = CallReport(
                call_id=event.call_id, name=event.name, server=event.server, tool=event.tool
            )
            self._calls[self.spending.used.iterations, event.call_id] = begun
        elif report is not None:
            self._calls[self.spending.used.iterations, report.call_id] = report
        await self._tell(event)
        shows = self.spending.settings.show_activity and not self._wants_json
        if shows and report is not None:
            what = f"{report.server}/{report.tool}" if report.server else report.name
            how = report.error or "ok"
            await self._show(f"\n[{what}: {how}, {report.duration_ms or 0:.0f} ms]\n")

    @property
    def begun(self) -> bool:
        """Say whether a model has said something."""
        return bool(self._head)

    async def begin(self, head: JsonObject) -> None:
        """Note whose answer it is, the first time a model says something."""
        if not self._head:
            self._head = {
                "id": head.get("id") or f"chatcmpl-{secrets.token_hex(12)}",
                "created": int(self.clock.now()),
                "model": self.chat.model,
                **head,
            }
            await self._tell(Began(self._head))

    def new_turn(self) -> None:
        """Note that what comes now is another turn's."""
        self._spoke = False
        self._withheld = []
        self._flows = not self._wants_json or (None if self.chat.stream else False)
        self._heard = False

    async def say(self, delta: Delta) -> None:
        """Pass on what the model says."""
        self._heard = True
        text = delta.fields.get("content")
        if isinstance(text, str) and text:
            if not self._spoke and self._shown and not self._wants_json:
                text = f"\n\n{text}"  # a new turn begins a new paragraph
                delta = replace(delta, fields={**delta.fields, "content": text})
            self._spoke = True
            if self._flows and not self._withheld:
                self._shown.append(text)
                await self._tell(delta)
            else:
                await self._withhold(delta)
        elif delta.fields or delta.logprobs:
            await self._tell(delta)

    async def _withhold(self, delta: Delta) -> None:
        """Keep text back until it may be passed on: what must be JSON has no words before it.

        Words beside calls are no part of such an answer. Whether there are calls shows at the end
        of a turn; text that looks like JSON is not kept waiting for that.
        """
        self._withheld.append(delta)
        begins = text_of(delta.fields["content"]).lstrip()[:1]
        if self._flows is None and begins:
            self._flows = begins in _JSON_BEGINS
        if self._flows:
            await self._release()

    async def _release(self) -> None:
        withheld, self._withheld = self._withheld, []
        for delta in withheld:
            self._shown.append(text_of(delta.fields["content"]))
            await self._tell(delta)

    # --- turns that wait for approval

    async def note(self, report: CallReport, answer: Answered) -> None:
        """Note how a call ended, and the question it has stopped to wait for."""
        self._calls[self.spending.used.iterations, report.call_id] = report
        if answer.waiting is not None:
            self._questions.append(answer.waiting.approval_id)

    def abandon(self) -> None:
        """Take questions back that nobody comes back to: their turn has ended and is not parked."""
        if self.parking is not None and self._questions:
            self.parking.abandon(self._questions)

    async def resume(self, parked: ParkedTurn) -> None:
        """Stand where the conversation stood when it was parked."""
        self.spending.resume(parked.spent)
        self._resumed = self.spending.used
        self.history += parked.appended
        self.warnings += parked.warnings
        self._calls.update({(turn, report.call_id): report for turn, report in parked.reports})
        await self.begin({})

    async def keep(self, turn: Turn, answers: tuple[Answered, ...]) -> str | None:
        """Park a turn; where that cannot be done, go on without, and say so."""
        if self.parking is None:
            return None
        parked = ParkedTurn(
            turn=turn,
            answers=answers,
            appended=tuple(self.history[len(self.chat.messages) :]),
            reports=tuple((turn, report) for (turn, _), report in self._calls.items()),
            spent=self.spending.spent(),
            warnings=tuple(self.warnings),
        )
        try:
            return await self.parking.keep(parked)
        except BasculeError as error:
            self.warnings.append(f"a turn that waits for approval could not be kept: {error}")
            return None

    async def settle(self, turn: Turn, answers: list[Answered]) -> None:
        """Take the results of a turn, or park it while some of its calls wait for approval."""
        waiting = [answer.waiting for answer in answers if answer.waiting is not None]
        resume = await self.keep(turn, tuple(answers)) if waiting else None
        self._questions = []
        if resume is None:
            self.remember(turn, answers)
            return
        approvals = (
            AwaitedApproval(
                approval_id=one.approval_id,
                expires_at=one.expires_at,
                server=one.server,
                tool=one.tool,
            )
            for one in waiting
        )
        self.paused = Paused(resume, tuple(approvals))

    def remember(self, turn: Turn, answers: list[Answered]) -> None:
        """Append a turn and its results to the history; hand back the calls that have none."""
        self.history.append(assistant_message(turn))
        for answer in answers:
            self.history.append(answer.message)
            self.warnings += answer.warnings
        answered = {str(answer.message["tool_call_id"]) for answer in answers}
        self.hand_back(call_entry(asked) for asked in turn.calls if asked.call_id not in answered)

    def hand_back(self, calls: Iterable[JsonObject], reason: str = "tool_calls") -> None:
        """Leave calls to the caller."""
        self.handed_back, self._handed_back_for = tuple(calls), reason

    async def conclude(self, turn: Turn | None) -> Conclusion:
        """Return what it came to; an answer that a budget cut short is never empty."""
        await self._say_paused() if self.paused is not None else await self._release()
        if turn is None and not "".join(self._shown).strip():
            await self.begin({})
            await self._show(_SILENCE[self.spending.hit or "max_iterations"])
        said = turn or _CUT_SHORT
        stopped = said.finish_reason == "tool_calls" or self.paused is not None
        made = "stop" if stopped else said.finish_reason
        spending = self.spending
        return Conclusion(
            head=self._head,
            content="".join(self._shown) or None,
            finish_reason=self._handed_back_for if self.handed_back else made,
            refusal=said.refusal,
            tool_calls=self.handed_back,
            extra=said.extra,
            logprobs=said.logprobs,
            usage=self.usage,
            appended=tuple(self.history[len(self.chat.messages) :]),
            calls=self.reports,
            budgets=spending.plain(self.time.spent),
            budget_hit=spending.hit,
            iterations=spending.used.iterations,
            revision=self.offer.revision,
            warnings=(*self.offer.warnings, *self.warnings),
            paused=self.paused,
        )

    async def _say_paused(self) -> None:
        """Say what is waited for; words that were kept back belong to an answer to come."""
        self._withheld = []
        if self.paused is not None:
            words = paused_words(self.paused)
            self._shown.append(f"\n\n{words}" if self._shown else words)
            await self._tell(TurnParked(self._shown[-1]))

    async def _show(self, text: str) -> None:
        self._shown.append(text)
        await self._tell(Delta({"content": text}))
