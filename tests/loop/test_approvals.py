"""Calls that need approval: they wait, the turn is parked, and it goes on where it stood."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bascule.loop.backend import UpstreamFailed
from bascule.loop.budgets import LoopSettings
from bascule.loop.events import ApprovalWaiting, CallFinished, CallStarted, Conclusion
from tests.loop.fakes import FakeUpstream, asks, call, says
from tests.loop.parked import AT_ONCE, Desk, Lot
from tests.loop.talking import OWN, READ, WRITE, Heard, error_of, results, talk
from tests.node.fakes import Doorman, Json, Sent, World, text
from tests.policy.build import server
from tests.waits import SOON_SECONDS, until

DELETE = "mcp__fs__delete"


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def world(desk: Desk) -> World:
    return desk.world()


@pytest.fixture
def lot(desk: Desk) -> Lot:
    return Lot(desk.approvals)


async def park(
    world: World, upstream: FakeUpstream, lot: Lot, *, stream: bool, **more: Any
) -> Conclusion:
    """Talk without waiting for anybody; the turn is parked."""
    settings = more.pop("settings", AT_ONCE)
    ended = await talk(world, upstream, stream=stream, settings=settings, parking=lot, **more)
    assert ended.paused is not None, ended
    return ended


# --- while somebody waits


@pytest.mark.requirement("chat:approval:waits")
async def test_a_call_that_is_approved_while_it_waits_runs_and_the_answer_goes_on(
    desk: Desk, world: World, lot: Lot, stream: bool
):
    world.caller.answers("write", text("written"))
    upstream, heard = FakeUpstream(asks(call(WRITE, {"text": "a"})), says("Done.")), Heard()
    talking = asyncio.create_task(talk(world, upstream, stream=stream, tell=heard, parking=lot))
    [question] = await desk.asked()
    assert not world.sent
    await desk.decide("approve")
    ended = await talking
    assert (ended.content, ended.finish_reason, ended.paused) == ("Done.", "stop", None)
    assert [sent.payload for sent in world.sent] == [b'{"text":"a"}']
    assert [m["content"] for m in results(upstream)] == ["written"]
    order = [type(one) for one in heard.of(CallStarted, CallFinished)]
    assert order == [CallStarted, ApprovalWaiting, CallFinished]
    [told] = heard.of(ApprovalWaiting)
    assert (told.approval_id, told.expires_at) == (question.id, question.expires_at)
    assert (told.call_id, told.name, told.server, told.tool) == ("c1", WRITE, "fs", "write")
    assert json.loads(told.arguments) == {"text": "a"}
    assert lot.renewed == 0


async def test_a_call_that_is_denied_while_it_waits_is_answered_so(
    desk: Desk, world: World, lot: Lot
):
    upstream = FakeUpstream(asks(call(WRITE)), says("I may not."))
    talking = asyncio.create_task(talk(world, upstream, parking=lot))
    await desk.decide("deny")
    ended = await talking
    assert ended.content == "I may not."
    assert error_of(results(upstream)[0]) == "mcp_approval_denied"
    assert [one.status for one in ended.calls] == ["denied"]
    assert not world.sent


@pytest.mark.requirement("chat:approval:waits")
async def test_the_other_calls_of_the_turn_run_meanwhile(desk: Desk, world: World, lot: Lot):
    doorman = Doorman()
    world.caller.answers("read", doorman)
    upstream = FakeUpstream(asks(call(WRITE, None, "c1"), call(READ, None, "c2")), says("Done."))
    talking = asyncio.create_task(talk(world, upstream, parking=lot))
    await desk.asked()
    (await doorman.next()).set()
    await desk.decide("approve")
    assert (await talking).content == "Done."
    assert [sent.tool for sent in world.sent] == ["read", "write"]
    assert [m["tool_call_id"] for m in results(upstream)] == ["c1", "c2"]


@pytest.mark.parametrize("slow", [False, True], ids=["waiting", "stopped waiting"])
async def test_who_hangs_up_withdraws_every_question(
    desk: Desk, world: World, lot: Lot, slow: bool
):
    doorman = Doorman()
    world.caller.answers("read", doorman)
    settings = AT_ONCE if slow else LoopSettings()
    upstream = FakeUpstream(asks(call(WRITE, None, "c1"), call(READ, None, "c2")))
    talking = asyncio.create_task(talk(world, upstream, settings=settings, parking=lot))
    await desk.asked()
    await doorman.next()
    talking.cancel()
    await asyncio.wait({talking})
    [withdrawn] = await desk.ended("withdrawn")
    assert withdrawn.call.tool_name == "write"
    assert lot.body is None


# --- a turn that is parked


@pytest.mark.requirement("approval:paused-turn")
async def test_a_turn_whose_call_nobody_decides_on_is_parked(
    desk: Desk, world: World, lot: Lot, stream: bool
):
    heard = Heard()
    upstream = FakeUpstream(asks(call(WRITE), text="Let me see."))
    ended = await park(world, upstream, lot, stream=stream, tell=heard)
    [question] = await desk.all("pending")
    assert ended.paused is not None
    [awaited] = ended.paused.approvals
    assert (ended.paused.resume, awaited.approval_id) == ("turn-1", question.id)
    assert (awaited.server, awaited.tool) == ("fs", "write")
    assert awaited.expires_at == question.expires_at
    assert ended.finish_reason == "stop"
    assert not ended.tool_calls
    said = f"Let me see.\n\nWaiting for approval of fs/write ({question.id})."
    assert ended.content is not None
    assert ended.content.startswith(said)
    assert heard.text == ended.content
    assert [(one.status, one.error) for one in ended.calls] == [("failed", "mcp_approval_required")]
    assert ended.budgets["tool_calls"] == {"used": 0, "limit": 32}
    assert (len(upstream.asked), len(world.sent)) == (1, 0)


@pytest.mark.requirement("approval:paused-turn")
async def test_a_turn_that_is_resumed_makes_the_approved_call_once_and_asks_the_model_no_more(
    desk: Desk, world: World, lot: Lot, stream: bool
):
    world.caller.answers("read", text("the file"))
    world.caller.answers("write", text("written"))
    both = asks(call(READ, None, "c2"), call(WRITE, {"text": "b"}, "c3"), text="Both.")
    upstream = FakeUpstream(asks(call(READ, None, "c1")), both, says("Done."))
    await park(world, upstream, lot, stream=stream)
    assert [sent.tool for sent in world.sent] == ["read", "read"]
    await desk.decide("approve")
    heard = Heard()
    ended = await talk(world, upstream, stream=stream, settings=AT_ONCE, tell=heard, parking=lot)
    assert (ended.content, ended.paused, ended.finish_reason) == ("Done.", None, "stop")
    assert [sent.tool for sent in world.sent] == ["read", "read", "write"]
    assert world.sent[-1].payload == b'{"text":"b"}'
    assert len(upstream.asked) == 3
    history = upstream.asked[2]["messages"]
    assert [m["role"] for m in history] == ["user", *["assistant", "tool"] * 2, "tool"]
    assert [m["content"] for m in history[3:]] == ["Both.", "the file", "written"]
    assert [(one.call_id, one.status) for one in ended.calls] == [
        ("c1", "ok"),
        ("c2", "ok"),
        ("c3", "ok"),
    ]
    assert ended.iterations == 3
    assert ended.budgets["tool_calls"] == {"used": 3, "limit": 32}
    assert isinstance(heard.events[0].head["id"], str)  # type: ignore[union-attr]
    again = heard.of(CallStarted)
    assert [one.call_id for one in again] == ["c3"]


async def test_a_call_that_was_denied_meanwhile_is_answered_so(
    desk: Desk, world: World, lot: Lot, stream: bool
):
    upstream = FakeUpstream(asks(call(WRITE)), says("I may not."))
    await park(world, upstream, lot, stream=stream)
    await desk.decide("deny")
    ended = await talk(world, upstream, stream=stream, settings=AT_ONCE, parking=lot)
    assert ended.content == "I may not."
    assert error_of(results(upstream)[0]) == "mcp_approval_denied"
    assert not world.sent


async def test_what_is_still_open_is_waited_for_and_parked_again_under_the_same_name(
    desk: Desk, world: World, lot: Lot, stream: bool
):
    upstream = FakeUpstream(asks(call(WRITE, None, "c1"), call(DELETE, None, "c2")), says("Done."))
    first = await park(world, upstream, lot, stream=stream)
    write, delete = await desk.all("pending")
    await desk.decide("approve", write)
    again = await park(world, upstream, lot, stream=stream)
    assert first.paused is not None
    assert again.paused is not None
    assert again.paused.resume == first.paused.resume
    assert [one.approval_id for one in again.paused.approvals] == [delete.id]
    assert [one.status for one in again.calls] == ["ok", "failed"]
    await desk.decide("approve", delete)
    ended = await talk(world, upstream, stream=stream, settings=AT_ONCE, parking=lot)
    assert ended.content == "Done."
    assert [sent.tool for sent in world.sent] == ["write", "delete"]
    assert len(upstream.asked) == 2


async def test_a_resumed_call_may_be_decided_on_while_it_waits(desk: Desk, world: World, lot: Lot):
    upstream = FakeUpstream(asks(call(WRITE)), says("Done."))
    await park(world, upstream, lot, stream=False)
    heard = Heard()
    talking = asyncio.create_task(talk(world, upstream, tell=heard, parking=lot))
    await until(lambda: heard.of(ApprovalWaiting))
    await desk.decide("approve")
    assert (await talking).content == "Done."


async def test_who_hangs_up_while_a_resumed_call_waits_withdraws(
    desk: Desk, world: World, lot: Lot
):
    upstream = FakeUpstream(asks(call(WRITE)), says("So be it."))
    await park(world, upstream, lot, stream=False)
    heard = Heard()
    talking = asyncio.create_task(talk(world, upstream, tell=heard, parking=lot))
    await until(lambda: heard.of(ApprovalWaiting))
    talking.cancel()
    await asyncio.wait({talking})
    await desk.ended("withdrawn")
    ended = await talk(world, upstream, settings=AT_ONCE, parking=lot)
    assert ended.content == "So be it."
    assert error_of(results(upstream)[0]) == "mcp_approval_denied"


@pytest.mark.requirement("chat:approval:once")
async def test_a_call_that_was_lost_on_its_way_is_not_repeated(
    desk: Desk, world: World, lot: Lot, stream: bool
):
    sent = asyncio.Event()

    async def hang(_: Sent) -> Json:
        sent.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody lets it end")

    world.caller.answers("write", hang)
    upstream = FakeUpstream(asks(call(WRITE)), says("I do not know."))
    await park(world, upstream, lot, stream=stream)
    await desk.decide("approve")
    talking = asyncio.create_task(talk(world, upstream, stream=stream, parking=lot))
    async with asyncio.timeout(SOON_SECONDS):
        await sent.wait()
    talking.cancel()
    await asyncio.wait({talking})
    ended = await talk(world, upstream, stream=stream, parking=lot)
    assert ended.content == "I do not know."
    assert error_of(results(upstream)[0]) == "mcp_outcome_unknown"
    assert [one.status for one in ended.calls] == ["unknown"]
    assert len(world.sent) == 1


@pytest.mark.requirement("chat:approval:once")
async def test_a_result_is_kept_before_the_model_is_asked_and_used_when_that_fails(
    desk: Desk, world: World, lot: Lot, stream: bool
):
    world.caller.answers("write", text("written"))
    failure = UpstreamFailed("no", status=400)
    upstream = FakeUpstream(asks(call(WRITE)), failure, says("Done."))
    await park(world, upstream, lot, stream=stream)
    await desk.decide("approve")
    with pytest.raises(UpstreamFailed):
        await talk(world, upstream, stream=stream, settings=AT_ONCE, parking=lot)
    assert lot.parked is not None
    assert lot.parked.waiting == []
    ended = await talk(world, upstream, stream=stream, settings=AT_ONCE, parking=lot)
    assert (ended.content, len(world.sent)) == ("Done.", 1)
    assert [m["content"] for m in results(upstream)] == ["written"]
    assert [one.status for one in ended.calls] == ["ok"]


@pytest.mark.requirement("chat:approval:once")
async def test_nothing_is_kept_of_a_turn_once_calls_of_a_later_one_are_made(
    desk: Desk, world: World, lot: Lot, stream: bool
):
    kept: list[bytes | None] = []

    async def read(_: Sent) -> Json:
        kept.append(lot.body)
        return text("the file")

    world.caller.answers("read", read)
    upstream = FakeUpstream(asks(call(WRITE)), asks(call(READ)), UpstreamFailed("no", status=400))
    await park(world, upstream, lot, stream=stream)
    await desk.decide("approve")
    with pytest.raises(UpstreamFailed) as failed:
        await talk(world, upstream, stream=stream, settings=AT_ONCE, parking=lot)
    assert kept == [None]
    assert lot.body is None
    assert [one.tool for one in failed.value.calls] == ["write", "read"]


async def test_a_later_turn_may_be_parked_as_well(desk: Desk, world: World, lot: Lot, stream: bool):
    upstream = FakeUpstream(asks(call(WRITE)), asks(call(DELETE)), says("Done."))
    await park(world, upstream, lot, stream=stream)
    await desk.decide("approve")
    await park(world, upstream, lot, stream=stream)
    await desk.decide("approve")
    ended = await talk(world, upstream, stream=stream, settings=AT_ONCE, parking=lot)
    assert ended.content == "Done."
    assert [sent.tool for sent in world.sent] == ["write", "delete"]
    assert [one.tool for one in ended.calls] == ["write", "delete"]
    assert ended.iterations == 3


async def test_a_turn_with_calls_of_the_caller_is_parked_whole_and_hands_them_back_later(
    desk: Desk, world: World, lot: Lot, stream: bool
):
    upstream = FakeUpstream(asks(call("own", {"x": 1}, "c1"), call(WRITE, None, "c2")))
    parked = await park(world, upstream, lot, stream=stream, tools=[OWN])
    assert (parked.tool_calls, parked.finish_reason) == ((), "stop")
    await desk.decide("approve")
    ended = await talk(world, upstream, stream=stream, settings=AT_ONCE, tools=[OWN], parking=lot)
    assert ended.finish_reason == "tool_calls"
    assert [one["id"] for one in ended.tool_calls] == ["c1"]
    assert [m["role"] for m in ended.appended] == ["assistant", "tool"]
    assert len(upstream.asked) == 1


async def test_words_that_wait_for_json_are_not_said_when_the_turn_is_parked(
    desk: Desk, world: World, lot: Lot, stream: bool
):
    wanted = {"type": "json_object"}
    upstream = FakeUpstream(asks(call(WRITE), text="Hm."), says('{"a": 1}'))
    parked = await park(world, upstream, lot, stream=stream, response_format=wanted)
    assert parked.content is not None
    assert parked.content.startswith("Waiting for approval of")
    await desk.decide("approve")
    ended = await talk(
        world, upstream, stream=stream, settings=AT_ONCE, response_format=wanted, parking=lot
    )
    assert ended.content == '{"a": 1}'


async def test_a_turn_that_cannot_be_kept_goes_on_and_says_so(world: World, lot: Lot, stream: bool):
    lot.broken = True
    upstream = FakeUpstream(asks(call(WRITE)), says("Somebody has to agree."))
    ended = await talk(world, upstream, stream=stream, settings=AT_ONCE, parking=lot)
    assert (ended.content, ended.paused) == ("Somebody has to agree.", None)
    assert error_of(results(upstream)[0]) == "mcp_approval_required"
    assert "the disk is full" in ended.warnings[-1]


async def test_without_a_place_to_park_the_model_reads_that_approval_is_required(
    world: World, stream: bool
):
    upstream = FakeUpstream(asks(call(WRITE)), says("Somebody has to agree."))
    ended = await talk(world, upstream, stream=stream, settings=AT_ONCE)
    assert (ended.content, ended.paused) == ("Somebody has to agree.", None)
    assert error_of(results(upstream)[0]) == "mcp_approval_required"


async def test_budgets_go_on_from_what_was_used(desk: Desk, world: World, lot: Lot):
    settings = LoopSettings(approval_wait_seconds=0, max_iterations=2, max_total_tool_calls=2)
    upstream = FakeUpstream(asks(call(READ)), asks(call(WRITE)), says("The last word."))
    await park(world, upstream, lot, stream=False, settings=settings)
    await desk.decide("approve")
    ended = await talk(world, upstream, settings=settings, parking=lot)
    assert (ended.content, ended.budget_hit) == ("The last word.", "max_iterations")
    assert "tools" not in upstream.asked[-1]
    assert ended.budgets["tool_calls"] == {"used": 2, "limit": 2}


async def test_an_approval_does_not_outlive_a_change_of_the_rules(
    desk: Desk, world: World, lot: Lot
):
    """Also where nobody has to be asked any more: the call that was parked is not made twice."""
    upstream = FakeUpstream(asks(call(WRITE)), says("So be it."))
    await park(world, upstream, lot, stream=False)
    await desk.decide("approve")
    world.apply(server("fs"))
    await talk(world, upstream, settings=AT_ONCE, parking=lot)
    assert error_of(results(upstream)[0]) == "mcp_approval_denied"
    assert not world.sent


async def test_a_turn_that_the_model_did_not_finish_ends_with_stop_all_the_same(
    desk: Desk, world: World, lot: Lot, stream: bool
):
    cut = asks(call(WRITE))
    cut["choices"][0]["finish_reason"] = "length"
    ended = await park(world, FakeUpstream(cut), lot, stream=stream)
    assert ended.finish_reason == "stop"


async def test_calls_that_run_one_by_one_do_not_wait_for_one_that_waits(
    desk: Desk, world: World, lot: Lot, stream: bool
):
    both = asks(call(WRITE, None, "c1"), call(READ, None, "c2"))
    upstream = FakeUpstream(both, says("Done."))
    await park(world, upstream, lot, stream=stream, parallel_tool_calls=False)
    assert [sent.tool for sent in world.sent] == ["read"]
    await desk.decide("approve")
    await talk(
        world,
        upstream,
        stream=stream,
        settings=AT_ONCE,
        parking=lot,
        parallel_tool_calls=False,
    )
    assert [m["tool_call_id"] for m in results(upstream)] == ["c1", "c2"]


async def test_long_arguments_are_told_in_part(desk: Desk, world: World, lot: Lot):
    heard = Heard()
    upstream = FakeUpstream(asks(call(WRITE, {"text": "x" * 10_000})), says("Done."))
    talking = asyncio.create_task(talk(world, upstream, tell=heard, parking=lot))
    await desk.decide("approve")
    await talking
    [told] = heard.of(ApprovalWaiting)
    assert (len(told.arguments), told.arguments[-1]) == (4_001, "…")
