"""A required property that has a default may be missing; everything else stays strict."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.policy.schema import compile_schema
from bascule.policy.schema_defaults import without_defaulted

NUMBER = {"type": "integer", "default": 10}


def schema(**members: Any) -> dict[str, Any]:
    return {"type": "object", **members}


FLAT = schema(properties={"q": {"type": "string"}, "n": NUMBER}, required=["q", "n"])
REFERRED = schema(
    properties={"q": {"type": "string"}, "n": {"$ref": "#/$defs/n"}},
    required=["q", "n"],
    **{"$defs": {"n": NUMBER}},
)


@pytest.mark.requirement("call:schema:defaults")
@pytest.mark.parametrize(
    "given",
    [
        FLAT,
        REFERRED,
        {**FLAT, "properties": {**FLAT["properties"], "n": {"allOf": [NUMBER]}}},
        {**FLAT, "properties": {**FLAT["properties"], "n": {"type": "integer", "default": None}}},
        schema(allOf=[{"properties": {"n": NUMBER}}], required=["q", "n"]),
        schema(properties={"n": NUMBER}, allOf=[{"required": ["q", "n"]}]),
        schema(properties={"n": NUMBER}, anyOf=[{"required": ["q", "n"]}]),
        schema(properties={"n": NUMBER}, oneOf=[{"required": ["q", "n"]}, {"required": ["x"]}]),
    ],
    ids=["flat", "$ref", "allOf", "null", "far", "outer", "anyOf", "oneOf"],
)
def test_a_required_property_with_a_default_may_be_missing_and_no_other(given: Any):
    validator = compile_schema(given)
    assert validator.valid({"q": "x"})
    assert validator.valid({"q": "x", "n": 3})
    assert not validator.valid({"n": 3})


@pytest.mark.requirement("call:schema:defaults")
def test_what_is_given_is_checked_and_the_problems_do_not_ask_for_the_default():
    validator = compile_schema(FLAT)
    assert not validator.valid({"q": "x", "n": "three"})
    [problem] = validator.problems({})
    assert "q" in problem
    assert "n" not in problem.partition(":")[2].replace("required", "").split()


@pytest.mark.requirement("call:schema:defaults")
def test_depth_makes_no_difference():
    deep = schema(properties={"items": {"type": "array", "items": FLAT}}, required=["items"])
    validator = compile_schema(deep)
    assert validator.valid({"items": [{"q": "x"}]})
    assert not validator.valid({"items": [{"n": 1}]})
    assert not validator.valid({})


def test_a_call_that_fitted_the_schema_as_it_stands_still_fits():
    given = schema(
        properties={"a": {"default": 1}, "b": {}}, oneOf=[{"required": ["a"]}, {"required": ["b"]}]
    )
    assert compile_schema(given).valid({"b": 1})


def test_conditions_are_left_as_they_are():
    given = schema(properties={"a": {"default": 1}}, **{"not": {"required": ["a"]}})
    assert without_defaulted(given) is given
    validator = compile_schema(given)
    assert validator.valid({})
    assert not validator.valid({"a": 1})


def test_a_property_may_be_called_like_a_keyword():
    given = schema(
        properties={"required": NUMBER, "properties": {"type": "string"}},
        required=["required", "properties"],
    )
    validator = compile_schema(given)
    assert validator.valid({"properties": "x"})
    assert not validator.valid({"required": 1})


def test_references_in_a_circle_end():
    given = schema(
        properties={"child": {"$ref": "#"}, "n": {"$ref": "#/$defs/a"}},
        required=["n"],
        **{"$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"allOf": [NUMBER]}}},
    )
    assert compile_schema(given).valid({"child": {"child": {}}})
    loop = {"allOf": [{"$ref": "#/$defs/a"}], "required": ["x"]}
    assert without_defaulted({**loop, "$defs": {"a": {"$ref": "#"}}})["required"] == ["x"]
