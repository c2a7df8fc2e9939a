"""What a server writes into its definitions is shown like a result: without credentials."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from bascule.doors.tools.api import tools_body
from bascule.node.bridge.session import Session
from tests.node.fakes import World, definition, failed, succeeded
from tests.policy.build import server

SECRET = "hunter2-but-longer"
MASK = "[masked:known-value]"
TELLING: dict[str, Any] = {
    "title": f"Read with {SECRET}",
    "description": f"Uses the token {SECRET}.",
    "annotations": {"title": SECRET, "readOnlyHint": True},
    "outputSchema": {"type": "object", "properties": {"key": {"const": SECRET}}},
    "inputSchema": {
        "type": "object",
        "description": SECRET,
        "properties": {
            "mode": {"enum": ["plain", SECRET], "default": SECRET},
            "text": {"type": "string", "examples": [f"x {SECRET} y"]},
        },
    },
    "_meta": {"note": SECRET},
}


def world(**fields: Any) -> World:
    made = World(server("fs", **fields))
    made.caller.hide(SECRET)
    made.caller.offers(made.records[0], definition("read", **TELLING), "write")
    return made


async def shown(session: Session) -> str:
    """Everything that any face shows of the tools."""
    tools = await session.tools()
    faces = [tools.openai(), tools.anthropic(), tools_body(tools, definitions=True)]
    return json.dumps(msgspec.to_builtins(faces)) + repr([*tools])


@pytest.mark.requirement("hygiene:leaks:definitions")
async def test_a_known_value_in_a_definition_is_shown_masked_at_every_face():
    session = world().session()
    told = await shown(session)
    assert SECRET not in told
    assert MASK in told
    tools = await session.tools()
    assert tools[0].title == f"Read with {MASK}"
    assert "fs: credentials masked in the definition of read: known-value (1)" in tools.warnings


@pytest.mark.requirement("hygiene:leaks:definitions")
async def test_what_is_masked_in_a_definition_is_still_called_and_validated_as_it_was_listed():
    made = world()
    session = made.session()
    await session.tools()
    succeeded(await session.call("mcp__fs__read", {"mode": "plain"}))
    refused = failed(await session.call("mcp__fs__read", {"mode": MASK}), "mcp_invalid_arguments")
    assert SECRET not in repr(refused)
    assert made.sent[0].payload == b'{"mode":"plain"}'


@pytest.mark.requirement("hygiene:leaks:definitions")
async def test_definitions_are_scanned_once_for_a_list_and_a_set_of_known_values():
    made = world()
    session = made.session()
    first, second = await session.tools(), await made.session().tools()
    assert first[0] is second[0]
    made.caller.hide(SECRET, "plain-but-also-secret")
    made.caller.offers(made.records[0], definition("read", **TELLING), definition("write"))
    assert (await session.tools())[0] is not first[0]


@pytest.mark.requirement("hygiene:leaks:definitions", "hygiene:leaks:off")
async def test_under_off_definitions_are_shown_as_they_are():
    assert SECRET in await shown(world(hygiene={"leaks": "off"}).session())


@pytest.mark.requirement("hygiene:leaks:definitions", "hygiene:leaks:block")
async def test_under_block_such_a_tool_is_not_shown():
    session = world(hygiene={"leaks": "block"}).session()
    tools = await session.tools()
    assert tools.names == ("mcp__fs__write",)
    assert any("is not shown" in warning for warning in tools.warnings)


async def test_a_tool_whose_name_holds_a_known_value_is_not_shown():
    made = World()
    made.caller.hide(SECRET)
    made.caller.offers(made.records[0], definition(SECRET), "read")
    tools = await made.session().tools()
    assert tools.names == ("mcp__fs__read",)
    assert SECRET not in repr(tools.warnings)
