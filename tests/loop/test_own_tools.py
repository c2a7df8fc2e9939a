"""Tools of the caller's own that run where the loop runs."""

from __future__ import annotations

import asyncio
import json

import pytest

from bascule.audit.metrics import Metrics
from bascule.loop.budgets import LoopSettings
from bascule.loop.events import CallFinished, CallStarted
from bascule.loop.offer import NameTaken
from bascule.model.outcome import Outcome
from tests.loop.fakes import FakeUpstream, asks, call, says
from tests.loop.guest import GuestTools, broke, said
from tests.loop.parked import AT_ONCE, Desk, Lot
from tests.loop.talking import OWN, READ, WRITE, Heard, error_of, results, talk
from tests.node.fakes import Doorman, World, text

OTHER = {"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}}


async def test_own_tools_run_beside_those_of_servers(world: World, stream: bool):
    world.caller.answers("read", text("the file"))
    guest = GuestTools(own=said("of the guest"))
    upstream = FakeUpstream(
        asks(call("own", {"a": 1}, "c1"), call(READ, None, "c2"), call("own", {"a": 2}, "c3")),
        says("Done."),
    )
    heard = Heard()
    ended = await talk(world, upstream, tools=[OWN], own_tools=guest, stream=stream, tell=heard)
    assert (ended.content, ended.finish_reason, ended.tool_calls) == ("Done.", "stop", ())
    assert guest.ran == [("own", {"a": 1}), ("own", {"a": 2})]
    assert [(m["tool_call_id"], m["content"]) for m in results(upstream)] == [
        ("c1", "of the guest"),
        ("c2", "the file"),
        ("c3", "of the guest"),
    ]
    assert [(one.server, one.tool, one.status) for one in ended.calls] == [
        ("", "own", "ok"),
        ("fs", "read", "ok"),
        ("", "own", "ok"),
    ]
    assert {event.call_id for event in heard.of(CallStarted)} == {"c1", "c2", "c3"}
    assert {event.report for event in heard.of(CallFinished)} == set(ended.calls)


@pytest.mark.requirement("hostcalls:own-tools:order")
async def test_own_tools_run_one_after_another_while_servers_answer(world: World):
    doorman = Doorman()
    world.caller.answers("read", doorman)
    world.caller.answers("write", doorman)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def waits(_: object) -> Outcome:
        begun.set()
        await go_on.wait()
        return said("own")

    guest = GuestTools(own=waits, other=said("other"))
    calls = (call("own", None, "c1"), call(READ, None, "c2"), call("other", None, "c3"))
    upstream = FakeUpstream(asks(*calls, call(WRITE, None, "c4")), says("Done."))
    talking = asyncio.create_task(talk(world, upstream, tools=[OWN, OTHER], own_tools=guest))
    async with asyncio.timeout(20):
        first, second = await doorman.next(), await doorman.next()
        await begun.wait()
    assert (doorman.inside, [name for name, _ in guest.ran]) == (2, ["own"])
    first.set()
    second.set()
    go_on.set()
    await talking
    assert ([name for name, _ in guest.ran], guest.most) == (["own", "other"], 1)
    assert [m["content"] for m in results(upstream)] == ["own", "read", "other", "write"]


async def test_what_cannot_be_run_here_is_handed_back(world: World):
    guest = GuestTools(own=said("here"))
    upstream = FakeUpstream(asks(call("own", None, "c1"), call("other", None, "c2")))
    ended = await talk(world, upstream, tools=[OWN, OTHER], own_tools=guest)
    assert [one["id"] for one in ended.tool_calls] == ["c2"]
    assert ended.finish_reason == "tool_calls"
    assert [m.get("tool_call_id") for m in ended.appended] == [None, "c1"]


async def test_nothing_is_run_that_the_request_does_not_name(world: World):
    guest = GuestTools(own=said("here"), other=said("there"))
    upstream = FakeUpstream(asks(call("other")), says("Done."))
    await talk(world, upstream, tools=[OWN], own_tools=guest)
    assert guest.ran == []
    [message] = results(upstream)
    assert error_of(message) == "mcp_invalid_arguments"


async def test_nothing_is_run_where_no_tool_may_be_chosen(world: World):
    guest = GuestTools(own=said("here"))
    upstream = FakeUpstream(asks(call("own", None, "c1")))
    ended = await talk(world, upstream, tools=[OWN], tool_choice="none", own_tools=guest)
    assert (guest.ran, [one["id"] for one in ended.tool_calls]) == ([], ["c1"])


@pytest.mark.parametrize("arguments", ["{", "[1]", '{"a": 1, "a": 2}'])
async def test_bad_arguments_are_an_error_the_model_reads(world: World, arguments: str):
    guest = GuestTools(own=said("here"))
    upstream = FakeUpstream(asks(call("own", arguments)), says("Sorry."))
    ended = await talk(world, upstream, tools=[OWN], own_tools=guest)
    [message] = results(upstream)
    assert error_of(message) == "mcp_invalid_arguments"
    assert (guest.ran, [one.error for one in ended.calls]) == ([], ["mcp_invalid_arguments"])


async def test_a_failure_goes_to_the_model(world: World):
    guest = GuestTools(own=broke("no such thing"))
    upstream = FakeUpstream(asks(call("own")), says("Sorry."))
    ended = await talk(world, upstream, tools=[OWN], own_tools=guest)
    assert error_of(results(upstream)[0]) == "mcp_tool_error"
    assert [(one.status, one.error) for one in ended.calls] == [("failed", "mcp_tool_error")]


async def test_results_are_json_where_that_is_asked_for(world: World):
    guest = GuestTools(own=said("plain"))
    upstream = FakeUpstream(asks(call("own")), says("Done."))
    settings = LoopSettings(always_json=True)
    await talk(world, upstream, tools=[OWN], own_tools=guest, settings=settings)
    [message] = results(upstream)
    assert json.loads(message["content"])["content"] == [{"type": "text", "text": "plain"}]


@pytest.mark.requirement("budgets:same-for-all-tools")
async def test_calls_of_all_tools_are_counted_together(world: World, stream: bool):
    guest, metrics = GuestTools(own=said("here")), Metrics()
    calls = (call("own", None, "c1"), call(READ, None, "c2"), call("own", {"b": 1}, "c3"))
    upstream = FakeUpstream(asks(*calls), says("Enough."))
    ended = await talk(
        world,
        upstream,
        tools=[OWN],
        own_tools=guest,
        stream=stream,
        settings=LoopSettings(max_total_tool_calls=2),
        metrics=metrics,
    )
    assert (ended.budget_hit, ended.content) == ("max_total_tool_calls", "Enough.")
    assert ended.budgets["tool_calls"] == {"used": 2, "limit": 2}
    assert guest.ran == [("own", {})]
    assert [one.error for one in ended.calls] == [None, None, "mcp_budget_exceeded"]
    assert b"mcp_chat_tool_calls_sum 2.0" in metrics.render()


@pytest.mark.requirement("budgets:same-for-all-tools")
async def test_output_of_all_tools_is_counted_together(world: World):
    world.caller.answers("read", text("r" * 60))
    guest = GuestTools(own=said("g" * 40))
    upstream = FakeUpstream(
        asks(call("own", None, "c1"), call(READ, None, "c2")),
        asks(call("own", {"again": 1}, "c3")),
        says("Enough."),
    )
    settings = LoopSettings(max_output_bytes=100)
    ended = await talk(world, upstream, tools=[OWN], own_tools=guest, settings=settings)
    assert ended.budget_hit == "max_output_bytes"
    assert (len(guest.ran), guest.rooms) == (1, [50])


@pytest.mark.requirement("budgets:same-for-all-tools")
async def test_an_own_tool_is_not_repeated_for_ever(world: World):
    guest = GuestTools(own=said("here"))
    upstream = FakeUpstream(
        asks(call("own")), asks(call("own")), asks(call("own")), says("I give up.")
    )
    ended = await talk(world, upstream, tools=[OWN], own_tools=guest)
    assert (ended.budget_hit, len(guest.ran), ended.content) == ("max_repeats", 2, "I give up.")


async def test_an_own_tool_ends_with_its_conversation(world: World):
    begun, ended = asyncio.Event(), asyncio.Event()

    async def hangs(_: object) -> Outcome:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    upstream = FakeUpstream(asks(call("own")))
    guest = GuestTools(own=hangs)
    talking = asyncio.create_task(talk(world, upstream, tools=[OWN], own_tools=guest))
    async with asyncio.timeout(20):
        await begun.wait()
        talking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await talking
    assert ended.is_set()
    event = world.ledger.last
    assert (event.tool_name, event.status, event.code) == ("own", "unknown", "mcp_outcome_unknown")


@pytest.mark.requirement("hostcalls:own-tools:audit")
async def test_calls_of_own_tools_are_written_down_beside_the_others(world: World, stream: bool):
    guest = GuestTools(own=said("four"), other=broke("no"))
    calls = (call("own", {"a": 1}, "c1"), call("other", None, "c2"), call(READ, None, "c3"))
    upstream = FakeUpstream(asks(*calls, call("own", "{", "c4")), says("Done."))
    ended = await talk(world, upstream, tools=[OWN, OTHER], own_tools=guest, stream=stream)
    written = {event.request_id: event for event in world.ledger.calls()}
    found = [
        (event.server_id, event.tool_name, event.reason, event.status)
        for event in (written[report.request_id] for report in ended.calls if report.request_id)
    ]
    assert found == [
        ("", "own", "own_tool", "ok"),
        ("", "other", "own_tool", "failed"),
        ("fs", "read", "allowed", "ok"),
    ]
    assert len(written) == 3


@pytest.mark.requirement("hostcalls:own-tools:name-taken")
async def test_a_tool_named_like_one_of_a_server_is_refused(world: World):
    taken = {"type": "function", "function": {"name": READ}}
    upstream = FakeUpstream(says("Never."))
    with pytest.raises(NameTaken, match=READ) as refused:
        await talk(world, upstream, tools=[taken], own_tools=GuestTools(**{READ: said("mine")}))
    assert (refused.value.name, refused.value.param, upstream.asked) == (READ, "tools", [])


async def test_a_forced_tool_may_be_an_own_one(world: World):
    guest = GuestTools(own=said("here"))
    forced = {"type": "function", "function": {"name": "own"}}
    upstream = FakeUpstream(asks(call("own")), says("Done."))
    await talk(world, upstream, tools=[OWN], own_tools=guest, tool_choice=forced)
    assert [body["tool_choice"] for body in upstream.asked] == [forced, "auto"]
    assert len(guest.ran) == 1


@pytest.mark.parametrize("again", [True, False], ids=["with them", "without them"])
async def test_an_own_tool_of_a_parked_turn_has_run_and_is_not_run_again(again: bool):
    desk, guest = Desk(), GuestTools(own=said("of the guest"))
    world, lot = desk.world(), Lot(desk.approvals)
    world.caller.answers("write", text("written"))
    upstream = FakeUpstream(asks(call("own", None, "c1"), call(WRITE, None, "c2")), says("Done."))
    own = {"tools": [OWN], "parking": lot, "settings": AT_ONCE}
    parked = await talk(world, upstream, own_tools=guest, **own)
    assert (parked.paused is not None, parked.tool_calls) == (True, ())
    await desk.decide("approve")
    ended = await talk(world, upstream, own_tools=guest if again else None, **own)
    assert (ended.content, ended.tool_calls, len(guest.ran)) == ("Done.", (), 1)
    assert [m["content"] for m in results(upstream)] == ["of the guest", "written"]
