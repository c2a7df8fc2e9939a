"""The tool descriptor: what a server listed, and its digest."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.model.tool import definition_digest, describe
from tests.policy.build import server

DEFINITION: dict[str, Any] = {
    "name": "read_file",
    "title": "Read",
    "description": "Reads a file.",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}},
    "outputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
    "x-vendor": [1, {"deep": None}],
}


@pytest.mark.requirement("record:descriptor:fields")
def test_a_descriptor_carries_what_the_server_listed_and_the_model_facing_name():
    tool = describe(server("fs"), DEFINITION)
    assert (tool.server_id, tool.name, tool.model_name) == ("fs", "read_file", "mcp__fs__read_file")
    assert tool.description == "Reads a file."
    assert tool.input_schema == DEFINITION["inputSchema"]
    assert tool.output_schema == {"type": "object"}
    assert tool.definition == DEFINITION
    assert tool.title == "Read"
    assert tool.digest == definition_digest(DEFINITION)


def test_a_missing_description_and_title_are_filled_in():
    tool = describe(server("fs"), {"name": "x", "inputSchema": {"type": "object"}})
    assert (tool.description, tool.title, tool.annotations) == ("", "x", None)


def test_the_name_comes_from_the_namespace_of_the_record():
    tool = describe(server("fs", tool_namespace="files.v2"), DEFINITION)
    assert tool.model_name == "files__v2__read_file"


@pytest.mark.parametrize(
    "broken",
    [
        {"name": ""},
        {"name": None},
        {"name": 7},
        {"inputSchema": None},
        {"inputSchema": []},
        {"inputSchema": {"type": "array"}},
        {"inputSchema": {}},
    ],
)
def test_a_tool_that_cannot_be_used_is_refused(broken: dict[str, Any]):
    with pytest.raises(ValueError, match="tool"):
        describe(server("fs"), DEFINITION | broken)


@pytest.mark.requirement("record:descriptor:digest")
def test_the_digest_does_not_depend_on_the_order_of_keys():
    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in reversed(value)}
        return value

    assert list(turned(DEFINITION)) != list(DEFINITION)
    assert definition_digest(turned(DEFINITION)) == definition_digest(DEFINITION)


@pytest.mark.requirement("record:descriptor:digest")
@pytest.mark.parametrize(
    "change",
    [
        {"name": "read_files"},
        {"description": "Reads a file"},
        {"annotations": {"readOnlyHint": False}},
        {"annotations": {"readOnlyHint": 1}},
        {"annotations": {}},
        {"inputSchema": {"type": "object", "properties": {"path": {"type": "number"}}}},
        {"x-vendor": [1, {"deep": 0}]},
        {"x-vendor": [{"deep": None}, 1]},
        {"x-other": None},
    ],
)
def test_the_digest_changes_with_what_is_listed(change: dict[str, Any]):
    assert definition_digest(DEFINITION | change) != definition_digest(DEFINITION)
