"""Budgets of a conversation, and upstreams in trouble."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bascule.audit.metrics import Metrics
from bascule.loop.backend import UpstreamFailed
from bascule.loop.budgets import LoopSettings
from bascule.model.json import is_object
from bascule.model.session import SessionLimits
from bascule.testing.clock import FakeClock
from tests.loop.fakes import FakeUpstream, Hang, asks, call, pieces, says
from tests.loop.talking import READ, WRITE, Heard, error_of, results, talk
from tests.node.fakes import Doorman, World, text

# --- budgets


@pytest.mark.requirement(
    "chat:loop:max-iterations", "budgets:session:iterations", "chat:loop:model-loops"
)
async def test_a_model_that_never_answers_is_stopped_and_asked_for_a_last_word(
    world: World, stream: bool
):
    turns = [asks(call(READ, {"count": n})) for n in range(3)]
    upstream = FakeUpstream(*turns, says("As far as I got."))
    settings = LoopSettings(max_iterations=3)
    ended = await talk(world, upstream, stream=stream, settings=settings)
    assert (ended.content, ended.finish_reason) == ("As far as I got.", "length")
    assert (ended.budget_hit, ended.iterations, len(world.sent)) == ("max_iterations", 3, 3)
    assert "tools" not in upstream.asked[3]
    assert "tool_choice" not in upstream.asked[3]
    assert len(results(upstream)) == 3


@pytest.mark.requirement("chat:loop:max-total-calls")
async def test_calls_beyond_the_budget_are_refused_and_the_rest_of_the_turn_is_made(
    world: World, stream: bool
):
    calls = [call(READ, {"count": n}, f"c{n}") for n in range(4)]
    upstream = FakeUpstream(asks(*calls), says("Enough."))
    settings = LoopSettings(max_total_tool_calls=3)
    ended = await talk(world, upstream, stream=stream, settings=settings)
    assert (ended.budget_hit, ended.content, len(world.sent)) == (
        "max_total_tool_calls",
        "Enough.",
        3,
    )
    assert error_of(results(upstream)[3]) == "mcp_budget_exceeded"


async def test_calls_that_were_refused_burn_nothing(world: World):
    upstream = FakeUpstream(
        asks(call(READ, {"count": "many"})), asks(call("nonsense")), asks(call(READ)), says("Done.")
    )
    ended = await talk(world, upstream, settings=LoopSettings(max_total_tool_calls=1))
    assert (ended.budget_hit, ended.content, len(world.sent)) == (None, "Done.", 1)


@pytest.mark.requirement("chat:loop:output-bytes")
async def test_the_output_of_all_tools_together_is_limited(world: World):
    world.caller.answers("read", text("x" * 600))
    turns = [asks(call(READ, {"count": n})) for n in range(3)]
    upstream = FakeUpstream(*turns, says("Enough."))
    ended = await talk(world, upstream, settings=LoopSettings(max_output_bytes=1000))
    assert (ended.budget_hit, ended.finish_reason) == ("max_output_bytes", "length")
    first, second, third = results(upstream)
    assert first["content"] == "x" * 600
    assert error_of(second) == "mcp_output_too_large"
    assert error_of(third) == "mcp_budget_exceeded"


async def test_the_same_call_again_and_again_is_not_made_a_third_time(world: World, stream: bool):
    upstream = FakeUpstream(
        *[asks(call(READ, {"text": "a", "count": 1})), asks(call(READ, {"count": 1, "text": "a"}))],
        asks(call(READ, {"text": "a", "count": 1})),
        says("I was going in circles."),
    )
    ended = await talk(world, upstream, stream=stream)
    assert (ended.budget_hit, len(world.sent)) == ("max_repeats", 2)
    assert "in a row" in results(upstream)[2]["content"]
    assert ended.content == "I was going in circles."


async def test_the_same_call_with_others_between_is_no_repetition(world: World):
    turns = [asks(call(READ if n % 2 else WRITE)) for n in range(6)]
    ended = await talk(world, FakeUpstream(*turns, says("Done.")))
    assert (ended.budget_hit, len(world.sent)) == (None, 6)


async def test_pairs_of_calls_that_repeat_are_noticed(world: World):
    pair = asks(call(READ, None, "c1"), call(WRITE, None, "c2"))
    ended = await talk(world, FakeUpstream(pair, pair, pair, says("Enough.")))
    assert (ended.budget_hit, len(world.sent)) == ("max_repeats", 4)


@pytest.mark.parametrize(
    "last", [says(""), says(None), asks(call(READ)), UpstreamFailed("gone", status=500)]
)
async def test_an_answer_cut_short_by_a_budget_is_never_empty(world: World, last: Any):
    upstream = FakeUpstream(asks(call(READ)), last)
    clock = FakeClock()
    talking = asyncio.create_task(
        talk(world, upstream, settings=LoopSettings(max_iterations=1), clock=clock)
    )
    await clock.advance(10)
    ended = await talking
    assert (
        ended.content == "(No answer: the model kept calling tools until its turns were used up.)"
    )
    assert (ended.finish_reason, ended.tool_calls, len(world.sent)) == ("length", (), 1)


async def test_when_the_time_is_up_the_text_so_far_is_the_answer(world: World):
    begun = pieces(says("So far so"))[:-1]
    heard = Heard()
    hang = Hang(*begun)
    settings = LoopSettings(max_seconds=0.3)
    ended = await talk(world, FakeUpstream(hang), stream=True, settings=settings, tell=heard)
    assert (ended.content, ended.finish_reason) == ("So far so", "length")
    assert (ended.budget_hit, hang.ended.is_set()) == ("max_seconds", True)


async def test_when_the_time_is_up_tools_are_cancelled_and_something_is_said(
    world: World, stream: bool
):
    doorman = Doorman()
    world.caller.answers("read", doorman)
    heard = Heard()
    ended = await talk(
        world,
        FakeUpstream(asks(call(READ))),
        stream=stream,
        settings=LoopSettings(max_seconds=0.3),
        tell=heard,
    )
    assert doorman.inside == 0
    assert ended.content == heard.text == "(No answer: the time for this request is up.)"
    assert world.ledger.last.status == "cancelled"
    [report] = ended.calls
    assert (report.status, report.tool, report.duration_ms) == ("cancelled", "read", None)


async def test_a_conversation_is_counted(world: World):
    metrics = Metrics()
    upstream = FakeUpstream(asks(call(READ)), says("Done."))
    settings = LoopSettings(max_iterations=1)
    await talk(world, upstream, settings=settings, metrics=metrics)
    shown = metrics.render().decode()
    assert 'mcp_budget_hit_total{budget="max_iterations"} 1.0' in shown
    assert "mcp_chat_tool_calls_sum 1.0" in shown


# --- upstreams in trouble


async def test_an_upstream_that_fails_at_once_is_the_callers_to_know(world: World, stream: bool):
    upstream = FakeUpstream(UpstreamFailed("busy", status=429, retry_after=3))
    with pytest.raises(UpstreamFailed, match="busy"):
        await talk(world, upstream, stream=stream)
    assert len(upstream.asked) == 1


async def test_an_upstream_that_is_busy_after_tools_have_run_is_asked_again(
    world: World, stream: bool
):
    clock = FakeClock()
    upstream = FakeUpstream(
        asks(call(READ)), UpstreamFailed("busy", status=429, retry_after=7), says("Done.")
    )
    talking = asyncio.create_task(talk(world, upstream, stream=stream, clock=clock))
    await clock.advance(6)
    assert not talking.done()
    await clock.advance(1)
    assert (await talking).content == "Done."
    assert len(world.sent) == 1


@pytest.mark.parametrize("failure", [{"status": 400}, {"timed_out": True}])
async def test_a_failure_that_will_not_pass_is_not_tried_again(world: World, failure: Any):
    upstream = FakeUpstream(asks(call(READ)), UpstreamFailed("no", **failure))
    with pytest.raises(UpstreamFailed):
        await talk(world, upstream)
    assert len(upstream.asked) == 2


async def test_a_stream_that_breaks_after_it_was_heard_is_not_begun_again(world: World):
    broken = [*pieces(says("Half an"))[:-1], {"fail": "cut"}]
    with pytest.raises(UpstreamFailed, match="cut"):
        await talk(world, FakeUpstream(asks(call(READ)), broken), stream=True)


async def test_a_completion_without_a_message_is_an_upstreams_failure(world: World):
    for garbled in ({}, {"choices": []}, {"choices": [{"index": 0}]}, {"choices": "none"}):
        with pytest.raises(UpstreamFailed, match="no message"):
            await talk(world, FakeUpstream(garbled))


async def test_cancelling_a_conversation_ends_its_tools_and_its_upstream(world: World):
    doorman = Doorman()
    world.caller.answers("read", doorman)
    talking = asyncio.create_task(talk(world, FakeUpstream(asks(call(READ))), stream=True))
    await doorman.next()
    talking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await talking
    assert doorman.inside == 0
    hang = Hang()
    talking = asyncio.create_task(talk(world, FakeUpstream(hang), stream=True))
    await hang.reached.wait()
    talking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await talking
    assert hang.ended.is_set()


@pytest.mark.requirement("budgets:session:iterations")
async def test_the_limits_of_a_session_lower_the_loops_own(world: World):
    settings = LoopSettings().within(SessionLimits(max_iterations=1, max_total_tool_calls=100))
    upstream = FakeUpstream(asks(call(READ)), says("Enough."))
    ended = await talk(world, upstream, settings=settings)
    assert ended.budget_hit == "max_iterations"
    assert is_object(spent := ended.budgets["tool_calls"])
    assert spent["limit"] == 32
