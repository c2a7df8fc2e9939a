"""The built-in model that is none: what it reads, calls and says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from bascule.demo.rehearsal import Rehearsal, Wish, read_wishes, resolve
from bascule.testing import FakeClock

Json = dict[str, Any]
TOOLS = ("mcp__time__get_current_time", "mcp__notes__list", "mcp__notes__read", "weather")
REHEARSAL = Rehearsal(clock=FakeClock())


def tools(*names: str) -> list[Json]:
    return [
        {"type": "function", "function": {"name": name, "description": f"About {name}.\nMore."}}
        for name in names
    ]


def body(text: Any, *since: Mapping[str, Any], offered: Sequence[str] = TOOLS, **more: Any) -> Json:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": text}]
    return {"model": "rehearsal", "messages": [*messages, *since], "tools": tools(*offered), **more}


async def answered(asked: Json) -> Json:
    """Return the assistant's message; whole and streamed it is the same."""
    whole = await REHEARSAL.complete(asked, seconds=5)
    message = whole["choices"][0]["message"]
    chunks = [chunk async for chunk in REHEARSAL.stream(asked, seconds=5)]
    assert joined(chunks) == {**message, "finish_reason": whole["choices"][0]["finish_reason"]}
    return message


def joined(chunks: list[Json]) -> Json:
    """Put a streamed message together."""
    text, made, finish = "", {}, None
    for chunk in chunks:
        choice = chunk["choices"][0]
        finish = choice["finish_reason"] or finish
        text += choice["delta"].get("content") or ""
        for part in choice["delta"].get("tool_calls", ()):
            call = made.setdefault(part["index"], {"function": {"name": "", "arguments": ""}})
            call |= {key: part[key] for key in ("id", "type") if key in part}
            for key, value in part["function"].items():
                call["function"][key] += value
    message: Json = {"role": "assistant", "content": text or None, "refusal": None}
    if made:
        message["tool_calls"] = [made[index] for index in sorted(made)]
    return {**message, "finish_reason": finish}


def called(message: Json) -> list[tuple[str, Any]]:
    functions = [call["function"] for call in message.get("tool_calls", ())]
    return [(one["name"], json.loads(one["arguments"])) for one in functions]


def after(message: Json, *results: str) -> list[Json]:
    """Return a turn's message and the results of its calls."""
    calls = message["tool_calls"]
    assert len(calls) == len(results)
    return [
        message,
        *(
            {"role": "tool", "tool_call_id": call["id"], "content": result}
            for call, result in zip(calls, results, strict=True)
        ),
    ]


# --- reading


@pytest.mark.parametrize(
    ("text", "turns"),
    [
        ("call time.now", [[("time.now", {})]]),
        ('Please call a.b with {"x": [1, {"y": "}"}]}.', [[("a.b", {"x": [1, {"y": "}"}]})]]),
        ("call a.b and call c.d", [[("a.b", {}), ("c.d", {})]]),
        ("call a.b and c.d, e__f", [[("a.b", {}), ("c.d", {}), ("e__f", {})]]),
        ("call a then call b", [[("a", {})], [("b", {})]]),
        ("call a.b with {} and then c.d", [[("a.b", {})], [("c.d", {})]]),
        ("call a\ncall b", [[("a", {})], [("b", {})]]),
        ('call a {"x": 1} and call b{"y": 2}', [[("a", {"x": 1}), ("b", {"y": 2})]]),
        ('call a with {"x": "then call b"}', [[("a", {"x": "then call b"})]]),
        ("call a and tell me what it says", [[("a", {})]]),
        ("call a with {broken and call b", [[("a", None), ("b", {})]]),
        ('call a with {"x": NaN}', [[("a", None)]]),
        ('call a with {"x": "\\ud800"}', [[("a", None)]]),
        ("CALL a.b THEN Call c", [[("a.b", {})], [("c", {})]]),
        ("I recall nothing", []),
        ("", []),
    ],
)
def test_instructions_are_read_turn_by_turn(text: str, turns: list[list[tuple[str, Any]]]):
    assert read_wishes(text) == [[Wish(name, given) for name, given in turn] for turn in turns]


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        ("mcp__time__get_current_time", "mcp__time__get_current_time"),
        ("time.get_current_time", "mcp__time__get_current_time"),
        ("time/get_current_time", "mcp__time__get_current_time"),
        ("mcp.time.get_current_time", "mcp__time__get_current_time"),
        ("get_current_time", "mcp__time__get_current_time"),
        ("weather", "weather"),
        ("read", "mcp__notes__read"),
        ("ead", None),
        ("files.read", None),
    ],
)
def test_a_tool_is_found_in_any_spelling(text: str, tool: str | None):
    assert resolve(text, TOOLS) == tool


def test_a_bare_name_that_two_servers_have_means_neither():
    assert resolve("read", ["mcp__a__read", "mcp__b__read"]) is None
    assert resolve("b.read", ["mcp__a__read", "mcp__b__read"]) == "mcp__b__read"


def test_absurd_instructions_are_read_in_no_time_and_only_so_many():
    assert sum(map(len, read_wishes("call a and " * 100_000))) == 64
    assert read_wishes("call " + "a" * 1_000_000 + " with " + "{" * 1_000_000)
    assert read_wishes("and " + "a" * 1_000_000) == []


# --- calling and answering


async def test_it_calls_as_told_turn_by_turn_and_then_says_what_the_tools_said():
    text = 'call time.get_current_time with {"timezone": "UTC"} and list then notes.read'
    text = text.replace("and list", "and call list")
    first = await answered(body(text))
    assert called(first) == [
        ("mcp__time__get_current_time", {"timezone": "UTC"}),
        ("mcp__notes__list", {}),
    ]
    turn = after(first, "12:00", "welcome")
    second = await answered(body(text, *turn))
    assert called(second) == [("mcp__notes__read", {})]
    turn += after(second, "hello")
    last = await answered(body(text, *turn))
    assert last["content"] == (
        "I am a rehearsal, not a model. mcp__time__get_current_time said: 12:00\n"
        "mcp__notes__list said: welcome\n"
        "mcp__notes__read said: hello"
    )
    ids = [call["id"] for message in (first, second) for call in message["tool_calls"]]
    assert len(set(ids)) == 3


async def test_without_parallel_calls_each_has_a_turn_of_its_own():
    text = "call list and call read"
    first = await answered(body(text, parallel_tool_calls=False))
    assert called(first) == [("mcp__notes__list", {})]
    second = await answered(body(text, *after(first, "a"), parallel_tool_calls=False))
    assert called(second) == [("mcp__notes__read", {})]


async def test_only_what_the_person_said_last_counts():
    first = await answered(body("call list"))
    turn = [*after(first, "a"), {"role": "user", "content": [{"type": "text", "text": "thanks"}]}]
    message = await answered(body("call list", *turn))
    assert "I only do what is written" in message["content"]


async def test_a_tool_that_is_not_offered_is_not_called_and_it_says_so():
    message = await answered(body("call files.delete and call list"))
    assert called(message) == [("mcp__notes__list", {})]
    last = await answered(body("call files.delete and call list", *after(message, "a")))
    assert last["content"].endswith("said: a\nNo tool is offered that is called files.delete.")
    alone = await answered(body('call list with {"x": }'))
    assert alone["content"].endswith("I cannot read the arguments for list.")


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "function": {"name": "weather"}},
        {"type": "function", "name": "weather"},
    ],
)
async def test_a_forced_tool_is_called_with_the_arguments_written_for_it(choice: Json):
    message = await answered(body("hello", tool_choice=choice))
    assert called(message) == [("weather", {})]
    message = await answered(body('call list, call weather with {"x": 1}', tool_choice=choice))
    assert called(message) == [("weather", {"x": 1})]


async def test_required_calls_something_and_none_calls_nothing():
    assert called(await answered(body("hello", tool_choice="required"))) == [(TOOLS[0], {})]
    assert called(await answered(body("call list", tool_choice="required"))) == [
        ("mcp__notes__list", {})
    ]
    none = await answered(body("call list", tool_choice="none"))
    assert not called(none)
    assert not called(await answered(body("call list", offered=(), tool_choice="required")))


async def test_asked_what_it_can_do_it_lists_the_tools_that_are_offered():
    said = (await answered(body("What can you do?")))["content"]
    assert said.startswith("I am a rehearsal, not a model. I can call these tools:\n")
    assert "- weather: About weather." in said
    assert "More" not in said
    none = (await answered(body("what can you do", offered=())))["content"]
    assert "none are offered" in none


async def test_it_is_deterministic_and_counts_its_words():
    asked = body("hello there")
    first = await REHEARSAL.complete(asked, seconds=5)
    assert first == await REHEARSAL.complete(asked, seconds=5)
    assert first["usage"]["prompt_tokens"] == 4
    assert first["usage"]["completion_tokens"] == len(
        first["choices"][0]["message"]["content"].split()
    )
    assert first["id"] != (await REHEARSAL.complete(body("else"), seconds=5))["id"]
    streaming = {**asked, "stream_options": {"include_usage": True}}
    chunks = [chunk async for chunk in REHEARSAL.stream(streaming, seconds=5)]
    assert (chunks[-1]["choices"], chunks[-1]["usage"]) == ([], first["usage"])
    assert len(chunks) > 10


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"messages": None},
        {"messages": [3, {"role": "user"}, {"role": "assistant", "tool_calls": 7}]},
        {"messages": [{"role": "user", "content": [3, {"type": "image"}]}], "tools": [3, {}]},
        {"messages": [{"role": "tool", "content": None}], "tool_choice": {"type": "function"}},
        {"messages": [{"role": "assistant", "tool_calls": [{"id": []}]}]},
        {"messages": [{"role": "tool", "tool_call_id": {}}]},
    ],
)
async def test_odd_requests_get_an_honest_answer(asked: Json):
    assert (await answered(asked))["content"].startswith("I am a rehearsal, not a model.")


async def test_forwarded_requests_are_answered_as_a_server_would():
    plain = body("hello")
    async with REHEARSAL.forward(json.dumps(plain).encode()) as raw:
        answer = json.loads(b"".join([piece async for piece in raw.chunks]))
        assert (raw.status, raw.headers["content-type"]) == (200, "application/json")
    assert answer == await REHEARSAL.complete(plain, seconds=5)
    async with REHEARSAL.forward(json.dumps({**plain, "stream": True}).encode()) as raw:
        text = b"".join([piece async for piece in raw.chunks])
    assert text.startswith(b"data: {")
    assert text.endswith(b"data: [DONE]\n\n")
    for bad in (b"{", b"[]"):
        async with REHEARSAL.forward(bad) as raw:
            assert raw.status == 400
            assert b"error" in b"".join([piece async for piece in raw.chunks])
    assert await REHEARSAL.models() == ["rehearsal"]
