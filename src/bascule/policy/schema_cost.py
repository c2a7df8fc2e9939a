"""What a JSON Schema can cost: its size, and how its work multiplies along the arguments.

A validator visits a subschema once per path that leads to it, so a few hundred bytes of ``$ref``
can ask for 2^30 visits: at once (``allOf`` of the same reference twice, thirty times over) or level
by level (a recursive schema that takes the same branch twice). ``Cost`` bounds both before
anything is validated: it counts the visits that one path of some depth into the arguments can take.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from bascule.model.json import JsonObject, JsonValue, is_array, is_object, objects

Schema = JsonObject

MAX_NODES = 10_000
MAX_DEPTH = 64
# Visits along one path of the arguments; a visit takes some tens of nanoseconds.
MAX_VISITS = 20_000
# Entries in the tables of one round: a bound on the cost of finding the cost.
_MAX_TABLE = 100_000

_LISTS_IN_PLACE = ("allOf", "anyOf", "oneOf")
_IN_PLACE = ("not", "if", "then", "else")
_MAPS_IN_PLACE = ("dependentSchemas", "dependencies")
_EVERY_CHILD = (
    "additionalProperties", "unevaluatedProperties", "propertyNames", "items",
    "additionalItems", "unevaluatedItems", "contains",
)  # fmt: skip
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANY = None

# Bundled with every validator: they recurse, but never twice into the same place.
_META_SCHEMAS = ("http://json-schema.org/draft-", "https://json-schema.org/draft/")


class TooCostly(ValueError):
    """A schema beyond the bounds, or one whose cost cannot be told."""


def measure(value: object, max_nodes: int = MAX_NODES) -> tuple[int, int]:
    """Nodes and levels of a JSON value, without recursion; it stops counting past the bounds."""
    nodes = levels = 0
    level = [value]
    while level and nodes <= max_nodes and levels <= MAX_DEPTH:
        nodes += len(level)
        levels += 1
        level = [child for parent in level for child in _members(parent)]
    return nodes, levels


def _members(value: object) -> Iterator[JsonValue]:
    if is_object(value):
        yield from value.values()
    elif is_array(value):
        yield from value


class _Node:
    """One subschema: what it applies to the same value, and what to which child of it."""

    def __init__(self) -> None:
        self.in_place: list[_Node] = []
        self.descents: list[tuple[str | None, _Node]] = []
        self.here = 0
        self.visits = 0
        self.table: dict[str | None, int] = {}

    def deepen(self) -> int:
        """One level more, from the visits of the level before; the size of the table."""
        table: dict[str | None, int] = {}
        for other in self.in_place:
            for key, visits in other.table.items():
                table[key] = min(table.get(key, 0) + visits, MAX_VISITS + 1)
        for key, child in self.descents:
            table[key] = min(table.get(key, 0) + child.visits, MAX_VISITS + 1)
        self.table = table
        return len(table)

    def total(self) -> int:
        everywhere = self.table.get(_ANY, 0)
        worst = max((n for key, n in self.table.items() if key is not _ANY), default=0)
        return min(self.here + everywhere + worst, MAX_VISITS + 1)


class Cost:
    """The work that a schema can ask for. Raises ``TooCostly`` when it cannot be bounded."""

    def __init__(self, root: Schema) -> None:
        graph = _Graph(root)
        self._by_level = _levels(_ordered(graph.nodes), graph.root)

    def visits(self, depth: int) -> int:
        """The most visits on one path of ``depth`` levels; ``MAX_VISITS`` + 1 means too many."""
        return self._by_level[min(depth, len(self._by_level) - 1)]


def _levels(nodes: list[_Node], root: _Node) -> list[int]:
    """Visits from the root by depth, until they settle or grow too many."""
    found: list[int] = []
    while len(found) <= MAX_DEPTH:
        if sum(node.deepen() for node in nodes) > _MAX_TABLE:
            raise TooCostly("its subschemas are too intertwined")
        before = [node.visits for node in nodes]
        for node in nodes:
            node.visits = node.total()
        found.append(root.visits)
        if found[-1] > MAX_VISITS or before == [node.visits for node in nodes]:
            break
    return found


def _ordered(nodes: Iterable[_Node]) -> list[_Node]:
    """The nodes, each after those it applies in place; counts the in-place visits on the way."""
    finished: dict[_Node, bool] = {}
    ordered: list[_Node] = []
    waiting = list(nodes)
    while waiting:
        node = waiting[-1]
        if node not in finished:
            finished[node] = False
            waiting.extend(_pending(node.in_place, finished))
            continue
        waiting.pop()
        if not finished[node]:
            finished[node] = True
            node.here = min(1 + sum(other.here for other in node.in_place), MAX_VISITS + 1)
            ordered.append(node)
    return ordered


def _pending(nodes: list[_Node], finished: dict[_Node, bool]) -> list[_Node]:
    if any(finished.get(node) is False for node in nodes):
        raise TooCostly("it refers to itself without going deeper")
    return [node for node in nodes if node not in finished]


class _Graph:
    """The subschemas that validation can reach, joined as validation joins them."""

    def __init__(self, root: Schema) -> None:
        self._names = _Names(root)
        self._made: dict[int, _Node] = {}
        self._waiting: list[tuple[Schema, Schema, _Node]] = []
        self.root = self._node(root, root)
        while self._waiting:
            self._join(*self._waiting.pop())

    @property
    def nodes(self) -> Iterable[_Node]:
        return self._made.values()

    def _node(self, schema: Schema, resource: Schema) -> _Node:
        node = self._made.get(id(schema))
        if node is None:
            node = self._made[id(schema)] = _Node()
            own = schema if _is_resource(schema) else resource
            self._waiting.append((schema, own, node))
        return node

    def _join(self, schema: Schema, resource: Schema, node: _Node) -> None:
        for child in _applied_in_place(schema):
            node.in_place.append(self._node(child, resource))
        for key, child in _applied_to_children(schema):
            node.descents.append((key, self._node(child, resource)))
        for keyword in _REFERENCES:
            reference = schema.get(keyword)
            if isinstance(reference, str) and not reference.startswith(_META_SCHEMAS):
                target, home = self._names.resolve(reference, resource)
                node.in_place.append(self._node(target, home))


def _applied_in_place(schema: Schema) -> Iterator[Schema]:
    for keyword in _LISTS_IN_PLACE:
        yield from objects(schema.get(keyword))
    yield from objects([schema.get(keyword) for keyword in _IN_PLACE])
    for keyword in _MAPS_IN_PLACE:
        yield from (child for _, child in _named(schema.get(keyword)))


def _applied_to_children(schema: Schema) -> Iterator[tuple[str | None, Schema]]:
    yield from _named(schema.get("properties"))
    for child in objects([schema.get(keyword) for keyword in _EVERY_CHILD]):
        yield _ANY, child
    for _, child in _named(schema.get("patternProperties")):
        yield _ANY, child
    for keyword in ("prefixItems", "items"):
        yield from ((str(n), child) for n, child in enumerate(objects(schema.get(keyword))))


def _named(value: JsonValue) -> Iterator[tuple[str, Schema]]:
    if is_object(value):
        yield from ((name, item) for name, item in value.items() if is_object(item))


def _is_resource(schema: Schema) -> bool:
    name = schema.get("$id")
    return isinstance(name, str) and not name.startswith("#")


_PERCENT = re.compile("%([0-9A-Fa-f]{2})")


class _Names:
    """Where references lead inside one document. What leads out of it is refused."""

    def __init__(self, root: Schema) -> None:
        self._ids: dict[str, Schema] = {"": root}
        self._anchors: dict[str, list[Schema]] = {}
        waiting: list[JsonValue] = [root]
        while waiting:
            value = waiting.pop()
            waiting.extend(_members(value))
            if is_object(value):
                self._learn(value)

    def _learn(self, schema: Schema) -> None:
        for keyword in ("$anchor", "$dynamicAnchor", "$id"):
            name = schema.get(keyword)
            if not isinstance(name, str):
                continue
            if keyword == "$id" and not name.startswith("#"):
                self._ids[name.rstrip("#")] = schema
            else:
                self._anchors.setdefault(name.lstrip("#"), []).append(schema)

    def resolve(self, reference: str, resource: Schema) -> tuple[Schema, Schema]:
        """The schema that a reference means, and the resource that it belongs to."""
        name, _, fragment = reference.partition("#")
        home = self._document(name, reference) if name else resource
        if not fragment:
            return home, home
        if fragment.startswith("/"):
            return _pointed(home, fragment, reference)
        found = self._anchors.get(fragment, [])
        if len(found) != 1:
            raise TooCostly(f"$ref {reference[:200]!r} leads nowhere, or to several places")
        return found[0], home

    def _document(self, name: str, reference: str) -> Schema:
        found = [s for known, s in self._ids.items() if known == name or known.endswith("/" + name)]
        if len(found) != 1:
            raise TooCostly(f"$ref {reference[:200]!r} leads outside the schema: never fetched")
        return found[0]


def _pointed(home: Schema, pointer: str, reference: str) -> tuple[Schema, Schema]:
    value: JsonValue = home
    for token in pointer.split("/")[1:]:
        token = _PERCENT.sub(lambda m: chr(int(m[1], 16)), token)
        value = _step(value, token.replace("~1", "/").replace("~0", "~"))
        if is_object(value) and _is_resource(value):
            home = value
    if isinstance(value, bool):
        value = {}
    if not is_object(value):
        raise TooCostly(f"$ref {reference[:200]!r} leads nowhere")
    return value, home


def _step(value: JsonValue, token: str) -> JsonValue:
    if is_object(value):
        return value.get(token)
    if is_array(value) and token.isdecimal() and int(token) < len(value):
        return value[int(token)]
    return None
