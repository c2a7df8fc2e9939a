"""Whatever is made smaller is still what its schema says, and within its limit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from bascule.policy.copies import json_bytes
from bascule.policy.fitting import fitted, shortened
from bascule.policy.schema import compile_schema
from tests.scale import scaled

pytestmark = pytest.mark.requirement("outcomes:cut:output-schema")
ROWS = {
    "type": "object",
    "properties": {
        "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
        "total": {"type": "integer"},
        "note": {"type": "string"},
    },
    "required": ["rows", "total"],
    "additionalProperties": False,
    "$defs": {
        "row": {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "kind": {"enum": ["a", "b"]}},
            "required": ["id", "kind"],
        }
    },
}


def fit(schema: Any, value: Any, limit: int) -> Any:
    found = fitted(value, compile_schema(schema), limit)
    if found is not None:
        Draft202012Validator(schema).validate(found)
        assert len(json_bytes(found)) <= limit
    return found


def of(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, **more}


def made_of(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required]}


def test_what_fits_already_comes_back_as_it_is():
    value = {"rows": [{"id": 1, "kind": "a"}], "total": 1}
    assert fit(ROWS, value, 1000) is value


def test_an_array_loses_items_from_its_end_and_what_stands_beside_it_stays():
    rows = [{"id": n, "kind": "ab"[n % 2]} for n in range(1000)]
    found = fit(ROWS, {"rows": rows, "total": 1000, "note": "all of them"}, 500)
    assert (found["total"], found["note"]) == (1000, "all of them")
    assert len(found["rows"]) > 10
    assert found["rows"] == rows[: len(found["rows"])]


def test_a_long_string_is_shortened_on_a_character_and_shows_it():
    found = fit(made_of("a", a=of("string")), {"a": "é" * 1000}, 101)
    assert found["a"].strip("é") == "…"
    assert 80 < len(json_bytes(found)) <= 101


def test_only_the_first_item_of_an_array_is_ever_cut():
    value = {"files": [{"path": "a", "text": "x" * 9000}, {"path": "b", "text": "y" * 9000}]}
    item = made_of("path", "text", path=of("string"), text=of("string"))
    found = fit(made_of("files", files=of("array", items=item, minItems=1)), value, 400)
    [only] = found["files"]
    assert only["path"] == "a"
    assert only["text"].startswith("xxx")


def test_what_may_not_be_cut_is_kept_whole_and_the_rest_gives_way():
    schema = made_of("code", "log", code=of("string", pattern="^(ab)*$"), log=of("string"))
    value = {"code": "ab" * 200, "log": "x" * 3000}
    found = fit(schema, value, 600)
    assert found["code"] == value["code"]
    assert found["log"].startswith("xxx")


def test_what_may_not_be_cut_and_may_be_missing_goes():
    schema = made_of("log", code=of("string", pattern="^(ab)*$"), log=of("string"))
    found = fit(schema, {"code": "ab" * 3000, "log": "x" * 3000}, 600)
    assert found.keys() == {"log"}
    assert len(found["log"]) > 200


def test_where_no_string_may_be_cut_the_first_that_fit_are_kept_whole():
    schema = of("object", additionalProperties=of("string", pattern="^(ab)*$"))
    value = {f"k{n}": "ab" * 100 for n in range(500)}
    found = fit(schema, value, 1000)
    assert found == {name: value[name] for name in list(value)[:4]}


def test_an_array_that_needs_its_items_takes_room_from_others():
    schema = made_of("a", "b", a=of("array", minItems=50), b=of("string"))
    value = {"a": [7777] * 50, "b": "x" * 1000}
    assert fit(schema, value, 400)["a"] == value["a"]


@pytest.mark.parametrize(
    ("schema", "value", "limit"),
    [
        (made_of("a", a=of("string", minLength=500)), {"a": "x" * 900}, 300),
        (made_of("a", a=of("array", minItems=500)), {"a": [1] * 900}, 300),
        (made_of("a", a={"const": "x" * 900}), {"a": "x" * 900}, 300),
        (made_of("a", a=of("integer")), {"a": "never was one"}, 300),
        (made_of("a", a=of("integer")), {"a": 10**400}, 300),
        (made_of("a", a=of("string")), {"a": "x"}, 1),
        (of("object", minProperties=300), {f"{n:04}": n for n in range(300)}, 300),
        (made_of(a=of("string", pattern="^(?!no)")), {"a": "x" * 900}, 300),
    ],
)
def test_where_it_cannot_be_done_there_is_nothing(schema: Any, value: Any, limit: int):
    assert fit(schema, value, limit) is None


def test_a_required_member_with_a_default_is_no_less_required():
    schema = made_of("a", a=of("integer", default=1), b=of("string"))
    assert fit(schema, {"b": "x" * 900}, 300) is None


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (of("array", items=of("integer")), [*range(1000)]),
        (of("string"), "x" * 1000),
        (of("object", additionalProperties=of("integer")), {f"k{n}": n for n in range(1000)}),
        ({"anyOf": [of("array", items=of("string")), of("null")]}, ["x" * 50] * 50),
    ],
)
def test_a_value_of_any_kind_can_be_fitted(schema: Any, value: Any):
    found = fit(schema, value, 200)
    assert found
    assert len(json_bytes(found)) > 120


def test_of_an_object_with_very_many_members_the_first_are_looked_at():
    value = {f"k{n}": n for n in range(200_000)}
    found = fit(of("object"), value, 300)
    assert 10 < len(found) < 60


@pytest.mark.parametrize("room", range(14))
def test_a_string_is_shortened_to_any_room(room: int):
    for text in ("x" * 30, "é" * 30, '"' * 30, "\U0001f600" * 30):
        assert len(json_bytes(shortened(text, room))) <= max(room, 2)


def objects_of(drawn: Any) -> tuple[Any, st.SearchStrategy[Any]]:
    """Describe objects some members of which are required."""
    inner, required = drawn
    named = {f"m{n}": one for n, one in enumerate(inner)}
    needed = [name for n, name in enumerate(named) if required >> n & 1]
    schema = {
        "type": "object",
        "properties": {name: one[0] for name, one in named.items()},
        "required": needed,
        "additionalProperties": False,
    }
    values = st.fixed_dictionaries(
        {name: named[name][1] for name in needed},
        optional={name: one[1] for name, one in named.items() if name not in needed},
    )
    return schema, values


WORDS = st.text(max_size=60) | st.text("ab", min_size=100, max_size=300)
SCHEMAS = st.recursive(
    st.sampled_from(
        [
            ({"type": "integer"}, st.integers()),
            ({"type": "string"}, WORDS),
            ({"type": "string", "minLength": 3}, st.text(min_size=3, max_size=200)),
            (
                {"type": "string", "pattern": "^(ab)*$"},
                st.builds(lambda n: "ab" * n, st.integers(0, 90)),
            ),
            ({"enum": ["one", "two", None]}, st.sampled_from(["one", "two", None])),
            (True, st.none() | WORDS | st.lists(WORDS, max_size=9)),
        ]
    ),
    lambda inner: st.one_of(
        st.tuples(inner, st.integers(0, 3)).map(
            lambda one: (
                {"type": "array", "items": one[0][0], "minItems": one[1]},
                st.lists(one[0][1], min_size=one[1], max_size=20),
            )
        ),
        st.tuples(st.lists(inner, min_size=1, max_size=4), st.integers(0, 15)).map(objects_of),
        st.tuples(inner, inner).map(
            lambda two: ({"anyOf": [two[0][0], two[1][0]]}, two[0][1] | two[1][1])
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=scaled(3000), deadline=None)
@given(SCHEMAS.flatmap(lambda one: st.tuples(st.just(one[0]), one[1])), st.integers(0, 600))
def test_whatever_comes_back_is_valid_and_within_the_limit(drawn: Any, limit: int):
    schema, value = drawn
    schema = schema if isinstance(schema, dict) else {}
    before = json.dumps(value)
    found = fit(schema, value, limit)
    if len(json_bytes(value)) <= limit - 64:
        assert found == value
    assert json.dumps(value) == before
