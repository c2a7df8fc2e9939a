"""The chat loop: the model is asked, its calls are made, until it answers.

    converse    ask ─> calls? ─no─> the answer
                 ^       │ yes
                 └─ make them, append the results

One loop for streams and whole answers, for every door: it tells what happens to whoever listens and
ends with a ``Conclusion``. It runs in the task of its caller, so cancelling that ends the upstream
request and the tools with it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TypeAlias

from msgspec.structs import replace

from bascule.audit.metrics import Metrics
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.loop.backend import ChatUpstream, UpstreamFailed
from bascule.loop.budgets import DEFAULT_SETTINGS, BudgetName, LoopSettings, Spending
from bascule.loop.calls import Answered, Caller, assistant_message, call_entry
from bascule.loop.deltas import Asked, Assembly, Turn, text_of, whole_turn
from bascule.loop.events import (
    Began,
    CallFinished,
    CallReport,
    CallStarted,
    Conclusion,
    Delta,
    LoopEvent,
    Tell,
    unheard,
)
from bascule.loop.history import History
from bascule.loop.offer import NOTHING_OFFERED, make_offer
from bascule.loop.request import ChatRequest
from bascule.loop.usage import add_usage
from bascule.model.json import JsonObject
from bascule.node.contract import ToolSession

WaitTurn: TypeAlias = Callable[[], Awaitable[None]]
_RETRIES = 2
_FIRST_WAIT = 0.5
_LONGEST_WAIT = 30.0
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


async def at_once() -> None:
    """Wait for nothing."""


async def converse(  # noqa: PLR0913 - options, all by keyword
    chat: ChatRequest,
    session: ToolSession,
    upstream: ChatUpstream,
    *,
    settings: LoopSettings = DEFAULT_SETTINGS,
    tell: Tell = unheard,
    clock: Clock = SYSTEM_CLOCK,
    metrics: Metrics | None = None,
    wait_turn: WaitTurn = at_once,
) -> Conclusion:
    """Hold one conversation to its end.

    Raises BadChat and ToolNotOffered before anything is sent, UpstreamFailed when the model cannot
    be reached, with the calls that were made by then. What goes wrong with tools goes to the model.
    ``wait_turn`` is awaited before each request to the model: many that may begin at the same
    moment, because a server came up, need not all do so.
    """
    talk = Conversation(chat, upstream, settings, tell, clock, wait_turn)
    timer = asyncio.timeout(settings.max_seconds)
    try:
        async with timer:
            talk.offer = await make_offer(chat, session)  # the tools are listed once
            ending = await _turns(talk, talk.caller_of(session))
    except TimeoutError:
        if not timer.expired():
            raise
        talk.spending.hit = "max_seconds"
        ending = None
    except UpstreamFailed as failed:
        failed.of(upstream.name).after(talk.reports)
        raise
    finally:
        spent = talk.spending
        if metrics is not None and spent.used.iterations:
            used = spent.used
            metrics.conversed(iterations=used.iterations, calls=used.calls, budget=spent.hit)
    return await talk.conclude(ending)


async def _turns(talk: Conversation, caller: Caller) -> Turn | None:
    """Ask and call until a turn is the answer; return it, or None when a budget ended it."""
    while talk.spending.next_turn():
        turn = await _ask(talk, talk.offer.fields(first=talk.spending.used.iterations == 1))
        if not turn.calls or turn.finish_reason == "content_filter":
            return turn
        await _call(talk, caller, turn)
        if talk.handed_back:
            return turn
    try:
        await _ask(talk, {})  # the last word, with no tools to reach for
    except UpstreamFailed as error:
        talk.warnings.append(f"the last request failed: {error}")
    return None


async def _call(talk: Conversation, caller: Caller, turn: Turn) -> None:
    """Make the calls of a turn that are ours; those of the caller's tools are handed back."""
    theirs = [asked for asked in turn.calls if caller.is_theirs(asked)]
    ours = (asked for asked in turn.calls if not caller.is_theirs(asked))
    planned = [caller.plan(asked, cut=turn.cut) for asked in ours]
    answers: list[Answered] = []
    if planned:
        answers = await caller.answer(planned, at_once=talk.chat.parallel is not False)
    talk.remember(turn, theirs, answers)


async def _ask(talk: Conversation, fields: JsonObject) -> Turn:
    """Ask the model.

    Once tools have run, a failure that may pass is worth another try: whoever asked cannot repeat
    the request without running them again.
    """
    body = {**talk.chat.body(talk.history), **fields}
    wait = _FIRST_WAIT
    for left in range(_RETRIES, -1, -1):
        talk.new_turn()
        await talk.wait_turn()
        try:
            turn = await (_streamed if talk.chat.stream else _whole)(talk, body)
        except UpstreamFailed as error:
            if not left or not talk.may_ask_again(error):
                raise
            await talk.clock.sleep(min(error.retry_after or wait, _LONGEST_WAIT))
            wait *= 2
        else:
            talk.usage = add_usage(talk.usage, turn.usage)
            return turn
    raise AssertionError("the last try returns or raises")


async def _whole(talk: Conversation, body: JsonObject) -> Turn:
    turn = whole_turn(await talk.upstream.complete(body, seconds=talk.seconds_left))
    await talk.begin(turn.head)
    await talk.say(Delta({"content": turn.text} if turn.text else {}))
    return turn


async def _streamed(talk: Conversation, body: JsonObject) -> Turn:
    assembly = Assembly()
    async with aclosing(talk.upstream.stream(body, seconds=talk.seconds_left)) as chunks:
        async for chunk in chunks:
            passing = assembly.add(chunk)
            if not talk.begun:
                await talk.begin(assembly.head)
            if passing is not None:
                await talk.say(passing)
    return assembly.turn()


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
        self._tell = tell
        self._head: JsonObject = {}
        self._calls: dict[tuple[int, str], CallReport] = {}
        self._shown: list[str] = []
        self._spoke = False
        self._withheld: list[Delta] = []
        #: Whether this turn's text is passed on as it comes; None: that is not known yet.
        self._flows: bool | None = None
        self._heard = False
        self._started = clock.monotonic()

    @property
    def seconds_left(self) -> float:
        """Return how long an upstream may take: a little beyond the end, which comes from here."""
        spent = self.clock.monotonic() - self._started
        return max(0.0, self.spending.settings.max_seconds - spent) + _GRACE

    def caller_of(self, session: ToolSession) -> Caller:
        """Return who makes this conversation's calls."""
        return Caller(
            session=session,
            offer=self.offer,
            spending=self.spending,
            tell=self.tell,
            clock=self.clock,
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

    def remember(self, turn: Turn, theirs: list[Asked], answers: list[Answered]) -> None:
        """Append a turn and its results to the history."""
        self.history.append(assistant_message(turn))
        for answer in answers:
            self.history.append(answer.message)
            self.warnings += answer.warnings
        self.handed_back = tuple(map(call_entry, theirs))

    async def conclude(self, turn: Turn | None) -> Conclusion:
        """Return what it came to; an answer that a budget cut short is never empty."""
        await self._release()
        if turn is None and not "".join(self._shown).strip():
            await self.begin({})
            await self._show(_SILENCE[self.spending.hit or "max_iterations"])
        said = turn or _CUT_SHORT
        made = "stop" if said.finish_reason == "tool_calls" else said.finish_reason
        spending = self.spending
        return Conclusion(
            head=self._head,
            content="".join(self._shown) or None,
            finish_reason="tool_calls" if self.handed_back else made,
            refusal=said.refusal,
            tool_calls=self.handed_back,
            extra=said.extra,
            logprobs=said.logprobs,
            usage=self.usage,
            appended=tuple(self.history[len(self.chat.messages) :]),
            calls=self.reports,
            budgets=spending.plain(self.clock.monotonic() - self._started),
            budget_hit=spending.hit,
            iterations=spending.used.iterations,
            revision=self.offer.revision,
            warnings=(*self.offer.warnings, *self.warnings),
        )

    async def _show(self, text: str) -> None:
        self._shown.append(text)
        await self._tell(Delta({"content": text}))
