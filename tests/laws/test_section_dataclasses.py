"""The laws of generated dataclasses: whatever a schema accepts goes there and back unchanged."""

from __future__ import annotations

import dataclasses
import json
import pickle
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bascule.policy.schema import SchemaRejected, compile_schema
from bascule.section.dataclass_names import field_names
from bascule.section.dataclass_shapes import Misfit
from bascule.section.dataclasses import params_type, result_type
from tests.section.schema_examples import example

Schemas = st.SearchStrategy[Any]

#: Names that a class must not take as they are, and pairs that would meet after mending.
AWKWARD = [
    "a", "b", "a-b", "a.b", "a_b", "class", "class_", "self", "_", "__init__", "__slots__", "_a",
    "extra", "extra_2", "from", "None", "ﬁ", "fi", "größe", "日本", "", " ", "1", "type", "cls",
    "__class__", "MISSING", "_dflt_a", "x\ny", "a=1):pass#", "mro", "\ud800",
]  # fmt: skip
NAMES = st.sampled_from(AWKWARD)
SCALARS = st.sampled_from([None, True, False, 0, 1, 1.0, 1.5, -7, 2**70, 1e300, "", "a", "b", "é"])
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])
REFERENCES = st.sampled_from(["#", "#/$defs/A", "#/$defs/B", "#/$defs/a~1b"])


def table(always: dict[str, Schemas], /, **optional: Schemas) -> Schemas:
    return st.fixed_dictionaries(always, optional=optional)


LEAVES = st.one_of(
    st.booleans(),
    st.just({}),
    TYPES.map(lambda name: {"type": name}),
    st.lists(TYPES, min_size=1, max_size=4, unique=True).map(lambda names: {"type": names}),
    st.lists(SCALARS, min_size=1, max_size=4).map(lambda values: {"enum": values}),
    JSON.map(lambda value: {"const": value}),
    table({"type": st.just("integer"), "minimum": st.integers(-3, 3)}, maximum=st.just(5)),
    table({"type": st.just("string"), "minLength": st.just(1)}, default=st.just("b")),
    REFERENCES.map(lambda reference: {"$ref": reference}),
)


def objects(inner: Schemas) -> Schemas:
    return table(
        {},
        type=st.just("object") | st.just(["object", "null"]),
        properties=st.dictionaries(NAMES, inner, max_size=4),
        required=st.lists(NAMES, max_size=2, unique=True),
        additionalProperties=inner | st.booleans(),
        patternProperties=st.dictionaries(st.sampled_from(["^a", "x-", "^1$"]), inner, max_size=2),
    )


def arrays(inner: Schemas) -> Schemas:
    return table(
        {"type": st.just("array")},
        items=inner,
        prefixItems=st.lists(inner, min_size=1, max_size=2),
        minItems=st.integers(0, 2),
        maxItems=st.integers(1, 3),
    )


def combined(inner: Schemas) -> Schemas:
    some = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        table({"anyOf": some}, type=TYPES, properties=st.dictionaries(NAMES, inner, max_size=2)),
        table({"oneOf": some}, description=st.just("d")),
        table({"allOf": some}, required=st.lists(NAMES, max_size=1)),
        table({"not": inner, "$ref": REFERENCES}),
        table({"if": inner, "then": inner, "else": inner}),
    )


SCHEMAS = st.recursive(
    LEAVES, lambda inner: objects(inner) | arrays(inner) | combined(inner), max_leaves=8
)
DRAFTS = st.sampled_from(
    ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
)


@st.composite
def roots(draw: st.DrawFn) -> dict[str, Any]:
    root = dict(draw(objects(SCHEMAS)))
    root["type"] = "object"
    root["$defs"] = {"A": draw(SCHEMAS), "B": draw(SCHEMAS), "a/b": draw(LEAVES)}
    if draw(st.booleans()):
        root["$schema"] = draw(DRAFTS)
    if draw(st.integers(0, 4)) == 0:
        root["anyOf"] = draw(st.lists(objects(SCHEMAS), min_size=1, max_size=2))
    return root


def exact(value: Any) -> str:
    """The value as text: 1, 1.0 and true differ, the order of keys does not count."""
    return json.dumps(value, sort_keys=True)


def validator(schema: Any) -> Any:
    try:
        return compile_schema(schema)
    except SchemaRejected:
        return assume(False)


@pytest.mark.requirement("section:schema:input", "section:complex-schemas")
@given(roots(), st.randoms(use_true_random=False), JSON)
def test_whatever_the_schema_accepts_round_trips(schema: Any, random: Random, other: Any):
    accepts = validator(schema).valid
    made = params_type("law", "holds", schema)
    accepted = 0
    for value in (example(schema, random, 0.5), example(schema, random, 0.9), other):
        if accepts(value):
            accepted += 1
            assert exact(made.dump(made.load(value))) == exact(value)
    assume(accepted)


@given(roots(), st.randoms(use_true_random=False), JSON)
def test_what_can_be_loaded_at_all_is_written_back_the_same(
    schema: Any, random: Random, other: Any
):
    validator(schema)
    made = params_type("law", "holds", schema)
    for value in (example(schema, random, 0.7), other):
        try:
            typed = made.load(value)
        except Misfit:
            continue
        assert exact(made.dump(typed)) == exact(value)
        again = made.load(made.dump(typed))
        assert again == typed
        assert type(hash(again)) is int
        assert hash(again) == hash(typed)
        assert pickle.loads(pickle.dumps(typed)) == typed  # noqa: S301 - our own bytes


@given(SCHEMAS, st.randoms(use_true_random=False))
def test_a_result_of_any_schema_round_trips(schema: Any, random: Random):
    assume(isinstance(schema, dict))
    root = {**schema, "$defs": {"A": {"type": "string"}, "B": {}, "a/b": {"type": "object"}}}
    accepts = validator(root).valid
    value = example(root, random, 0.8)
    if isinstance(value, dict) and accepts(value):
        made = result_type("law", "holds", root)
        assert exact(made.dump(made.load(value))) == exact(value)


@given(st.lists(st.text(max_size=6) | NAMES, max_size=12, unique=True))
def test_field_names_never_collide_and_never_depend_on_the_order(names: list[str]):
    fields = field_names(names)
    assert list(fields) == names
    assert len(set(fields.values())) == len(names)
    assert field_names(reversed(names)) == fields
    dataclasses.make_dataclass("Made", list(fields.values()), slots=True, frozen=True)


@given(st.lists(st.text(max_size=6) | NAMES, max_size=12, unique=True), st.booleans())
def test_every_property_has_a_field_of_its_own(names: list[str], required: bool):
    schema = {
        "type": "object",
        "properties": {name: {"type": "integer"} for name in names},
        "required": names if required else [],
        "additionalProperties": True,
    }
    made = params_type("law", "holds", schema)
    value = {name: number for number, name in enumerate(names)}
    typed = made.load(value)
    fields = [item for item in dataclasses.fields(made.type) if "alias" in item.metadata]
    assert {item.metadata["alias"]: getattr(typed, item.name) for item in fields} == value
    built = made.type(**{item.name: value[item.metadata["alias"]] for item in fields})
    assert built == typed
    assert made.dump(built) == value
