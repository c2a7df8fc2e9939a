"""Schemas that are more than a list of properties: references, unions, merges, and hostile ones."""

from __future__ import annotations

import dataclasses
from typing import Any, get_type_hints

import pytest

from bascule import Bridge, Server
from bascule.policy.schema import compile_schema
from bascule.section.dataclasses import SchemaType, SchemaUnsupported, params_type, result_type
from bascule.section.schema_compiler import MAX_CLASSES, MAX_LOSSY
from bascule.testing import ScriptedServer, tool


def made(properties: dict[str, Any], **more: Any) -> SchemaType:
    return params_type("a", "b", {"type": "object", "properties": properties, **more})


def hints(schema_type: SchemaType, name: str = "ABParams") -> dict[str, Any]:
    return get_type_hints(schema_type.types[name])


def returns(schema_type: SchemaType, *values: dict[str, Any]) -> bool:
    return all(schema_type.dump(schema_type.load(value)) == value for value in values)


CIRCLE = {
    "type": "object",
    "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}},
    "required": ["kind"],
}
SQUARE = {
    "type": "object",
    "properties": {"kind": {"const": "square"}, "side": {"type": "number"}},
    "required": ["kind"],
}


def test_a_shared_definition_is_one_class_named_after_itself():
    person = {"type": "object", "properties": {"name": {"type": "string"}}}
    schema_type = made(
        {
            "author": {"$ref": "#/$defs/Person", "description": "who wrote it"},
            "reviewers": {"type": "array", "items": {"$ref": "#/$defs/Person"}},
        },
        **{"$defs": {"Person": person}},
    )
    cls = schema_type.types["ABParamsPerson"]
    assert list(schema_type.types) == ["ABParams", "ABParamsPerson"]
    assert hints(schema_type) == {"author": cls | None, "reviewers": list[cls] | None}
    assert dataclasses.fields(schema_type.type)[0].metadata["description"] == "who wrote it"
    assert returns(schema_type, {"author": {"name": "a"}, "reviewers": [{"name": "b"}]})


def test_a_recursive_schema_is_a_class_that_refers_to_itself():
    node = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
        },
    }
    schema_type = made({"root": {"$ref": "#/$defs/node"}}, **{"$defs": {"node": node}})
    cls = schema_type.types["ABParamsNode"]
    assert hints(schema_type, "ABParamsNode")["children"] == list[cls] | None
    plain = {"root": {"name": "a", "children": [{"name": "b", "children": []}, {}]}}
    assert schema_type.load(plain).root.children[0] == cls(name="b", children=[])
    assert returns(schema_type, plain)


def test_the_whole_schema_may_refer_to_itself():
    schema_type = made({"next": {"$ref": "#"}, "other": {"$ref": "#/properties/next"}})
    assert list(schema_type.types) == ["ABParams"]
    assert hints(schema_type)["next"] == schema_type.type | None
    assert returns(schema_type, {"next": {"next": {}, "other": {"next": {}}}})


def test_recursion_through_lists_alone_has_no_class_to_name():
    schema_type = made(
        {"x": {"$ref": "#/$defs/json"}},
        **{
            "$defs": {
                "json": {
                    "anyOf": [
                        {"type": "string"},
                        {"type": "array", "items": {"$ref": "#/$defs/json"}},
                    ]
                }
            }
        },
    )
    assert hints(schema_type)["x"] == str | list[Any] | None
    assert returns(schema_type, {"x": ["a", [["b"], []]]})
    with pytest.raises(ValueError, match=r"^\$\.x"):
        schema_type.load({"x": ["a", [1]]})


@pytest.mark.parametrize(
    "reference",
    ["https://example.org/schema.json", "other.json#/a", "#/$defs/gone", "#nowhere", "#/type"],
)
@pytest.mark.parametrize("make", [params_type, result_type])
def test_a_reference_that_leads_out_or_nowhere_is_refused(make: Any, reference: str):
    schema = {"type": "object", "properties": {"x": {"items": {"$ref": reference}}}}
    with pytest.raises(SchemaUnsupported, match=r"\$ref .* leads (outside|nowhere)"):
        make("a", "b", schema)


def test_references_by_anchor_and_by_escaped_path_are_found():
    schema_type = made(
        {"a": {"$ref": "#here"}, "b": {"$ref": "#/$defs/x~1y%20z"}},
        **{"$defs": {"one": {"$anchor": "here", "type": "integer"}, "x/y z": {"type": "string"}}},
    )
    assert hints(schema_type) == {"a": int | None, "b": str | None}


def test_beside_a_reference_older_drafts_see_nothing():
    schema = {
        "type": "object",
        "properties": {
            "x": {"$ref": "#/definitions/s", "type": "integer", "allOf": [{"type": "integer"}]}
        },
        "definitions": {"s": {"type": "string"}},
    }
    old = params_type("a", "b", {"$schema": "http://json-schema.org/draft-07/schema#", **schema})
    assert hints(old)["x"] == str | None


def test_a_part_with_an_identity_of_its_own_is_left_to_the_validator():
    inner = {"$id": "https://example.org/inner", "properties": {"y": {"$ref": "#/$defs/z"}}}
    schema_type = made({"x": inner}, **{"$defs": {"z": {"type": "string"}}})
    assert returns(schema_type, {"x": {"y": 5}})
    assert "$.properties.x.properties.y: $ref" in schema_type.lossy


def test_alternatives_are_a_union_and_the_value_says_which():
    schema_type = made({"shape": {"anyOf": [CIRCLE, SQUARE, {"type": "string"}]}})
    circle, square = (schema_type.types[f"ABParamsShapeOption{n}"] for n in (1, 2))
    assert hints(schema_type)["shape"] == circle | square | str | None
    assert schema_type.load({"shape": {"kind": "square", "side": 1}}).shape == square(
        "square", side=1
    )
    assert schema_type.load({"shape": "none"}).shape == "none"
    assert schema_type.lossy == ()
    with pytest.raises(ValueError, match=r"^\$\.shape: fits none of the alternatives$"):
        schema_type.load({"shape": {"kind": "line"}})


def test_the_alternative_that_knows_most_of_the_names_is_taken():
    one = {"type": "object", "properties": {"a": {"type": "integer"}}, "title": "One"}
    two = {"type": "object", "properties": {"b": {"type": "integer"}}, "title": "Two"}
    schema_type = made({"x": {"anyOf": [one, two]}})
    assert type(schema_type.load({"x": {"b": 1}}).x) is schema_type.types["ABParamsXTwo"]
    assert type(schema_type.load({"x": {"a": 1}}).x) is schema_type.types["ABParamsXOne"]


@pytest.mark.requirement("section:complex-schemas")
def test_alternatives_of_the_whole_object_become_optional_fields():
    schema = {
        "type": "object",
        "properties": {"id": {"type": "string"}},
        "required": ["id"],
        "oneOf": [
            {"properties": {"name": {"type": "string"}}, "required": ["name"]},
            {"properties": {"number": {"type": "integer"}}, "required": ["number"]},
        ],
    }
    schema_type = params_type("a", "b", schema)
    assert hints(schema_type) == {"id": str, "name": str | None, "number": int | None}
    assert schema_type.lossy == ("$: oneOf",)
    # The first alternative says nothing of number: any value of it is accepted there.
    odd = {"id": "i", "name": "n", "number": "no integer"}
    assert compile_schema(schema).valid(odd)
    assert returns(schema_type, odd, {"id": "i", "number": 1}, {"id": "i", "name": "n"})


def test_schemas_that_all_apply_are_merged():
    schema_type = made(
        {
            "x": {
                "allOf": [
                    {"$ref": "#/$defs/base"},
                    {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]},
                ]
            },
            "n": {"allOf": [{"type": ["string", "integer"]}, {"type": ["integer", "null"]}]},
            "e": {"allOf": [{"enum": [1, 2, "a"]}, {"enum": [2.0, "a", True]}], "type": "string"},
        },
        **{"$defs": {"base": {"type": "object", "properties": {"a": {"type": "string"}}}}},
    )
    assert hints(schema_type, "ABParamsX") == {"b": int, "a": str | None}
    assert hints(schema_type)["n"] == int | None
    assert schema_type.load({"e": "a"}).e == "a"
    for wrong in ({"n": "s"}, {"e": 2}, {"x": {"a": "no b"}}):
        with pytest.raises(ValueError, match=r"^\$\."):
            schema_type.load(wrong)


def test_an_object_without_a_type_is_a_likely_class_and_takes_anything():
    schema_type = made({"x": {"properties": {"a": {"type": "string"}}}})
    cls = schema_type.types["ABParamsX"]
    assert hints(schema_type)["x"] == cls | None
    assert schema_type.lossy == ("$.properties.x: no type",)
    assert schema_type.load({"x": {"a": "s"}}).x == cls(a="s")
    assert returns(schema_type, {"x": 5}, {"x": {"a": "s"}}, {"x": None}, {"x": [1]}, {})


@pytest.mark.requirement("section:complex-schemas")
def test_what_no_type_can_say_is_named_with_its_path():
    schema_type = made(
        {
            "n": {"type": "integer", "minimum": 1},
            "a b": {"type": "string", "pattern": "^a"},
            "l": {"type": "array", "items": {"type": "object", "properties": {"x": {"not": {}}}}},
            "o": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        },
        **{"if": {"required": ["n"]}, "then": {"required": ["l"]}},
    )
    assert set(schema_type.lossy) == {
        "$: if",
        "$.properties.n: minimum",
        "$.properties['a b']: pattern",
        "$.properties.l.items.properties.x: not",
        "$.properties.o: oneOf",
    }


@pytest.mark.requirement("section:complex-schemas")
async def test_what_no_type_can_say_is_still_checked_by_the_bridge():
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "maximum": 5}, "m": {"type": "integer"}},
        "oneOf": [{"required": ["n"]}, {"required": ["m"]}],
    }
    listed = tool("count")
    listed["inputSchema"] = schema
    schema_type = params_type("s", "count", schema)
    command, args = ScriptedServer(behaviours={"count": "echo"}, tools=[listed]).command
    record = Server.stdio("s", command, *args, allow=["*"])
    async with Bridge.open([record]) as bridge, bridge.session(server_ids=["s"]) as session:
        for values, fine in (({"n": 5}, True), ({"n": 6}, False), ({"n": 1, "m": 1}, False)):
            arguments = schema_type.dump(schema_type.type(**values))
            outcome = await session.call("mcp__s__count", arguments)
            assert outcome.ok == fine
            assert fine or (outcome.error and outcome.error.code == "mcp_invalid_arguments")


def fan_out(word: str, steps: int) -> dict[str, Any]:
    """2^steps ways to the last definition."""
    defs: dict[str, Any] = {
        f"d{n}": {word: [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/e{n + 1}"}]}
        for n in range(steps)
    }
    defs |= {f"e{n}": {"type": "object", word: [{"$ref": f"#/$defs/d{n}"}]} for n in range(steps)}
    last = {"type": "object", "properties": {"y": {"type": "string"}}}
    return {"$defs": {**defs, f"d{steps}": last, f"e{steps}": last}}


@pytest.mark.parametrize("word", ["anyOf", "oneOf", "allOf"])
def test_references_that_multiply_cost_no_more_than_they_say(word: str):
    schema_type = made({"x": {"$ref": "#/$defs/d0"}}, **fan_out(word, 24))
    assert returns(schema_type, {"x": {"y": "s"}})
    assert len(schema_type.types) <= MAX_CLASSES


def test_a_value_that_every_alternative_refuses_only_at_the_bottom_is_refused_at_once():
    option = {"properties": {"a": {"$ref": "#/$defs/t"}, "leaf": {"const": 1}}, "type": "object"}
    other = {"properties": {"a": {"$ref": "#/$defs/t"}, "leaf": {"const": 2}}, "type": "object"}
    schema_type = made({"x": {"$ref": "#/$defs/t"}}, **{"$defs": {"t": {"anyOf": [option, other]}}})
    value: dict[str, Any] = {"leaf": 3}
    for _ in range(60):
        value = {"a": value}
    with pytest.raises(ValueError, match=r"^\$\.x: fits none"):
        schema_type.load({"x": value})


def test_a_value_deeper_than_the_stack_is_refused():
    schema_type = made({"a": {"$ref": "#"}})
    value: dict[str, Any] = {}
    for _ in range(100_000):
        value = {"a": value}
    with pytest.raises(ValueError, match=r"^\$: is nested too deep$"):
        schema_type.load(value)
    while value:  # taken apart by hand: a deep value is not freed in one go by every interpreter
        value = value["a"]


def test_a_schema_too_large_or_too_deep_is_refused():
    deep: dict[str, Any] = {}
    for _ in range(70):
        deep = {"properties": {"x": deep}}
    for schema in ({"type": "object", **deep}, {"type": "object", "enum": list(range(10_001))}):
        with pytest.raises(SchemaUnsupported, match="over 10000 nodes or 64 levels"):
            params_type("a", "b", schema)


@pytest.mark.timeout(60)
def test_beyond_a_number_of_classes_objects_are_dictionaries():
    one = {"type": "object", "properties": {"y": {"type": "integer", "minimum": 1}}}
    schema_type = made({f"p{n}": one for n in range(MAX_CLASSES + 50)})
    assert len(schema_type.types) == MAX_CLASSES
    assert hints(schema_type)[f"p{MAX_CLASSES + 49}"] == dict[str, Any] | None
    assert len(schema_type.lossy) == MAX_LOSSY + 1
    assert schema_type.lossy[-1] == "$: and more"
    assert returns(schema_type, {f"p{n}": {"y": n} for n in range(MAX_CLASSES + 50)})


def test_an_annotation_never_grows_out_of_hand():
    defs: dict[str, Any] = {
        f"d{n}": {"anyOf": [
            {"type": "array", "items": {"$ref": f"#/$defs/d{n + 1}"}},
            {"type": "object", "additionalProperties": {"$ref": f"#/$defs/d{n + 1}"}},
        ]}
        for n in range(60)
    }  # fmt: skip
    schema_type = made({"x": {"$ref": "#/$defs/d0"}}, **{"$defs": defs | {"d60": {}}})
    assert len(repr(hints(schema_type)["x"])) < 5_000
    assert returns(schema_type, {"x": [{"a": [{}]}]})


def test_a_schema_that_refers_to_itself_in_place_says_nothing():
    loop = {"$defs": {"l": {"anyOf": [{"$ref": "#/$defs/l"}]}, "m": {"$ref": "#/$defs/m"}}}
    schema_type = made({"x": {"$ref": "#/$defs/l"}, "y": {"$ref": "#/$defs/m"}}, **loop)
    assert hints(schema_type) == {"x": Any, "y": Any}
    assert "$.properties.x.anyOf[0]: refers to itself" in schema_type.lossy
