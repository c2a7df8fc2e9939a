"""Which tools a model is offered, and what it is told about choosing."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.errors import ServerUnavailable
from bascule.loop.offer import ToolNotOffered, UnknownTool
from bascule.loop.request import BadChat
from tests.loop.fakes import FakeUpstream, asks, call, says
from tests.loop.talking import OWN, READ, error_of, results, talk
from tests.node.fakes import World, definition
from tests.policy.build import server

NO_TOOLS = {"allowed_tools": {"mode": "auto", "tools": []}}

# --- choosing


@pytest.mark.requirement("chat:tool-choice:none")
async def test_tool_choice_none_injects_nothing(world: World):
    upstream = FakeUpstream(says("Hi."))
    await talk(world, upstream, tool_choice="none")
    assert "tools" not in upstream.asked[0]
    assert "tool_choice" not in upstream.asked[0]


async def test_tool_choice_none_keeps_the_callers_tools(world: World):
    upstream = FakeUpstream(says("Hi."))
    await talk(world, upstream, tool_choice="none", tools=[OWN])
    assert upstream.asked[0]["tools"] == [OWN]
    assert upstream.asked[0]["tool_choice"] == "none"


async def test_what_was_not_offered_is_not_called(world: World):
    upstream = FakeUpstream(asks(call(READ)), says("Done."))
    await talk(world, upstream, tool_choice="none")
    assert world.sent == []
    assert error_of(results(upstream)[0]) == "mcp_policy_denied"


@pytest.mark.requirement("chat:tool-choice:auto")
async def test_tool_choice_auto_leaves_the_model_its_choice_of_what_is_allowed():
    world = World(server("fs", allowed_tools=["read", "write"]))
    upstream = FakeUpstream(asks(call(READ)), asks(call("mcp__fs__delete")), says("Done."))
    await talk(world, upstream, tool_choice="auto")
    assert [body["tool_choice"] for body in upstream.asked] == ["auto"] * 3
    for body in upstream.asked:
        assert [one["function"]["name"] for one in body["tools"]] == [READ, "mcp__fs__write"]
    assert [sent.tool for sent in world.sent] == ["read"]
    assert error_of(results(upstream)[-1]) == "mcp_policy_denied"


async def test_a_required_tool_is_required_once(world: World):
    upstream = FakeUpstream(asks(call(READ)), says("Done."))
    await talk(world, upstream, tool_choice="required")
    assert [body["tool_choice"] for body in upstream.asked] == ["required", "auto"]


@pytest.mark.requirement("chat:tool-choice:forced")
@pytest.mark.parametrize("name", [READ, "mcp.fs.read", "fs/read"])
@pytest.mark.parametrize("flat", [False, True])
async def test_a_forced_tool_is_passed_on_by_its_model_facing_name_once(
    world: World, name: str, flat: bool
):
    inner: dict[str, Any] = {"name": name}
    choice = {"type": "function", **(inner if flat else {"function": inner})}
    upstream = FakeUpstream(asks(call(READ)), says("Done."))
    await talk(world, upstream, tool_choice=choice)
    forced = {"type": "function", "function": {"name": READ}}
    assert [body["tool_choice"] for body in upstream.asked] == [forced, "auto"]


async def test_a_callers_own_tool_may_be_forced(world: World):
    choice = {"type": "function", "function": {"name": "own"}}
    upstream = FakeUpstream(asks(call("own")))
    await talk(world, upstream, tool_choice=choice, tools=[OWN])
    assert upstream.asked[0]["tool_choice"] == choice


async def test_a_part_of_the_tools_may_be_chosen(world: World):
    among = {"mode": "required", "tools": [{"type": "function", "function": {"name": "fs/read"}}]}
    upstream = FakeUpstream(asks(call(READ)), says("Done."))
    await talk(world, upstream, tool_choice={"type": "allowed_tools", "allowed_tools": among})
    first, second = (body["tool_choice"]["allowed_tools"] for body in upstream.asked)
    assert first["tools"] == [{"type": "function", "function": {"name": READ}}]
    assert (first["mode"], second["mode"]) == ("required", "auto")


@pytest.mark.requirement("chat:tool-choice:forced-outside")
@pytest.mark.parametrize("name", ["mcp__fs__missing", "mcp.other.read", "nonsense"])
async def test_a_forced_tool_outside_the_set_is_refused_before_anything_is_sent(
    world: World, name: str
):
    upstream = FakeUpstream(says("never"))
    with pytest.raises(UnknownTool, match="there is no tool of that name"):
        await talk(world, upstream, tool_choice={"type": "function", "function": {"name": name}})
    assert upstream.asked == []


@pytest.mark.requirement("chat:tool-choice:forced-outside")
async def test_a_forced_tool_that_policy_denies_is_refused_as_denied():
    world = World(server("fs", allowed_tools=["read"]))
    upstream = FakeUpstream(says("never"))
    choice = {"type": "function", "function": {"name": "fs/write"}}
    with pytest.raises(ToolNotOffered, match="denied"):
        await talk(world, upstream, tool_choice=choice)
    assert upstream.asked == []


@pytest.mark.requirement("chat:tools:name-clash")
async def test_a_callers_tool_with_one_of_our_names_is_refused(world: World):
    clash = {"type": "function", "function": {"name": READ}}
    with pytest.raises(BadChat, match=READ):
        await talk(world, FakeUpstream(says("never")), tools=[clash])


@pytest.mark.requirement("chat:no-tools-proceeds")
@pytest.mark.parametrize("choice", ["required", {"type": "allowed_tools", **NO_TOOLS}])
async def test_a_conversation_without_tools_goes_on(world: World, choice: Any):
    world.caller.fails("fs", ServerUnavailable("it is down"))
    upstream = FakeUpstream(says("Hi."))
    ended = await talk(world, upstream, tool_choice=choice, parallel_tool_calls=True)
    assert ended.content == "Hi."
    assert upstream.asked[0].keys() == {"model", "messages", "stream"}
    assert "it is down" in ended.warnings[0]
    assert "tool_choice" in ended.warnings[1]


@pytest.mark.requirement("hygiene:leaks:definitions")
async def test_a_definition_is_masked_for_a_model_as_soon_as_a_value_in_it_is_known(world: World):
    secret = "hunter2-but-longer"
    telling = definition("read", description=f"With {secret}.")
    for hidden in ((), (secret,)):
        world.caller.hide(*hidden)
        world.caller.offers(world.records[0], telling)
        upstream = FakeUpstream(says("Hi."))
        await talk(world, upstream)
        assert (secret in repr(upstream.asked[0]["tools"])) == (not hidden)
