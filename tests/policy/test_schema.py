"""Input schemas from servers, compiled so that none of them can harm us."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.policy.schema import MAX_MESSAGE, MAX_PROBLEMS, SchemaRejected, compile_schema
from bascule.policy.schema_cost import MAX_VISITS, Cost

DRAFT_07 = "http://json-schema.org/draft-07/schema#"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


def nested(depth: int, leaf: Any = None) -> Any:
    value: Any = {} if leaf is None else leaf
    for _ in range(depth):
        value = {"x": value}
    return value


def fan_out(steps: int) -> dict[str, Any]:
    """2^steps visits from a few hundred bytes."""
    defs: dict[str, Any] = {
        f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]}
        for n in range(steps)
    }
    return {"$defs": {**defs, f"d{steps}": {"type": "object"}}, "$ref": "#/$defs/d0"}


def doubling() -> dict[str, Any]:
    """A recursive schema that takes the same branch twice: 2^depth of the arguments."""
    return {"allOf": [{"properties": {"x": {"$ref": "#"}}}, {"properties": {"x": {"$ref": "#"}}}]}


def test_problems_name_the_path_and_the_rule():
    validator = compile_schema(
        {
            "type": "object",
            "properties": {
                "items": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"name": {"type": "string"}}},
                },
                "a key": {"type": "integer"},
            },
            "required": ["id"],
        }
    )
    arguments = {"items": [{}, {}, {"name": 5}], "a key": "x"}
    assert not validator.valid(arguments)
    assert sorted(validator.problems(arguments)) == [
        'arguments.items[2].name: the value is not of type "string"',
        'arguments: "id" is a required property',
        "arguments['a key']: the value is not of type \"integer\"",
    ]
    assert validator.valid({"id": 1})
    assert validator.problems({"id": 1}) == []


def test_problems_never_repeat_a_value_and_are_few_and_short():
    validator = compile_schema(
        {"properties": {"a": {"items": {"enum": ["y" * 1000]}}, "s": {"pattern": "^q"}}}
    )
    problems = validator.problems({"a": ["secret-value"] * 50, "s": "secret-value"})
    assert len(problems) == MAX_PROBLEMS
    assert all(len(problem) <= MAX_MESSAGE for problem in problems)
    assert "secret-value" not in "".join(problems)


def test_a_problem_is_one_harmless_line():
    (problem,) = compile_schema({"additionalProperties": False}).problems({"a\x1b[2J\nb": 1})
    assert "\x1b" not in problem
    assert "\n" not in problem


@pytest.mark.parametrize("arguments", [None, [], "x", 3])
def test_arguments_that_are_no_object_are_refused(arguments: object):
    for validator in (compile_schema(), compile_schema({"type": "object"})):
        assert not validator.valid(arguments)
        assert validator.problems(arguments) == ["arguments: must be an object"]


def test_a_missing_schema_accepts_any_object():
    assert compile_schema(None).valid({"anything": [1, {"goes": None}]})


@pytest.mark.parametrize("schema", [[], "x", True, {"type": "nonsense"}, {"minimum": "3"}])
def test_a_schema_that_is_none_is_rejected(schema: object):
    with pytest.raises(SchemaRejected):
        compile_schema(schema)


def test_what_is_not_json_is_a_problem_and_not_a_crash():
    validator = compile_schema({"properties": {"a": {"type": "string"}}})
    for arguments in ({1: 2}, {"a": object()}, {"a": nested(500)}):
        assert not validator.valid(arguments)
        assert validator.problems(arguments)


def test_the_draft_that_the_schema_names_decides():
    beside = {"properties": {"x": {"$ref": "#/definitions/text", "maxLength": 1}}}
    schema = {"definitions": {"text": {"type": "string"}}, **beside}
    assert compile_schema({"$schema": DRAFT_07, **schema}).valid({"x": "long"})
    assert not compile_schema({"$schema": DRAFT_2020, **schema}).valid({"x": "long"})
    assert not compile_schema(schema).valid({"x": "long"})


def test_a_remote_reference_is_never_fetched():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        port = listener.getsockname()[1]
        for schema in (
            {"$ref": f"http://127.0.0.1:{port}/schema.json"},
            {"properties": {"a": {"$ref": f"http://127.0.0.1:{port}/s#/x"}}},
            {"$schema": f"http://127.0.0.1:{port}/meta", "type": "object"},
            {"$defs": {"unused": {"$ref": f"http://127.0.0.1:{port}/s"}}, "type": "object"},
        ):
            with pytest.raises(SchemaRejected):
                compile_schema(schema)
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.parametrize(
    "reference", ["file:///etc/hostname", "#/$defs/none", "#none", "other.json", "#/$defs/n"]
)
def test_a_reference_that_leads_nowhere_is_rejected_with_its_name(reference: str):
    with pytest.raises(SchemaRejected, match="leads"):
        compile_schema({"properties": {"a": {"$ref": reference}}, "$defs": {"n": 3}})


def test_references_inside_the_document_are_followed():
    text = {"type": "string"}
    for schema in (
        {"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"properties": {"x": text}}}},
        {"properties": {"x": {"$ref": "#t"}}, "$defs": {"t": {"$anchor": "t", **text}}},
        {
            "$id": "https://example.org/root",
            "properties": {"x": {"$ref": "item"}},
            "$defs": {"t": {"$id": "item", "$ref": "#/$defs/t", "$defs": {"t": text}}},
        },
        {"allOf": [{"properties": {"x": text}}, {"$ref": "#/allOf/0"}]},
    ):
        validator = compile_schema(schema)
        assert validator.valid({"x": "a"})
        assert not validator.valid({"x": 1})


def test_a_fan_out_of_references_is_rejected_before_it_costs_anything():
    with pytest.raises(SchemaRejected, match="multiply"):
        compile_schema(fan_out(30))
    assert compile_schema(fan_out(8)).valid({})


def test_a_schema_that_doubles_with_every_level_takes_only_shallow_arguments():
    validator = compile_schema(doubling())
    assert validator.valid(nested(5))
    assert not validator.valid(nested(60))
    assert validator.problems(nested(60)) == ["arguments: too deep or too large for this schema"]


def test_an_ordinary_recursive_schema_takes_deep_arguments():
    tree = {
        "type": "object",
        "properties": {"x": {"$ref": "#"}, "all": {"type": "array", "items": {"$ref": "#"}}},
    }
    validator = compile_schema(tree)
    assert validator.valid(nested(60))
    assert validator.valid({"all": [nested(20)] * 50})
    assert validator.problems(nested(40, leaf=3)) == [
        "arguments" + ".x" * 40 + ': the value is not of type "object"'
    ]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"not": {"$ref": "#/$defs/a"}}]}}},
    ],
)
def test_a_schema_that_never_goes_deeper_is_rejected(schema: dict[str, Any]):
    with pytest.raises(SchemaRejected, match="without going deeper"):
        compile_schema(schema)


def test_size_and_depth_are_bounded():
    with pytest.raises(SchemaRejected, match="nodes"):
        compile_schema({"properties": {str(n): {"type": "string"} for n in range(6000)}})
    with pytest.raises(SchemaRejected, match="levels"):
        compile_schema(nested(70))


def test_a_pattern_that_would_backtrack_for_ever_is_harmless():
    validator = compile_schema({"properties": {"s": {"pattern": "^(a+)+$"}}})
    assert validator.unenforced == ()
    assert not validator.valid({"s": "a" * 50_000 + "!"})


def test_a_pattern_beyond_the_linear_engine_is_named_and_not_enforced():
    look_ahead = r"^(?!\.)[a-z]+$"
    validator = compile_schema(
        {
            "properties": {"s": {"type": "string", "pattern": look_ahead}, "t": {"pattern": "^q"}},
            "patternProperties": {"^(?=x)": {"type": "integer"}},
            "additionalProperties": False,
        }
    )
    assert set(validator.unenforced) == {look_ahead, "^(?=x)"}
    assert validator.valid({"s": ".", "xyz": 1})
    assert not validator.valid({"s": 1})
    assert not validator.valid({"t": "no"})


def test_patterns_in_constants_are_data():
    constant = {"pattern": "(?!x)"}
    schema = {"properties": {"c": {"const": constant}, "s": {"pattern": "(?!x)"}}}
    validator = compile_schema(schema)
    assert validator.valid({"c": constant})
    assert not validator.valid({"c": {}})


def test_the_meta_schema_may_be_referred_to():
    validator = compile_schema({"$schema": DRAFT_07, "properties": {"s": {"$ref": DRAFT_07}}})
    assert validator.valid({"s": {"type": "string"}})
    assert not validator.valid({"s": {"type": 3}})


def test_a_wrong_list_of_great_length_gives_one_problem_without_making_all():
    validator = compile_schema({"properties": {"a": {"items": {"type": "string"}}}})
    assert len(validator.problems({"a": [1] * 100_000})) == 1


leaves = st.sampled_from([{"type": "string"}, {"type": "object"}, {}])
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"properties": st.fixed_dictionaries({"x": inner, "y": inner})}),
        st.fixed_dictionaries({"additionalProperties": inner, "not": inner}),
    ),
    max_leaves=12,
)


def visits(schema: dict[str, Any], depth: int) -> int:
    """The definition, counted the slow way: visits on the worst path of this depth."""
    here, below = walk(schema, depth)
    every = below.pop("", 0)
    return here + every + max(below.values(), default=0)


def walk(schema: dict[str, Any], depth: int) -> tuple[int, dict[str, int]]:
    here, below = 1, dict[str, int]()
    for part in [*schema.get("allOf", []), *([schema["not"]] if "not" in schema else [])]:
        more, under = walk(part, depth)
        here += more
        for key, count in under.items():
            below[key] = below.get(key, 0) + count
    children = dict(schema.get("properties", {}))
    if "additionalProperties" in schema:
        children[""] = schema["additionalProperties"]
    for key, child in children.items() if depth else ():
        below[key] = below.get(key, 0) + visits(child, depth - 1)
    return here, below


@given(schemas, st.integers(0, 6))
def test_the_cost_is_what_counting_every_visit_gives(schema: dict[str, Any], depth: int):
    assert Cost(schema).visits(depth) == visits(schema, depth) <= MAX_VISITS
