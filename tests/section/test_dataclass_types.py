"""The specification's table of types, one test for each row, and what JSON values become."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Literal, get_type_hints

import pytest

from bascule.section.dataclasses import UNSET, SchemaType, params_type, result_type


def made(properties: dict[str, Any], *required: str, **more: Any) -> SchemaType:
    schema = {"type": "object", "properties": properties, "required": list(required), **more}
    return params_type("github", "create_issue", schema)


def type_of(schema: Any, **more: Any) -> Any:
    """The annotation of a required property."""
    return get_type_hints(made({"x": schema}, "x", **more).type)["x"]


def returns(schema: Any, value: Any) -> bool:
    """Whether a value of the property comes back exactly as it was."""
    schema_type = made({"x": schema})
    again = schema_type.dump(schema_type.load({"x": value}))["x"]
    return json.dumps(again) == json.dumps(value)


def refused(schema: Any, value: Any) -> str:
    with pytest.raises(ValueError, match=r"^\$") as caught:
        made({"x": schema}).load({"x": value})
    return str(caught.value)


@pytest.mark.requirement("section:type:string")
def test_string_is_str():
    assert type_of({"type": "string"}) is str
    assert returns({"type": "string"}, "é\n")
    assert refused({"type": "string"}, 1) == "$.x: must be string"


@pytest.mark.requirement("section:type:number")
def test_number_is_float_and_a_whole_number_stays_as_it_was_written():
    assert type_of({"type": "number"}) is float
    assert all(returns({"type": "number"}, value) for value in (1.5, 1, 1.0, -0.0, 2**70))
    assert refused({"type": "number"}, True) == "$.x: must be number or integer"


@pytest.mark.requirement("section:type:integer")
def test_integer_is_int_of_any_size_and_may_be_written_with_a_point():
    assert type_of({"type": "integer"}) is int
    assert all(returns({"type": "integer"}, value) for value in (1, 1.0, 2**200, 1e300))
    assert refused({"type": "integer"}, 1.5) == "$.x: must be integer"
    assert refused({"type": "integer"}, False) == "$.x: must be integer"


@pytest.mark.requirement("section:type:boolean")
def test_boolean_is_bool():
    assert type_of({"type": "boolean"}) is bool
    assert returns({"type": "boolean"}, True)
    assert refused({"type": "boolean"}, 1) == "$.x: must be boolean"


@pytest.mark.requirement("section:type:array")
def test_array_is_a_list_all_the_way_down():
    nested = {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}
    assert type_of(nested) == list[list[int]]
    assert type_of({"type": "array"}) == list[Any]
    assert returns(nested, [[1, 2], []])
    assert refused(nested, [[1], [2, "3"]]) == "$.x[1][1]: must be integer"


@pytest.mark.requirement("section:type:object")
def test_a_nested_object_is_a_dataclass_named_after_the_path():
    assignee = {"type": "object", "properties": {"name": {"type": "string"}}}
    schema_type = made({"assignee": assignee, "all": {"type": "array", "items": assignee}})
    assert list(schema_type.types) == [
        "GithubCreateIssueParams",
        "GithubCreateIssueParamsAssignee",
        "GithubCreateIssueParamsAllItem",
    ]
    inner = schema_type.types["GithubCreateIssueParamsAssignee"]
    assert get_type_hints(schema_type.type)["assignee"] == inner | None
    plain = {"assignee": {"name": "a"}, "all": [{"name": "b"}, {}]}
    loaded = schema_type.load(plain)
    assert loaded.assignee == inner(name="a")
    assert schema_type.dump(loaded) == plain


@pytest.mark.requirement("section:type:null")
def test_null_is_none():
    assert type_of({"type": "null"}) is type(None)
    assert returns({"type": "null"}, None)
    assert refused({"type": "null"}, 0) == "$.x: must be null"


@pytest.mark.requirement("section:type:optional")
def test_a_property_that_is_not_required_is_optional_and_left_out_when_unset():
    schema_type = made({"x": {"type": "string"}, "y": {"type": "integer"}}, "y")
    assert get_type_hints(schema_type.type) == {"x": str | None, "y": int}
    value = schema_type.type(y=1)
    assert value.x is None
    assert schema_type.dump(value) == {"y": 1}
    assert schema_type.load({"y": 1}) == value


@pytest.mark.requirement("section:type:optional")
@pytest.mark.parametrize(
    "schema",
    [
        {"type": ["string", "null"]},
        {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        {"enum": ["a", None]},
        {},
        True,
    ],
    ids=["type list", "anyOf", "enum", "empty", "true"],
)
def test_where_null_means_something_unset_is_a_value_of_its_own(schema: Any):
    schema_type = made({"x": schema})
    absent, null = schema_type.type(), schema_type.type(x=None)
    assert absent.x is UNSET
    assert absent.x is SchemaType.unset
    assert schema_type.dump(absent) == {}
    assert schema_type.dump(null) == {"x": None}
    assert schema_type.load({}) == absent
    assert schema_type.load({"x": None}) == null
    assert absent != null


@pytest.mark.requirement("section:type:optional")
def test_a_union_with_null_is_the_type_or_none():
    assert type_of({"type": ["string", "null"]}) == str | None
    assert type_of({"anyOf": [{"type": "string"}, {"type": "null"}]}) == str | None
    assert type_of({"type": ["null", "integer", "string"]}) == str | int | None


def test_a_list_of_scalars_is_a_literal():
    assert type_of({"enum": ["open", "closed", 3, True]}) == Literal["open", "closed", 3, True]
    assert type_of({"type": "string", "enum": ["a", 1, None]}) == Literal["a"]
    assert type_of({"const": "fixed"}) == Literal["fixed"]
    assert refused({"enum": ["a"]}, "b") == "$.x: must be one of the listed values"
    assert refused({"enum": [1]}, True) == "$.x: must be one of the listed values"
    assert refused({"enum": ["a"]}, {}) == "$.x: must be one of the listed values"
    assert returns({"enum": [1]}, 1.0)


def test_a_list_of_fractions_or_containers_is_only_their_types():
    assert type_of({"enum": [0.5, 1]}) == float | int
    assert type_of({"enum": [{"a": 1}, [1], "s"]}) == Literal["s"] | dict[str, Any] | list[Any]
    assert made({"x": {"enum": [[1]]}}).lossy == ("$.properties.x: enum",)
    assert made({"x": {"enum": [0.5]}}).lossy == ("$.properties.x: enum",)
    assert returns({"enum": [{"a": 1}]}, {"a": 1})


def test_a_list_of_very_many_values_is_only_their_type():
    many = {"enum": [f"v{n}" for n in range(3000)]}
    assert type_of(many) is str
    assert refused(many, "other") == "$.x: must be one of the listed values"


def test_an_array_of_fixed_length_is_a_tuple():
    pair = {
        "type": "array",
        "prefixItems": [{"type": "string"}, {"type": "integer"}],
        "items": False,
        "minItems": 2,
    }
    schema_type = made({"x": pair}, "x")
    assert get_type_hints(schema_type.type)["x"] == tuple[str, int]
    assert schema_type.lossy == ()
    assert schema_type.load({"x": ["a", 1]}).x == ("a", 1)
    assert schema_type.dump(schema_type.type(("a", 1))) == {"x": ["a", 1]}
    assert refused(pair, ["a"]) == "$.x: must have 2 items"
    assert refused(pair, ["a", "b"]) == "$.x[1]: must be integer"


def test_an_open_tuple_is_a_list_that_is_read_by_place():
    open_pair = {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}}
    schema_type = made({"x": open_pair}, "x")
    assert get_type_hints(schema_type.type)["x"] == list[str | int]
    assert schema_type.lossy == ("$.properties.x: prefixItems",)
    assert all(returns(open_pair, value) for value in ([], ["a"], ["a", 1, 2]))
    assert refused(open_pair, ["a", 1, "b"]) == "$.x[2]: must be integer"
    assert refused(open_pair, [1]) == "$.x[0]: must be string"


def test_a_tuple_whose_end_may_be_missing_is_a_list():
    short = {"type": "array", "prefixItems": [{"type": "string"}] * 2, "items": False}
    assert type_of(short) == list[str]
    assert all(returns(short, value) for value in ([], ["a"], ["a", "b"]))
    assert refused(short, ["a", "b", "c"]) == "$.x[2]: no value is accepted here"


def test_the_older_spelling_of_tuples_is_read_in_older_drafts():
    old = {
        "type": "array",
        "items": [{"type": "string"}, {"type": "integer"}],
        "additionalItems": False,
        "minItems": 2,
    }
    draft = {"$schema": "http://json-schema.org/draft-07/schema#"}
    assert type_of(old, **draft) == tuple[str, int]


def test_an_object_without_properties_is_a_dictionary():
    assert type_of({"type": "object"}) == dict[str, Any]
    counts = {"type": "object", "additionalProperties": {"type": "integer"}}
    assert type_of(counts) == dict[str, int]
    assert returns(counts, {"a": 1, "b c": 2})
    assert refused(counts, {"b c": "2"}) == "$.x['b c']: must be integer"
    assert refused(counts, []) == "$.x: must be an object"


def test_the_schemas_true_and_false_and_the_empty_one():
    assert type_of(True) is Any
    assert type_of({}) is Any
    assert returns({}, {"deep": [1, {"er": None}]})
    schema_type = made({"never": False, "x": True})
    assert [item.name for item in dataclasses.fields(schema_type.type)] == ["x"]
    assert schema_type.lossy == ("$.properties.never: false",)


@pytest.mark.requirement("section:schema:output")
@pytest.mark.parametrize(
    "schema",
    [None, {}, {"type": "object"}, {"type": "array", "items": {}}, {"type": "string"}],
    ids=["absent", "empty", "any object", "array", "text"],
)
def test_a_result_that_declares_no_properties_is_a_dictionary(schema: Any):
    schema_type = result_type("github", "search", schema)
    assert schema_type.type == dict[str, Any]
    plain = {"content": [{"type": "text"}]}
    assert schema_type.dump(schema_type.load(plain)) == plain


@pytest.mark.requirement("section:schema:output", "section:dataclass:named")
def test_a_result_with_properties_is_a_dataclass():
    schema = {
        "type": "object",
        "properties": {"total": {"type": "integer"}, "items": {"type": "array"}},
        "required": ["total"],
    }
    schema_type = result_type("github", "search_code", schema)
    assert schema_type.type.__name__ == "GithubSearchCodeResult"
    loaded = schema_type.load({"total": 2, "items": [1], "more": True})
    assert (loaded.total, loaded.items) == (2, [1])
    with pytest.raises(ValueError, match=r"^\$\.total: is required$"):
        schema_type.load({})
