"""JSON Schema taken apart: what a place in a schema says, with references and ``allOf`` opened.

A place is described by facets: the raw schemas that all apply to it. Two ways to the same facets
are the same place, and that is how recursion ends. Booleans, drafts and odd spellings are dealt
with here, so that the compiler sees objects only. References are resolved inside the document;
one that leads out of it is refused, and nothing is ever fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from bascule.model.json import JsonObject, JsonValue, is_array, is_object

Schema = JsonObject
#: A keyword and its alternatives.
Group = tuple[str, list[JsonValue]]

ATOMS = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
#: Schemas that may apply to one place; more are left to the validator.
MAX_FACETS = 256

# Assertions that no Python type makes. ``format`` is not one: it asserts nothing by default.
_INEXPRESSIBLE = (
    "pattern", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems", "contains",
    "minContains", "maxContains", "minProperties", "maxProperties", "propertyNames",
    "patternProperties", "dependentRequired", "dependentSchemas", "dependencies", "not", "if",
    "unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef", "oneOf",
)  # fmt: skip
_OBJECT_DETAIL = ("properties", "required", "additionalProperties", "patternProperties")
_ARRAY_DETAIL = ("items", "prefixItems")
_STRUCTURE = frozenset({"type", "enum", "const", *_OBJECT_DETAIL, *_ARRAY_DETAIL})
_IN_PLACE = frozenset({"anyOf", "oneOf", "allOf", "$ref"})
_SAID = _STRUCTURE.union(_INEXPRESSIBLE, {"anyOf"})
_META_SCHEMAS = ("http://json-schema.org/draft-", "https://json-schema.org/draft/")
# Drafts in which $ref stands alone and tuples are spelt as a list of ``items``.
_LEGACY = re.compile(r"draft-0[3-7]")
_PERCENT = re.compile("(?:%[0-9A-Fa-f]{2})+")


class SchemaUnsupported(ValueError):
    """A schema for which no dataclass can be made, with the reason."""


class Document:
    """One schema with its references."""

    def __init__(self, root: Schema) -> None:
        self.root = root
        version = root.get("$schema")
        self.legacy = isinstance(version, str) and _LEGACY.search(version) is not None
        #: A part of it is a document of its own: what references mean is left to the validator.
        self.nested = _has_resource(root)
        self._id = _text(root.get("$id")).rstrip("#")
        self._anchors = dict(_anchors(root))
        self._bare: dict[int, tuple[Schema, Schema]] = {}

    def facets(self, schemas: Iterable[JsonValue]) -> list[Schema] | None:
        """Return the facets of a place to which all of these apply; None when nothing can fit."""
        found: dict[int, Schema] = {}
        waiting = list(schemas)[::-1]
        while waiting:
            schema = waiting.pop()
            if schema is False:
                return None
            if not is_object(schema) or id(schema) in found or len(found) >= MAX_FACETS:
                continue
            found[id(schema)] = schema
            waiting.extend(self._in_place(schema))
        return [facet for facet in found.values() if self._matters(facet)]

    def _in_place(self, schema: Schema) -> list[JsonValue]:
        """Return the schemas that apply where this one does, the first last."""
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return _list(schema.get("allOf"))[::-1]
        target = self.resolve(reference)
        return [target] if self.legacy else [*_list(schema.get("allOf"))[::-1], target]

    def _matters(self, facet: Schema) -> bool:
        if self.legacy and isinstance(facet.get("$ref"), str):
            return False
        return not _SAID.isdisjoint(facet)

    def resolve(self, reference: str) -> JsonValue:
        """Return the schema that a reference means; raise SchemaUnsupported when it is not here."""
        name, _, fragment = reference.partition("#")
        if self.nested or name.startswith(_META_SCHEMAS):
            return True
        if name and name != self._id:
            raise SchemaUnsupported(f"$ref {reference[:200]!r} leads outside the schema")
        if not fragment:
            return self.root
        named = not fragment.startswith("/")
        target = self._anchors.get(fragment) if named else _pointed(self.root, fragment)
        if not (is_object(target) or isinstance(target, bool)):
            raise SchemaUnsupported(f"$ref {reference[:200]!r} leads nowhere")
        return target

    def bare(self, facet: Schema) -> Schema | None:
        """Return the facet without its alternatives; None when nothing is left that matters.

        The same facet gives the same object each time: places are told by identity.
        """
        if not _STRUCTURE.intersection(facet):
            return None
        if _IN_PLACE.isdisjoint(facet):
            return facet
        if id(facet) not in self._bare:
            kept = {key: value for key, value in facet.items() if key not in _IN_PLACE}
            self._bare[id(facet)] = (kept, facet)
        return self._bare[id(facet)][0]

    def array(self, facet: Schema) -> tuple[list[JsonValue], JsonValue]:
        """Return the schemas of the first items by place, and the schema of all further ones."""
        items = facet.get("items", True)
        if self.legacy and is_array(items):
            return list(items), facet.get("additionalItems", True)
        prefix = [] if self.legacy else _list(facet.get("prefixItems"))
        return prefix, True if is_array(items) else items


def _pointed(value: JsonValue, pointer: str) -> JsonValue:
    for token in pointer.split("/")[1:]:
        token = _PERCENT.sub(_decoded, token).replace("~1", "/").replace("~0", "~")
        if is_object(value):
            value = value.get(token)
        elif is_array(value) and token.isdecimal() and int(token[:9]) < len(value):
            value = value[int(token[:9])]
        else:
            return None
    return value


def _decoded(match: re.Match[str]) -> str:
    return bytes.fromhex(match[0].replace("%", "")).decode("utf-8", "replace")


def _anchors(root: Schema) -> Iterator[tuple[str, Schema]]:
    for value in _objects(root):
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := value.get(keyword), str):
                yield anchor, value
        name = _text(value.get("$id"))
        if value is not root and name.startswith("#"):
            yield name[1:], value


def _has_resource(root: Schema) -> bool:
    names = (_text(value.get("$id")) for value in _objects(root) if value is not root)
    return any(name and not name.startswith("#") for name in names)


def _objects(root: Schema) -> Iterator[Schema]:
    """Yield every object of a schema, whatever it stands for there."""
    waiting: list[JsonValue] = [root]
    while waiting:
        value = waiting.pop()
        if is_array(value):
            waiting.extend(value)
        elif is_object(value):
            waiting.extend(value.values())
            yield value


def types(facets: Sequence[Schema]) -> frozenset[str]:
    """Return the JSON types that all facets allow; a number may be an integer."""
    allowed = ATOMS
    for facet in facets:
        said = facet.get("type")
        if said is None:
            continue
        listed = {said} if isinstance(said, str) else set(names(facet, "type"))
        if "number" in listed:
            listed.add("integer")
        allowed = allowed & listed
    return allowed


def listed_values(facets: Sequence[Schema]) -> list[JsonValue] | None:
    """Return the values that ``enum`` and ``const`` leave; None when neither is used."""
    lists = [_list(facet["enum"]) for facet in facets if is_array(facet.get("enum"))]
    lists.extend([facet["const"]] for facet in facets if "const" in facet)
    if not lists:
        return None
    shared = {_key(value): value for value in lists[0]}
    for values in lists[1:]:
        keys = {_key(value) for value in values}
        shared = {key: value for key, value in shared.items() if key in keys}
    return list(shared.values())


def _key(value: JsonValue) -> tuple[object, ...]:
    """Return what is equal for equal JSON values: 1 and 1.0 are, 1 and true are not."""
    if is_array(value):
        return ("array", *map(_key, value))
    if is_object(value):
        return ("object", frozenset((name, _key(member)) for name, member in value.items()))
    return (isinstance(value, bool), value)


def atom_of(value: JsonValue) -> str:
    """Return the JSON type of a value."""
    if value is None:
        return "null"
    for kind, atom in ((bool, "boolean"), (int, "integer"), (str, "string")):
        if isinstance(value, kind):
            return atom
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    return "object" if is_object(value) else "array"


def alternatives(facets: Sequence[Schema]) -> list[Group]:
    """Return the alternatives of every ``anyOf`` and ``oneOf``."""
    places = [(facet, word) for facet in facets for word in ("anyOf", "oneOf")]
    return [(word, _list(facet[word])) for facet, word in places if is_array(facet.get(word))]


def speaks_of(facets: Sequence[Schema], kind: str) -> bool:
    """Say whether anything is said of the inside of objects, or of arrays."""
    words = _OBJECT_DETAIL if kind == "object" else _ARRAY_DETAIL
    return any(word in facet for facet in facets for word in words)


def inexpressible(facets: Sequence[Schema]) -> Iterator[str]:
    """Name the keywords that no Python type expresses."""
    for facet in facets:
        yield from (word for word in _INEXPRESSIBLE if word in facet)


def members(facet: Schema, word: str) -> Schema:
    """Return a map of schemas by name, empty when there is none."""
    value = facet.get(word)
    return value if is_object(value) else {}


def names(facet: Schema, word: str) -> list[str]:
    """Return a list of names, empty when there is none."""
    return [name for name in _list(facet.get(word)) if isinstance(name, str)]


def first_text(facets: Sequence[Schema], word: str) -> str:
    """Return the first text that a facet gives for a keyword, or nothing."""
    return next(filter(None, (_text(facet.get(word)) for facet in facets)), "")


def _list(value: object) -> list[JsonValue]:
    return list(value) if is_array(value) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
