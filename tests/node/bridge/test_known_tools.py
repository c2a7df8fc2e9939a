"""The tools that people may read of: cleaned once for a list and the values to hide."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.model.server import ServerRecord, Stdio
from bascule.model.tool import ToolDescriptor, describe
from bascule.node.bridge.known_tools import KnownTools
from bascule.policy.leaks import Scanner

FS = ServerRecord(server_id="fs", transport="stdio", stdio=Stdio(command="x"))
SECRET = "correct-horse-battery-staple-9"
HIDING = Scanner(frozenset({SECRET}))


def tool(name: str, **definition: Any) -> ToolDescriptor:
    return describe(FS, {"name": name, "inputSchema": {"type": "object"}, **definition})


@pytest.mark.requirement("admin:tools:catalogue")
def test_what_servers_wrote_is_masked_and_made_harmless_but_names_decide_as_they_are():
    schema = {"type": "object", "properties": {"a": {"description": f"like {SECRET}"}}}
    told = tool("re\u202ead", description=f"key {SECRET}\x1b[2J", inputSchema=schema)
    named = tool(SECRET)
    [shown] = KnownTools().of({"fs": (told, named)}, HIDING, HIDING)["fs"]
    assert (shown.name, shown.model_name, shown.digest) == (told.name, told.model_name, told.digest)
    assert SECRET not in repr((shown.description, shown.definition, shown.input_schema))
    assert shown.description.endswith("\\x1b[2J")


def test_a_list_is_looked_at_again_only_when_it_or_the_values_to_hide_changed():
    known, listed = KnownTools(), {"fs": (tool("read", description=SECRET),)}
    first = known.of(listed, HIDING, HIDING)["fs"]
    assert known.of(listed, HIDING, HIDING)["fs"] is first
    other = known.of(listed, HIDING, Scanner())["fs"]
    assert other[0].description == SECRET
    assert known.of({"fs": (tool("write"),)}, HIDING, HIDING)["fs"][0].name == "write"
    assert known.of({}, HIDING, HIDING) == {}
