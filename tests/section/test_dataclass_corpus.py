"""Real tools: every schema of the corpus has a type, and values go there and back.

The corpus holds what public MCP servers list, each file one package at one version, with the
texts left out. It was collected by starting the servers and listing their tools.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bascule.policy.schema import compile_schema
from bascule.section.dataclasses import SchemaType, params_type, result_type
from tests.section.schema_examples import example

FILES = sorted((Path(__file__).parent / "corpus").glob("*.json"))
PACKAGES = [json.loads(path.read_text(encoding="utf-8")) for path in FILES]
each_package = pytest.mark.parametrize(
    "package", PACKAGES, ids=[package["package"] for package in PACKAGES]
)


def exact(value: Any) -> str:
    """The value as text, so that 1, 1.0 and true differ, and the order of keys does not count."""
    return json.dumps(value, sort_keys=True)


def valid_examples(schema: Any) -> list[Any]:
    accepts = compile_schema(schema).valid
    wealths = [0, 1, *[0.5] * 10]
    values = [example(schema, Random(n), wealth) for n, wealth in enumerate(wealths)]
    return [value for value in values if accepts(value)]


def assert_round_trip(schema_type: SchemaType, values: list[Any]) -> None:
    for value in values:
        typed = schema_type.load(value)
        assert exact(schema_type.dump(typed)) == exact(value)
        assert schema_type.load(schema_type.dump(typed)) == typed


def test_the_corpus_is_large_and_of_many_hands():
    assert len(PACKAGES) >= 30
    assert sum(len(package["tools"]) for package in PACKAGES) >= 500
    assert sum("outputSchema" in tool for p in PACKAGES for tool in p["tools"]) >= 200


@pytest.mark.requirement("section:schema:input")
@each_package
def test_every_input_schema_has_a_dataclass_that_carries_its_arguments(package: dict[str, Any]):
    for tool in package["tools"]:
        schema = tool["inputSchema"]
        made = params_type("real", tool["name"], schema)
        assert dataclasses.is_dataclass(made.type)
        aliases = {item.metadata.get("alias") for item in dataclasses.fields(made.type)}
        assert set(schema.get("properties", {})) <= aliases
        values = valid_examples(schema)
        assert values, f"no example of {tool['name']} is valid"
        assert_round_trip(made, values)


@pytest.mark.requirement("section:schema:output")
@each_package
def test_every_output_schema_has_a_type_that_carries_its_results(package: dict[str, Any]):
    for tool in package["tools"]:
        if (schema := tool.get("outputSchema")) is None:
            continue
        made = result_type("real", tool["name"], schema)
        assert dataclasses.is_dataclass(made.type) or made.type == dict[str, Any]
        values = valid_examples(schema)
        assert values, f"no example of {tool['name']} is valid"
        assert_round_trip(made, values)
