"""The chat loop: the model is asked, its calls are made, until it answers.

    converse    ask ─> calls? ─no─> the answer
                 ^       │ yes
                 └─ make them, append the results ─> one waits for approval: park the turn
    single_turn ask ─> the turn, with its calls for the caller to make

One loop for streams and whole answers, for every door: it tells what happens to whoever listens and
ends with a ``Conclusion``. It runs in the task of its caller, so cancelling that ends the upstream
request and the tools with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing

from bascule.audit.metrics import Metrics
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.loop.backend import ChatUpstream, UpstreamFailed
from bascule.loop.budgets import DEFAULT_SETTINGS, LoopSettings
from bascule.loop.calls import Caller, raw_entry
from bascule.loop.conversation import Conversation, WaitTurn
from bascule.loop.deltas import Assembly, Turn, whole_turn
from bascule.loop.events import (
    CallReport,
    Conclusion,
    Delta,
    Tell,
    unheard,
)
from bascule.loop.offer import make_offer
from bascule.loop.own_tools import OwnTools
from bascule.loop.parking import Answered, ParkedTurn, Parking
from bascule.loop.request import ChatRequest
from bascule.loop.usage import add_usage
from bascule.model.json import JsonObject
from bascule.node.contract import ToolSession

_RETRIES = 2
_FIRST_WAIT = 0.5
_LONGEST_WAIT = 30.0


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
    parking: Parking | None = None,
    own_tools: OwnTools | None = None,
) -> Conclusion:
    """Hold one conversation to its end, or until it is parked.

    Raises BadChat and ToolNotOffered before anything is sent, UpstreamFailed when the model cannot
    be reached, with the calls that were made by then. What goes wrong with tools goes to the model.
    ``wait_turn`` is awaited before each request to the model: many that may begin at the same
    moment, because a server came up, need not all do so. ``parking`` says where a turn is parked
    whose calls wait for approval, and which one to go on with; without it the model reads that
    approval is required. ``own_tools`` runs tools of the request's own; calls of those it does not
    have are handed back.
    """
    talk = Conversation(chat, upstream, settings, tell, clock, wait_turn)
    talk.parking = parking

    async def turns() -> Turn | None:
        talk.offer = await make_offer(chat, session, own_tools)  # the tools are listed once
        return await _turns(talk, talk.caller_of(session, own_tools))

    return await _held(talk, turns, metrics)


async def single_turn(  # noqa: PLR0913 - options, all by keyword
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
    """Ask once, with the tools that ``converse`` would offer, and make no call.

    Every call of the turn is handed back as the model made it, whoever's tool it is of. Raises what
    ``converse`` raises.
    """
    talk = Conversation(chat, upstream, settings, tell, clock, wait_turn)

    async def turn() -> Turn | None:
        talk.offer = await make_offer(chat, session)
        return await _ask_raw(talk)

    return await _held(talk, turn, metrics)


async def _held(
    talk: Conversation, course: Callable[[], Awaitable[Turn | None]], metrics: Metrics | None
) -> Conclusion:
    """Let a conversation take its course, within its time, and conclude it."""
    timer = talk.time.timer
    try:
        async with timer:
            ending = await course()
    except TimeoutError:
        if not timer.expired():
            raise
        talk.spending.hit = "max_seconds"
        ending = None
    except UpstreamFailed as failed:
        failed.of(talk.upstream.name).after(talk.reports)
        raise
    finally:
        talk.abandon()
        if metrics is not None:
            talk.count(metrics)
    return await talk.conclude(ending)


async def _turns(talk: Conversation, caller: Caller) -> Turn | None:
    """Ask and call until a turn is the answer; return it, or None when a budget ended it."""
    parked = None if talk.parking is None else talk.parking.parked
    if parked is not None:
        await _resume(talk, caller, parked)
        if talk.is_over:
            return parked.turn
    while talk.spending.next_turn():
        turn = await _ask(talk, talk.offer.fields(first=talk.spending.used.iterations == 1))
        if not turn.calls or turn.finish_reason == "content_filter":
            return turn
        if parked is not None and talk.parking is not None:
            await talk.parking.forget()  # its calls are over; those of this turn are not in it
        await _call(talk, caller, turn)
        if talk.is_over:
            return turn
    try:
        await _ask(talk, {})  # the last word, with no tools to reach for
    except UpstreamFailed as error:
        talk.warnings.append(f"the last request failed: {error}")
    return None


async def _call(talk: Conversation, caller: Caller, turn: Turn) -> None:
    """Make the calls of a turn that can be made here; the others are handed back."""
    ours = (asked for asked in turn.calls if not caller.is_theirs(asked))
    planned = [caller.plan(asked, cut=turn.cut) for asked in ours]
    await talk.settle(turn, await caller.answer(planned, talk.note))


async def _resume(talk: Conversation, caller: Caller, parked: ParkedTurn) -> None:
    """Make the calls that waited for approval, and no other; each result is kept at once."""
    await talk.resume(parked)
    answers = {str(one.message["tool_call_id"]): one for one in parked.answers}

    async def settle(report: CallReport, answer: Answered) -> None:
        await talk.note(report, answer)
        if answer.waiting is None:
            answers[report.call_id] = answer
            await talk.keep(parked.turn, tuple(answers.values()))

    planned = [caller.plan_again(waiting) for waiting in parked.waiting]
    for answer in await caller.answer(planned, settle):
        answers[str(answer.message["tool_call_id"])] = answer
    await talk.settle(parked.turn, [*answers.values()])


async def _ask_raw(talk: Conversation) -> Turn | None:
    """Ask for one turn; return it with its calls as they came, or None without room for a turn."""
    if not talk.spending.next_turn():
        return None
    turn = await _ask(talk, talk.offer.fields(first=True))
    talk.hand_back(map(raw_entry, turn.calls), turn.finish_reason)
    return turn


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
