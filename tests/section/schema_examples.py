"""Values that a schema is likely to accept, by choices of a given ``Random``.

Likely only: callers ask the validator. With ``wealth`` 0 an object has what it must have, with 1
it has everything, and whatever is between leaves it to chance.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random
from typing import Any

SCALARS: list[Any] = [None, True, False, 0, 1, 1.0, -2.5, 2**70, "", "x", "héé"]
TEXTS = (
    "x", "some text", "", "2026-11-03", "2026-11-03T10:00:00Z", "https://example.org/a", "a@b.org",
    "0123456789abcdef01234567", "00000000-0000-4000-8000-000000000000", "#a1b2c3", "ABC-123",
    "PROJ", "A1:B2", "1", "12345", "en", "node-1", "a/b", "/tmp/x", "1,2,3,4",
)  # fmt: skip
ATOMS = ("string", "integer", "number", "boolean", "null", "array", "object")
MAX_DEPTH = 7


class Examples:
    def __init__(self, root: Any, random: Random, wealth: float) -> None:
        self.root = root
        self.random = random
        self.wealth = wealth

    def value(self, schema: Any, depth: int = 0) -> Any:
        if depth > 2 * MAX_DEPTH:  # the schema asks for ever more: no finite value fits
            return None
        if not isinstance(schema, dict):
            return self.anything(depth)
        schema = self.opened(schema)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self.random.choice(schema["enum"])
        return self.typed(schema, depth)

    def opened(self, schema: dict[str, Any]) -> dict[str, Any]:
        """References followed, ``allOf`` merged, one alternative taken."""
        for _ in range(40):
            parts: list[Any] = [schema]
            if "$ref" in schema:
                parts.append(self.target(schema["$ref"]))
            parts.extend(schema.get("allOf", ()))
            groups = [schema[word] for word in ("anyOf", "oneOf") if schema.get(word)]
            parts.extend(self.random.choice(group) for group in groups)
            if len(parts) == 1:
                break
            gone = {"$ref", "allOf", "anyOf", "oneOf"}
            schema = {k: v for k, v in schema.items() if k not in gone}
            for part in parts[1:]:
                schema = merged(schema, part if isinstance(part, dict) else {})
        return schema

    def target(self, reference: str) -> Any:
        value = self.root
        for token in reference.split("/")[1:]:
            token = token.replace("~1", "/").replace("~0", "~")
            value = value[int(token)] if isinstance(value, list) else value[token]
        return value

    def typed(self, schema: dict[str, Any], depth: int) -> Any:
        kinds = schema.get("type", self.guessed(schema))
        kind = kinds if isinstance(kinds, str) else self.random.choice(kinds)
        if depth > MAX_DEPTH and "null" in kinds and isinstance(kinds, list):
            kind = "null"
        return getattr(self, f"a_{kind}")(schema, depth)

    def guessed(self, schema: dict[str, Any]) -> Any:
        if "properties" in schema or "additionalProperties" in schema:
            return "object"
        return "array" if "items" in schema or "prefixItems" in schema else list(ATOMS[:5])

    def anything(self, depth: int) -> Any:
        if depth > 2 or self.random.random() < 0.7:
            return self.random.choice(SCALARS)
        inner = self.anything(depth + 1)
        return [inner] if self.random.random() < 0.5 else {"any": inner}

    def a_null(self, schema: dict[str, Any], depth: int) -> None:
        return None

    def a_boolean(self, schema: dict[str, Any], depth: int) -> bool:
        return self.random.random() < 0.5

    def a_string(self, schema: dict[str, Any], depth: int) -> str:
        pattern, least = schema.get("pattern"), schema.get("minLength", 0)
        fitting = [t for t in TEXTS if len(t) >= least and (not pattern or re.search(pattern, t))]
        text = self.random.choice(fitting) if fitting else "x" * least
        return text[: schema.get("maxLength", 100)]

    def a_integer(self, schema: dict[str, Any], depth: int) -> Any:
        least = max(schema.get("minimum", -3), schema.get("exclusiveMinimum", -4) + 1)
        most = min(schema.get("maximum", least + 9), schema.get("exclusiveMaximum", least + 9))
        whole = self.random.randint(int(least), max(int(least), int(most)))
        return float(whole) if self.random.random() < 0.2 else whole

    def a_number(self, schema: dict[str, Any], depth: int) -> Any:
        whole = self.a_integer(schema, depth)
        return whole + 0.5 if self.random.random() < 0.3 else whole

    def a_array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        items, prefix = schema.get("items", True), schema.get("prefixItems", [])
        if isinstance(items, list):
            items, prefix = schema.get("additionalItems", True), items
        least = schema.get("minItems", 0)
        more = 0 if depth > MAX_DEPTH or items is False else self.random.randint(0, 2)
        length = max(least, min(len(prefix) + more, schema.get("maxItems", 9)))
        if self.wealth == 0:
            length = least
        every = [*prefix, *[items] * length][:length]
        return [self.value(item, depth + 1) for item in every]

    def a_object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        wanted = list(schema.get("required", ()))
        properties: Mapping[str, Any] = schema.get("properties", {})
        if depth <= MAX_DEPTH:
            wanted += [name for name in properties if self.random.random() < self.wealth]
        value = {
            name: self.value(properties.get(name, True), depth + 1)
            for name in dict.fromkeys(wanted)
            if properties.get(name, True) is not False
        }
        further = schema.get("additionalProperties", True)
        if further is not False and depth <= MAX_DEPTH and self.random.random() < self.wealth / 2:
            value.setdefault("further-one", self.value(further, depth + 1))
        for pattern in schema.get("patternProperties", {}):
            if self.random.random() < self.wealth and re.search(pattern, "x-1"):
                value.setdefault("x-1", self.value(schema["patternProperties"][pattern], depth + 1))
        return value


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    both = {**other, **one}
    if "properties" in one and "properties" in other:
        both["properties"] = {**other["properties"], **one["properties"]}
    if "required" in one and "required" in other:
        both["required"] = list(dict.fromkeys([*one["required"], *other["required"]]))
    return both


def example(schema: Any, random: Random, wealth: float = 0.5) -> Any:
    return Examples(schema, random, wealth).value(schema)
