"""The tools of a session, as agent developers hand them to a model."""

from __future__ import annotations

import json

import pytest

from bascule.errors import ServerUnavailable
from bascule.model.tool import ToolDescriptor
from bascule.node.bridge.toolset import ToolSet
from tests.node.fakes import TEXT_SCHEMA, World, definition
from tests.policy.build import server


@pytest.mark.requirement("bridge:tools:openai")
async def test_openai_entries():
    entries = (await World().session(tool_allowlist=["read"]).tools()).openai()
    assert entries == [
        {
            "type": "function",
            "function": {
                "name": "mcp__fs__read",
                "description": "The read tool.",
                "parameters": TEXT_SCHEMA,
            },
        }
    ]
    assert json.loads(json.dumps(entries)) == entries


@pytest.mark.requirement("bridge:tools:anthropic")
async def test_anthropic_entries():
    entries = (await World().session(tool_allowlist=["read"]).tools()).anthropic()
    assert entries == [
        {
            "name": "mcp__fs__read",
            "description": "The read tool.",
            "input_schema": TEXT_SCHEMA,
        }
    ]


async def test_descriptions_lose_their_hidden_characters_wherever_they_stand():
    world = World()
    hidden = "Reads.\U000e0041\u202e\x1b[2J"
    schema = {
        "type": "object",
        "description": hidden,
        "properties": {
            "path": {"type": "string", "title": hidden, "description": hidden},
            "description": {"type": "array", "items": {"description": hidden}},
        },
    }
    world.caller.offers(
        world.records[0], definition("read", description=hidden, inputSchema=schema)
    )
    tools = await world.session().tools()
    for shown in (tools.openai(), tools.anthropic()):
        said = json.dumps(shown, ensure_ascii=False)
        assert "Reads." in said
        assert not {"\U000e0041", "\u202e"} & set(said)
        assert "\\u001b" not in said
    assert tools[0].input_schema == schema  # what arguments are checked against is left alone


async def test_the_order_is_the_policys_for_servers_and_alphabetical_for_tools():
    world = World(server("a"), server("b"))
    tools = await world.session("b", "a").tools()
    assert tools.names == tuple(
        f"mcp__{server_id}__{tool}"
        for server_id in ("b", "a")
        for tool in ("delete", "read", "write")
    )


async def test_a_tool_set_is_a_sequence():
    tools = await World().session().tools()
    assert len(tools) == 3
    assert isinstance(tools[0], ToolDescriptor)
    assert [tool.name for tool in tools[1:]] == ["read", "write"]
    assert [tool.name for tool in reversed(tools)] == ["write", "read", "delete"]
    assert tools[1] in tools
    assert repr(tools) == "ToolSet(mcp__fs__delete, mcp__fs__read, mcp__fs__write)"
    assert not ToolSet((), revision=1)


async def test_a_tool_set_says_why_a_server_did_not_list():
    world = World(server("a"), server("b"))
    world.caller.fails("b", ServerUnavailable("KEY is not set", reason="env_missing"))
    tools = await world.session("a", "b", "nowhere").tools()
    assert tools.missing("a") is None
    down, unknown = tools.unlisted["b"], tools.unlisted["nowhere"]
    assert (down.code, down.reason, down.message) == (
        "mcp_unavailable",
        "env_missing",
        "KEY is not set",
    )
    assert (unknown.code, unknown.reason) == ("mcp_policy_denied", "unknown_server")
    assert (down.retryable, unknown.retryable) == (True, False)
