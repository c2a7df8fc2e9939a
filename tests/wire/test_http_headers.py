"""The headers of MCP over HTTP: they repeat the body exactly, or the tool is not one of ours."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.inbound import decode_header_value

from bascule.wire.http_headers import (
    header_paths,
    header_value,
    parameter_headers,
    request_headers,
)

MARK = "x-mcp-header"


def marked(name: Any = "Region", type: Any = "string") -> dict[str, Any]:
    return {"type": type, MARK: name}


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_a_request_is_named_in_its_headers():
    assert request_headers("2026-07-28", "tools/list", None) == {
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/list",
    }
    assert request_headers("2026-07-28", "tools/call", "naïve")["Mcp-Name"] == (
        "=?base64?bmHDr3Zl?="
    )


@pytest.mark.parametrize("value", ["a", "two words", "a:b;c=d", "~", "=?base64?", "x" * 5000])
def test_what_a_header_can_hold_stands_there_as_it_is(value):
    assert header_value(value) == value


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("ü", "=?base64?w7w=?="),
        ("line\r\nInjected: 1", "=?base64?bGluZQ0KSW5qZWN0ZWQ6IDE=?="),
        (" edge", "=?base64?IGVkZ2U=?="),
        ("edge\t", "=?base64?ZWRnZQk=?="),
        ("\x7f", "=?base64?fw==?="),
        ("", "=?base64??="),
        ("=?base64?eA==?=", "=?base64?PT9iYXNlNjQ/ZUE9PT89?="),
    ],
)
def test_what_a_header_cannot_hold_travels_in_base64(value, encoded):
    assert header_value(value) == encoded


@given(st.text())
def test_every_text_is_a_safe_header_that_the_official_reader_undoes(value: str):
    sent = header_value(value)
    assert sent.isascii()
    assert not set(sent) & {"\r", "\n", "\0"}
    assert sent == sent.strip()
    assert decode_header_value(sent) == value


def test_half_a_surrogate_pair_breaks_nothing():
    assert header_value("\ud800").isascii()


def test_arguments_are_found_by_their_place():
    inner = {"type": "object", "properties": {"limit": marked("Limit", "integer")}}
    found = header_paths(schema(region=marked(), plain={"type": "string"}, options=inner))
    assert found == (("Region", ("region",)), ("Limit", ("options", "limit")))


@pytest.mark.parametrize(
    "harmless",
    [
        {},
        {"type": "object"},
        {"properties": None},
        schema(a=True, b={"type": "string"}),
        schema(a={"type": "object", "default": {MARK: "Region"}}),
        schema(a={"enum": [{MARK: "Region"}], "examples": [{MARK: 7}], "const": {MARK: 7}}),
    ],
)
def test_a_schema_that_asks_for_nothing_gets_nothing(harmless):
    assert header_paths(harmless) == ()


@pytest.mark.parametrize(
    "nonsense",
    [
        schema(a=marked("")),
        schema(a=marked("two words")),
        schema(a=marked("colon:")),
        schema(a=marked("crlf\r\nX")),
        schema(a=marked("é")),
        schema(a=marked(7)),
        schema(a=marked(None)),
        schema(a=marked(["Region"])),
        schema(a=marked(), b=marked("region")),
        schema(a=marked(), b=schema(c=marked("REGION"))),
        schema(a=marked(type="object")),
        schema(a=marked(type="array")),
        schema(a=marked(type="null")),
        schema(a={MARK: "Region"}),
        schema(a={"type": "array", "items": marked()}),
        schema(a={"anyOf": [marked(), {"type": "null"}]}),
        {"$defs": {"a": marked()}},
        {"allOf": [schema(a=marked())]},
        {"if": schema(a=marked())},
        {"additionalProperties": marked()},
        {"patternProperties": {"^a": marked()}},
        {**schema(), MARK: "Region"},
    ],
)
def test_a_tool_that_asks_for_nonsense_is_refused(nonsense):
    with pytest.raises(ValueError, match=MARK):
        header_paths(nonsense)


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("north", "north"),
        ("süd", "=?base64?c8O8ZA==?="),
        ("", "=?base64??="),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-7, "-7"),
        (2**53 - 1, "9007199254740991"),
    ],
)
def test_an_argument_is_repeated_in_its_header(value, sent):
    paths = header_paths(schema(region=marked()))
    assert parameter_headers(paths, {"region": value}) == {"Mcp-Param-Region": sent}


@pytest.mark.parametrize(
    "arguments", [{}, {"region": None}, {"other": "x"}, None, [], "text", {"Region": "x"}]
)
def test_an_argument_that_is_not_there_has_no_header(arguments):
    assert parameter_headers(header_paths(schema(region=marked())), arguments) == {}


@pytest.mark.parametrize("options", [None, "text", [], {}, {"limit": None}])
def test_a_place_that_is_not_there_has_no_header(options):
    paths = header_paths(schema(options=schema(limit=marked("Limit", "integer"))))
    assert parameter_headers(paths, {"options": options}) == {}
    assert parameter_headers(paths, {"options": {"limit": 3}}) == {"Mcp-Param-Limit": "3"}


def test_a_list_of_types_is_refused_and_breaks_nothing():
    with pytest.raises(ValueError, match=MARK):
        header_paths(schema(a=marked(type=["string", "null"])))


def test_a_number_cannot_be_repeated_in_a_header():
    with pytest.raises(ValueError, match=MARK):
        header_paths(schema(a=marked(type="number")))


@pytest.mark.parametrize("name", ["default", "enum", "const", "examples", "properties", "$defs"])
def test_an_argument_may_be_called_like_a_keyword(name):
    assert header_paths(schema(**{name: marked()})) == (("Region", (name,)),)


@pytest.mark.parametrize("value", [{"a": 1}, [1]])
def test_what_is_no_plain_value_has_no_header(value):
    assert parameter_headers(header_paths(schema(region=marked())), {"region": value}) == {}
