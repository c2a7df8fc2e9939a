"""Required properties that have a default: what a server fills in, nobody has to send.

Schemas made of models with defaults often list every property as required, because it is there
once the server has read the call. The servers accept calls without them. This gives the schema
without such entries of ``required``; everything else stays, and nothing is filled in. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bascule.model.json import JsonObject, JsonValue, is_array, is_object, objects

Schema = JsonObject

_NOT_SCHEMAS = frozenset({"const", "enum", "default", "examples", "required"})
# What these hold decides about other schemas: a requirement dropped there would mean another.
_CONDITIONS = frozenset({"if", "not"})
# The branches in here speak of the same object as the schema around them.
_SAME_OBJECT = frozenset({"allOf", "anyOf", "oneOf", "then", "else"})
# The keys in here are names, not keywords.
_MAPS = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)


def without_defaulted(schema: Schema) -> Schema:
    """Return the schema without requirements that a default makes needless; itself if none is."""
    changed = _Relaxing(schema)
    relaxed: Schema = changed.schema(schema, frozenset())
    return relaxed if changed.dropped else schema


class _Relaxing:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._names: dict[int, frozenset[str]] = {}
        self._defaults: dict[int, bool] = {}
        self.dropped = False

    def schema(self, value: JsonValue, outer: frozenset[str]) -> Any:
        """Return a schema relaxed; ``outer`` are properties with defaults of the same object."""
        if is_array(value):
            return [self.schema(item, outer) for item in value]
        if not is_object(value):
            return value
        known = outer | self._defaulted(value)
        kept: dict[str, JsonValue] = {}
        for key, member in value.items():
            if key == "required" and is_array(member):
                kept[key] = self._required(member, known)
            elif key in _NOT_SCHEMAS or key in _CONDITIONS:
                kept[key] = member
            elif key in _MAPS:
                kept[key] = self._named(member)
            else:
                kept[key] = self.schema(member, known if key in _SAME_OBJECT else frozenset())
        return kept

    def _named(self, schemas: JsonValue) -> JsonValue:
        """Return a map of names to schemas; a name here is no keyword."""
        if not is_object(schemas):
            return schemas
        return {name: self.schema(part, frozenset()) for name, part in schemas.items()}

    def _required(self, names: Sequence[JsonValue], defaulted: frozenset[str]) -> list[JsonValue]:
        kept = [name for name in names if not isinstance(name, str) or name not in defaulted]
        self.dropped = self.dropped or len(kept) < len(names)
        return kept

    def _defaulted(self, schema: Schema) -> frozenset[str]:
        """Return the properties of an object that have a default, wherever it describes them."""
        found = self._names.get(id(schema))
        if found is None:
            self._names[id(schema)] = frozenset()  # a reference back to here adds nothing
            properties = schema.get("properties")
            own = properties.items() if is_object(properties) else ()
            found = frozenset(name for name, part in own if self._has_default(part))
            found = found.union(*map(self._defaulted, self._parts(schema)))
            self._names[id(schema)] = found
        return found

    def _has_default(self, schema: JsonValue) -> bool:
        if not is_object(schema) or "default" in schema:
            return is_object(schema)
        found = self._defaults.get(id(schema))
        if found is None:
            self._defaults[id(schema)] = False
            found = self._defaults[id(schema)] = any(map(self._has_default, self._parts(schema)))
        return found

    def _parts(self, schema: Schema) -> Iterator[Schema]:
        """Yield what holds for an object as well: the target of its reference, ``allOf``."""
        target = self._target(schema.get("$ref"))
        if is_object(target):
            yield target
        yield from objects(schema.get("allOf"))

    def _target(self, reference: JsonValue) -> JsonValue:
        """Return what a reference inside the document points at; None for any other."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        found: JsonValue = self._root
        for step in reference[1:].split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if is_object(found) else None
        return found
