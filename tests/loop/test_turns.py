"""The loop: the model is asked, its calls are made, until it answers."""

from __future__ import annotations

import asyncio
import json

import pytest

from bascule.errors import DeadlineExceeded, ServerUnavailable
from bascule.loop.budgets import LoopSettings
from bascule.loop.calls import SHOWN_CALL
from bascule.loop.events import Began, CallFinished, CallShown, CallStarted
from bascule.model.json import objects
from tests.loop.fakes import FakeUpstream, Hang, asks, call, pieces, says
from tests.loop.talking import OWN, READ, USAGE, WRITE, Heard, error_of, results, talk
from tests.node.fakes import Doorman, World, text
from tests.policy.build import server

# --- the plain way


@pytest.mark.requirement("chat:loop:repeats", "chat:loop:role-tool", "chat:agent-unaware")
async def test_calls_are_made_until_the_model_answers(world: World, stream: bool):
    world.caller.answers("read", text("the file"))
    upstream = FakeUpstream(
        asks(call(READ, {"text": "a"}, "c1")), asks(call(READ, {"text": "b"}, "c2")), says("Done.")
    )
    ended = await talk(world, upstream, stream=stream)
    assert (ended.content, ended.finish_reason, ended.iterations) == ("Done.", "stop", 3)
    assert [sent.payload for sent in world.sent] == [b'{"text":"a"}', b'{"text":"b"}']
    [user, asked, result, asked_again, second] = upstream.asked[2]["messages"]
    assert user == {"role": "user", "content": "hello"}
    assert asked["tool_calls"] == [call(READ, '{"text": "a"}', "c1")]
    assert result == {"role": "tool", "tool_call_id": "c1", "content": "the file"}
    assert second["tool_call_id"] == asked_again["tool_calls"][0]["id"] == "c2"
    assert [report.status for report in ended.calls] == ["ok", "ok"]
    assert ended.revision == 1


@pytest.mark.requirement("chat:tools:merged")
async def test_the_upstream_gets_the_callers_tools_and_the_sessions(world: World):
    upstream = FakeUpstream(says("Hi."))
    await talk(world, upstream, tools=[OWN], temperature=0.5, stop=["x"], seed=7)
    [body] = upstream.asked
    names = [tool["function"]["name"] for tool in body["tools"]]
    assert names == ["own", "mcp__fs__delete", "mcp__fs__read", "mcp__fs__write"]
    assert (body["temperature"], body["stop"], body["seed"]) == (0.5, ["x"], 7)
    assert "tool_choice" not in body


@pytest.mark.requirement("chat:one-catalogue")
async def test_the_tools_are_listed_once(world: World):
    upstream = FakeUpstream(asks(call(READ)), asks(call(WRITE)), says("Done."))
    await talk(world, upstream)
    assert world.caller.listed == ["fs"]


@pytest.mark.requirement("chat:loop:order")
async def test_calls_of_a_turn_run_at_once_and_their_results_keep_the_order(
    world: World, stream: bool
):
    doorman = Doorman()
    world.caller.answers("read", doorman)
    world.caller.answers("write", doorman)
    upstream = FakeUpstream(asks(call(READ, None, "c1"), call(WRITE, None, "c2")), says("Done."))
    talking = asyncio.create_task(talk(world, upstream, stream=stream))
    first, second = await doorman.next(), await doorman.next()
    assert doorman.inside == 2
    second.set()
    first.set()
    await talking
    assert [m["tool_call_id"] for m in results(upstream)] == ["c1", "c2"]
    assert [m["content"] for m in results(upstream)] == ["read", "write"]


async def test_calls_run_one_after_another_when_asked(world: World):
    doorman = Doorman()
    world.caller.answers("read", doorman)
    world.caller.answers("write", doorman)
    upstream = FakeUpstream(asks(call(READ, None, "c1"), call(WRITE, None, "c2")), says("Done."))
    talking = asyncio.create_task(talk(world, upstream, parallel_tool_calls=False))
    for _ in range(2):
        (await doorman.next()).set()
    await talking
    assert doorman.most == 1
    assert upstream.asked[0]["parallel_tool_calls"] is False


async def test_usage_is_summed_over_the_turns(world: World, stream: bool):
    upstream = FakeUpstream(asks(call(READ), usage=USAGE), says("Done.", usage=USAGE))
    ended = await talk(world, upstream, stream=stream)
    assert ended.usage == {
        "prompt_tokens": 6,
        "completion_tokens": 4,
        "total_tokens": 10,
        "details": {"cached": 2},
    }


async def test_text_of_all_turns_is_the_same_in_a_stream_and_as_a_whole(world: World, stream: bool):
    upstream = FakeUpstream(asks(call(READ), text="Let me look."), says("Here."))
    heard = Heard()
    ended = await talk(world, upstream, stream=stream, tell=heard)
    assert ended.content == heard.text == "Let me look.\n\nHere."
    assert upstream.asked[1]["messages"][1]["content"] == "Let me look."


JSON_ONLY = {"type": "json_object"}


async def test_an_answer_that_must_be_json_has_nothing_before_it(world: World, stream: bool):
    upstream = FakeUpstream(asks(call(READ), text="Let me look."), says(' {"a": 1}'))
    heard = Heard()
    settings = LoopSettings(show_activity=True)
    ended = await talk(
        world, upstream, stream=stream, response_format=JSON_ONLY, tell=heard, settings=settings
    )
    assert ended.content == heard.text == ' {"a": 1}'
    assert upstream.asked[1]["messages"][1]["content"] == "Let me look."


async def test_an_answer_that_must_be_json_and_is_not_is_passed_on_all_the_same(
    world: World, stream: bool
):
    upstream = FakeUpstream(asks(call(READ), text="Let me look."), says("I would rather not."))
    heard = Heard()
    ended = await talk(world, upstream, stream=stream, response_format=JSON_ONLY, tell=heard)
    assert ended.content == heard.text == "I would rather not."


async def test_a_form_of_answer_that_nobody_knows_is_left_to_the_upstream(world: World):
    upstream = FakeUpstream(says("Hi."))
    ended = await talk(world, upstream, response_format={"type": []})
    assert ended.content == "Hi."
    assert upstream.asked[0]["response_format"] == {"type": []}


async def test_json_streams_as_it_is_written(world: World):
    heard = Heard()
    hang = Hang(*pieces(says('{"a": 1}'))[:-1])
    talking = asyncio.create_task(
        talk(world, FakeUpstream(hang), stream=True, response_format=JSON_ONLY, tell=heard)
    )
    await hang.reached.wait()
    assert heard.text == '{"a": 1}'
    talking.cancel()
    await asyncio.wait([talking])


async def test_when_a_budget_is_used_up_the_last_word_alone_is_the_json(world: World, stream: bool):
    upstream = FakeUpstream(asks(call(READ), text="Let me look."), says('{"a": 1}'))
    settings = LoopSettings(max_iterations=1)
    ended = await talk(world, upstream, stream=stream, response_format=JSON_ONLY, settings=settings)
    assert (ended.content, ended.budget_hit) == ('{"a": 1}', "max_iterations")


async def test_what_a_model_says_of_its_own_besides_its_calls_is_given_back_to_it(
    world: World, stream: bool
):
    signed = {**call(READ), "extra_content": {"google": {"thought_signature": "sig"}}}
    thought = {"reasoning_content": "Hm, so.", "reasoning_details": [{"text": "Hm"}, {"text": "."}]}
    whole = asks(signed)
    whole["choices"][0]["message"] |= {**thought, "audio": None}
    deltas = [
        {"role": "assistant", "reasoning_content": "Hm,", "reasoning_details": [{"text": "Hm"}]},
        {"reasoning_content": " so.", "reasoning_details": [{"text": "."}]},
        {"tool_calls": [{"index": 0, **signed}]},
    ]
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    upstream = FakeUpstream(chunks if stream else whole, says("Done."))
    await talk(world, upstream, stream=stream)
    said = upstream.asked[1]["messages"][1]
    assert said == {"role": "assistant", "content": None, "tool_calls": [signed], **thought}


async def test_what_a_model_adds_to_a_callers_call_is_handed_on(world: World, stream: bool):
    signed = {**call("own"), "extra_content": {"signature": "sig"}}
    chunks = [
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **signed}]}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ]
    upstream = FakeUpstream(chunks if stream else asks(signed))
    ended = await talk(world, upstream, stream=stream, tools=[OWN])
    assert ended.tool_calls == (signed,)


async def test_a_listener_hears_what_happens_in_its_order(world: World):
    upstream = FakeUpstream(asks(call(READ), text="Hm."), says("Done."))
    heard = Heard()
    await talk(world, upstream, stream=True, tell=heard)
    kinds = [type(event) for event in heard.events]
    assert kinds[0] is Began
    assert kinds.count(Began) == 1
    assert kinds.index(CallStarted) < kinds.index(CallFinished)
    [finished] = heard.of(CallFinished)
    assert (finished.report.server, finished.report.tool) == ("fs", "read")


async def test_calls_are_shown_with_arguments_and_result_when_asked_for(world: World):
    upstream = FakeUpstream(asks(call(READ, {"path": "a"})), says("Done."))
    heard = Heard()
    await talk(world, upstream, tell=heard, settings=LoopSettings(show_calls=True))
    [started] = heard.of(CallShown)
    [finished] = heard.of(CallFinished)
    assert (started.turn, started.arguments) == (1, '{"path": "a"}')
    [read] = [one for one in upstream.asked[1]["messages"] if one["role"] == "tool"]
    assert finished.result == read["content"]


async def test_shown_arguments_and_results_are_cut_where_they_are_long(world: World):
    upstream = FakeUpstream(asks(call(READ, {"path": "a" * SHOWN_CALL})), says("Done."))
    heard = Heard()
    await talk(world, upstream, tell=heard, settings=LoopSettings(show_calls=True))
    [started] = heard.of(CallShown)
    assert len(started.arguments) == SHOWN_CALL + 1
    assert started.arguments.endswith("…")


async def test_activity_is_shown_in_the_answer_when_asked_for(world: World, stream: bool):
    upstream = FakeUpstream(asks(call(READ)), says("Done."))
    settings = LoopSettings(show_activity=True)
    ended = await talk(world, upstream, stream=stream, settings=settings)
    assert ended.content is not None
    assert "[fs/read: ok," in ended.content
    assert ended.content.endswith("Done.")
    assert "[fs/read" not in json.dumps(upstream.asked[1])


async def test_refusals_and_finish_reasons_are_the_models_own(world: World, stream: bool):
    refusing = says(None, message={"refusal": "No."})
    chunks = [
        {"choices": [{"index": 0, "delta": {"refusal": "No."}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    ended = await talk(world, FakeUpstream(chunks if stream else refusing), stream=stream)
    assert (ended.refusal, ended.content, ended.finish_reason) == ("No.", None, "stop")
    ended = await talk(world, FakeUpstream(says("Cut", finish_reason="length")), stream=stream)
    assert (ended.content, ended.finish_reason, ended.budget_hit) == ("Cut", "length", None)


async def test_a_filtered_turn_calls_nothing(world: World):
    filtered = asks(call(READ))
    filtered["choices"][0]["finish_reason"] = "content_filter"
    ended = await talk(world, FakeUpstream(filtered))
    assert (ended.finish_reason, world.sent) == ("content_filter", [])


@pytest.mark.requirement("outcomes:message:always-json")
async def test_a_setting_gives_every_result_as_json(world: World):
    world.caller.answers("read", text("plain"))
    upstream = FakeUpstream(asks(call(READ)), says("Done."))
    await talk(world, upstream, settings=LoopSettings(always_json=True))
    [result] = results(upstream)
    assert json.loads(result["content"]) == {"content": [{"type": "text", "text": "plain"}]}


# --- what goes wrong with calls


@pytest.mark.requirement("chat:loop:bad-arguments")
@pytest.mark.parametrize(
    "arguments", ['{"text": "a', "[1]", '"x"', "null", "nonsense", '{"text":"a","text":"b"}']
)
async def test_arguments_that_are_no_object_go_back_to_the_model(
    world: World, stream: bool, arguments: str
):
    upstream = FakeUpstream(asks(call(READ, arguments)), says("Sorry."))
    ended = await talk(world, upstream, stream=stream)
    assert error_of(results(upstream)[0]) == "mcp_invalid_arguments"
    assert (ended.content, world.sent) == ("Sorry.", [])
    [asked] = upstream.asked[1]["messages"][1]["tool_calls"]
    assert asked["function"]["arguments"] == "{}"  # upstreams choke on what is not JSON


async def test_no_arguments_at_all_are_none(world: World, stream: bool):
    upstream = FakeUpstream(asks(call(READ, "")), says("Done."))
    await talk(world, upstream, stream=stream)
    assert [sent.payload for sent in world.sent] == [b"{}"]


async def test_a_call_that_was_cut_short_is_not_made(world: World):
    cut = asks(call(READ, ""))
    cut["choices"][0]["finish_reason"] = "length"
    upstream = FakeUpstream(cut, says("Sorry."))
    await talk(world, upstream)
    assert error_of(results(upstream)[0]) == "mcp_invalid_arguments"
    assert world.sent == []


@pytest.mark.requirement("chat:loop:unknown-tool")
@pytest.mark.parametrize("name", ["mcp__fs__missing", "mcp__other__read", "nonsense", "", "a b\n"])
async def test_a_name_that_nobody_offered_goes_back_to_the_model(
    world: World, stream: bool, name: str
):
    upstream = FakeUpstream(asks(call(name)), says("Sorry."))
    ended = await talk(world, upstream, stream=stream)
    assert error_of(results(upstream)[0]) == "mcp_invalid_arguments"
    assert (ended.content, ended.calls[0].status, world.sent) == ("Sorry.", "failed", [])


async def test_a_tool_that_policy_denies_is_written_down_as_denied():
    world = World(server("fs", allowed_tools=["read"]))
    upstream = FakeUpstream(asks(call(WRITE)), says("Sorry."))
    await talk(world, upstream)
    assert (world.ledger.last.status, world.ledger.last.tool_name) == ("denied", "write")
    assert world.sent == []


async def test_another_spelling_of_an_offered_tool_is_understood(world: World):
    upstream = FakeUpstream(asks(call("mcp.fs.read")), says("Done."))
    ended = await talk(world, upstream)
    assert (len(world.sent), ended.calls[0].name) == (1, READ)


@pytest.mark.requirement("chat:loop:server-down", "outcomes:not-the-end")
async def test_a_server_that_is_down_is_an_error_the_model_reads(world: World, stream: bool):
    world.caller.answers("read", ServerUnavailable("it is down"))
    upstream = FakeUpstream(asks(call(READ)), says("Sorry."))
    ended = await talk(world, upstream, stream=stream)
    error = json.loads(results(upstream)[0]["content"])["error"]
    assert (error["code"], error["retryable"]) == ("mcp_unavailable", True)
    assert (ended.content, ended.calls[0].error) == ("Sorry.", "mcp_unavailable")


@pytest.mark.requirement("chat:loop:per-tool-timeout")
async def test_a_tool_that_takes_too_long_is_an_error_the_model_reads(world: World):
    world.caller.answers("read", DeadlineExceeded("8 s are up"))
    upstream = FakeUpstream(asks(call(READ)), says("Sorry."))
    ended = await talk(world, upstream)
    assert error_of(results(upstream)[0]) == "mcp_timeout"
    assert ended.content == "Sorry."


async def test_missing_and_doubled_ids_are_made_up(world: World, stream: bool):
    upstream = FakeUpstream(
        asks(call(READ, None, None), call(WRITE, None, "x"), call(READ, {"text": "b"}, "x")),
        says("Done."),
    )
    await talk(world, upstream, stream=stream)
    ids = [m["tool_call_id"] for m in results(upstream)]
    assert len(set(ids)) == 3
    assert ids[1] == "x"
    asked = upstream.asked[1]["messages"][1]["tool_calls"]
    assert [one["id"] for one in asked] == ids


# --- the caller's own tools


@pytest.mark.requirement("chat:loop:caller-tools")
async def test_calls_of_the_callers_tools_are_handed_back(world: World, stream: bool):
    upstream = FakeUpstream(asks(call("own", {"a": 1}, "c9")))
    ended = await talk(world, upstream, stream=stream, tools=[OWN])
    assert ended.finish_reason == "tool_calls"
    assert ended.tool_calls == (call("own", '{"a": 1}', "c9"),)
    assert (len(upstream.asked), ended.calls) == (1, ())


async def test_a_mixed_turn_makes_our_calls_and_hands_the_others_back(world: World):
    world.caller.answers("read", text("the file"))
    mixed = asks(call("own", None, "c1"), call(READ, None, "c2"))
    ended = await talk(world, FakeUpstream(mixed), tools=[OWN])
    assert [one["id"] for one in ended.tool_calls] == ["c1"]
    [asked, result] = ended.appended
    assert [one["id"] for one in objects(asked["tool_calls"])] == ["c1", "c2"]
    assert result == {"role": "tool", "tool_call_id": "c2", "content": "the file"}


async def test_a_custom_tool_of_the_caller_is_handed_back_as_it_came(world: World):
    custom = {"id": "c1", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
    own = {"type": "custom", "custom": {"name": "sql"}}
    ended = await talk(world, FakeUpstream(asks(custom)), tools=[own])
    assert ended.tool_calls == (custom,)


async def test_a_name_that_a_model_made_up_is_not_repeated_at_length(world: World):
    upstream = FakeUpstream(asks(call("x" * 100_000, None, "i" * 1000)), says("Sorry."))
    ended = await talk(world, upstream)
    [report] = ended.calls
    assert (len(report.name), len(report.call_id) < 100) == (200, True)
    assert len(results(upstream)[0]["content"]) < 1000


async def test_each_request_to_the_model_waits_for_its_turn(world: World, stream: bool):
    upstream = FakeUpstream(asks(call(READ)), says("Done."))
    asked: list[int] = []

    async def turn() -> None:
        asked.append(len(upstream.asked))

    await talk(world, upstream, stream=stream, wait_turn=turn)
    assert asked == [0, 1]
