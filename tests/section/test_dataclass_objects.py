"""The generated classes: how they look, what they refuse, and that they can be kept and sent."""

from __future__ import annotations

import copy
import dataclasses
import gc
import inspect
import pickle
import subprocess
import sys
import weakref
from typing import Any, get_type_hints

import pytest

from bascule.section.dataclasses import (
    MAX_KEPT,
    SchemaType,
    SchemaUnsupported,
    extras,
    params_type,
)
from tests.section.section_servers import ISSUE


def made(properties: dict[str, Any], *required: str, **more: Any) -> SchemaType:
    schema = {"type": "object", "properties": properties, "required": list(required), **more}
    return params_type("a", "b", schema)


def field_of(schema_type: SchemaType) -> dict[str, str]:
    return {f.metadata.get("alias", ""): f.name for f in dataclasses.fields(schema_type.type)}


@pytest.mark.requirement(
    "section:schema:input",
    "section:dataclass:named",
    "section:dataclass:frozen-slotted",
    "section:dataclass:required",
)
def test_the_class_of_the_specification():
    schema_type = params_type("github", "create_issue", ISSUE)
    cls = schema_type.type
    assert cls.__name__ == cls.__qualname__ == "GithubCreateIssueParams"
    assert cls.__module__ == "bascule.section.dataclasses"
    assert get_type_hints(cls) == {"owner": str, "repo": str, "title": str}
    assert [f.default for f in dataclasses.fields(cls)] == [dataclasses.MISSING] * 3
    value = cls(owner="o", repo="r", title="t")
    assert repr(value) == "GithubCreateIssueParams(owner='o', repo='r', title='t')"
    assert value == cls("o", "r", "t")
    assert hash(value) == hash(cls("o", "r", "t"))
    assert not hasattr(value, "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.owner = "other"
    with pytest.raises(TypeError):
        cls(owner="o")
    assert schema_type.dump(value) == {"owner": "o", "repo": "r", "title": "t"}
    assert schema_type.lossy == ()


@pytest.mark.requirement("section:dataclass:named")
@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("my-server_2", "readFile", "MyServer2ReadFileParams"),
        ("fs", "a.b/c d", "FsABCDParams"),
        ("fs", "日本語", "FsParams"),
        ("fs", "x" * 500, "Fs" + "X" + "x" * 111 + "Params"),
    ],
)
def test_names_of_any_spelling_become_a_class_name(server: str, tool: str, name: str):
    assert params_type(server, tool, ISSUE).type.__name__ == name


@pytest.mark.requirement("section:dataclass:required")
def test_required_properties_come_in_any_order_and_others_by_name_only():
    schema_type = made({"a": {"type": "string"}, "b": {"type": "integer"}}, "b", "unknown")
    assert str(inspect.signature(schema_type.type)) == (
        "(b: int, unknown: Any, *, a: str | None = None) -> None"
    )
    assert schema_type.dump(schema_type.type(1, [2])) == {"b": 1, "unknown": [2]}


def test_names_that_python_cannot_say_are_mended_and_restored_on_the_wire():
    awkward = {
        "class": "class_", "a-b": "a_b", "a.b": "a_b_2", "1st": "field_1st", "": "field",
        "_meta": "meta", "__init__": "init", "$ref": "ref", "ok": "ok", "größe": "größe",
        "ﬁ": "fi", "None": "None_", "x y": "x_y", "self": "self", "mro": "mro_", "日本": "日本",
    }  # fmt: skip
    schema_type = made({name: {"type": "integer"} for name in awkward})
    assert field_of(schema_type) == awkward
    plain = {name: number for number, name in enumerate(awkward)}
    assert schema_type.dump(schema_type.load(plain)) == plain
    assert schema_type.dump(schema_type.type(class_=7, a_b_2=8)) == {"class": 7, "a.b": 8}


def test_a_name_that_holds_code_is_only_a_name():
    attack = "x=__import__('os').abort()):\n  pass\n#"
    schema_type = made({attack: {"type": "string"}}, attack, title=attack, description=attack)
    (name,) = field_of(schema_type).values()
    assert name.isidentifier()
    assert schema_type.dump(schema_type.type("v")) == {attack: "v"}
    assert params_type(attack, attack, ISSUE).type.__name__.isidentifier()


def test_what_the_schema_says_of_a_property_is_in_its_metadata():
    schema_type = made({"n": {"type": "integer", "description": "how many", "default": 5}})
    (item,) = dataclasses.fields(schema_type.type)
    assert dict(item.metadata) == {"alias": "n", "description": "how many", "default": 5}
    assert item.default is None
    assert schema_type.dump(schema_type.type()) == {}


def test_the_class_carries_the_description_of_its_schema():
    assert made({}, description="What it is for.").type.__doc__ == "What it is for."
    assert params_type("a", "b", ISSUE).type.__doc__ == "Arguments of the tool b of a."


def test_what_an_open_schema_does_not_declare_is_kept_without_a_field():
    schema_type = params_type("github", "create_issue", ISSUE)
    plain = {"owner": "o", "repo": "r", "title": "t", "labels": ["x"], "extra": 1}
    value = schema_type.load(plain)
    assert [f.name for f in dataclasses.fields(value)] == ["owner", "repo", "title"]
    assert extras(value) == {"labels": ["x"], "extra": 1}
    assert schema_type.dump(value) == plain
    assert value != schema_type.type("o", "r", "t")
    assert extras(schema_type.type("o", "r", "t")) == {}
    assert value != "something else"


def test_declared_additional_properties_have_a_field():
    schema_type = made({"extra": {"type": "string"}}, additionalProperties={"type": "integer"})
    assert get_type_hints(schema_type.type)["extra_2"] == dict[str, int]
    value = schema_type.type(extra="e", extra_2={"n": 1})
    assert schema_type.dump(value) == {"extra": "e", "n": 1}
    assert schema_type.load({"extra": "e", "n": 1}) == value
    assert extras(value) == {"n": 1}
    assert schema_type.type().extra_2 == {}
    with pytest.raises(ValueError, match=r"^\$\.n: must be integer$"):
        schema_type.load({"n": "1"})


def test_a_closed_object_refuses_what_it_does_not_declare():
    schema_type = made({"a": {"type": "string"}}, additionalProperties=False)
    with pytest.raises(ValueError, match=r"^\$\.b: is not a property of this object$"):
        schema_type.load({"a": "x", "b": 1})


def test_properties_by_pattern_are_kept_and_patterns_never_run():
    schema_type = made({}, patternProperties={"^(a+)+$": {"type": "integer"}})
    plain = {"a" * 40 + "!": 1, "other": "text"}
    assert schema_type.dump(schema_type.load(plain)) == plain
    assert get_type_hints(schema_type.type)["extra"] == dict[str, int]
    assert schema_type.lossy == ("$: patternProperties",)


def test_a_schema_without_properties_is_an_empty_class():
    schema_type = params_type("clock", "now", {"type": "object"})
    assert dataclasses.fields(schema_type.type) == ()
    assert schema_type.dump(schema_type.type()) == {}
    assert schema_type.dump(schema_type.load({"any": 1})) == {"any": 1}


def test_only_the_right_class_is_written():
    schema_type = params_type("github", "create_issue", ISSUE)
    for wrong in (None, {}, "text", params_type("gitlab", "create_issue", ISSUE).type("", "", "")):
        with pytest.raises(TypeError, match="cannot write"):
            schema_type.dump(wrong)
    with pytest.raises(ValueError, match=r"^\$: must be an object$"):
        schema_type.load([])


def test_dictionaries_tuples_and_objects_may_stand_in_any_field():
    inner = {"type": "object", "properties": {"n": {"type": "integer"}}}
    schema_type = made({"one": inner, "many": {"type": "array"}, "tags": {"type": "array",
        "items": {"type": "string"}}, "any": {}})  # fmt: skip
    cls = schema_type.types["ABParamsOne"]
    value = schema_type.type(one={"n": 1}, many=(cls(n=2),), tags=("t",), any={"deep": [cls(n=3)]})
    assert schema_type.dump(value) == {
        "one": {"n": 1}, "many": [{"n": 2}], "tags": ["t"], "any": {"deep": [{"n": 3}]}
    }  # fmt: skip


def test_values_can_be_copied_and_pickled_even_into_another_process():
    schema_type = made(
        {"x": {"type": ["string", "null"]}, "in": {"type": "object", "properties": {"y": {}}}}
    )
    value = schema_type.load({"in": {"y": [1], "z": 2}, "w": 3})
    for again in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):  # noqa: S301 - our own bytes
        assert type(again) is schema_type.type
        assert again == value
        assert schema_type.dump(again) == schema_type.dump(value)
    script = (
        "import pickle, sys\nvalue = pickle.loads(sys.stdin.buffer.read())\n"
        "print(type(value).__name__, value.in_.y, value.x)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, input=pickle.dumps(value), capture_output=True, timeout=20, check=False
    )
    assert done.stdout.decode("utf-8").strip() == "ABParams [1] UNSET", done.stderr


def test_the_same_schema_gives_the_same_class_and_another_does_not():
    shuffled = dict(reversed(copy.deepcopy(ISSUE).items()))
    first = params_type("github", "create_issue", ISSUE)
    assert params_type("github", "create_issue", shuffled) is first
    assert params_type("github", "other", ISSUE) is not first
    assert params_type("github", "create_issue", ISSUE | {"minProperties": 1}) is not first


def test_a_schema_changed_afterwards_changes_nothing():
    schema = copy.deepcopy(ISSUE)
    schema["properties"]["title"]["default"] = ["a"]
    schema_type = params_type("github", "mutable", schema)
    schema["properties"]["title"]["default"].append("b")
    schema["properties"]["more"] = {}
    assert dataclasses.fields(schema_type.type)[2].metadata["default"] == ["a"]
    assert len(dataclasses.fields(schema_type.type)) == 3


@pytest.mark.timeout(60)
def test_types_that_nobody_uses_are_let_go_and_those_in_use_stay_the_same():
    held = params_type("keep", "held", ISSUE).type("o", "r", "t")
    dropped = weakref.ref(params_type("keep", "dropped", ISSUE).type)
    for number in range(MAX_KEPT + 1):
        params_type("keep", f"n{number}", {"type": "object"})
    gc.collect()
    assert dropped() is None
    assert params_type("keep", "held", ISSUE).type is type(held)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "array"}, "the arguments of a tool are an object"),
        (False, "nothing fits"),
        ({"type": "object", "x": {1, 2}}, "not JSON: a set"),
    ],
)
def test_what_can_be_no_arguments_is_refused_with_the_reason(schema: Any, reason: str):
    with pytest.raises(SchemaUnsupported, match=reason):
        params_type("a", "b", schema)
