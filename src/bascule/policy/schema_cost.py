"""What a JSON Schema can cost: its size, and how its work multiplies along the arguments.

A validator visits a subschema once per path that leads to it, so a few hundred bytes of ``$ref``
can ask for 2^30 visits: at once (``allOf`` of the same reference twice, thirty times over) or once
per level of the arguments (a recursive schema that takes the same branch twice). ``Cost`` bounds
both before anything is validated: ``visits(depth)`` is the most visits that one path of that depth
into the arguments can take.

Above: ``bascule.policy.schema``. Below: nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MAX_NODES = 10_000
MAX_DEPTH = 64
# Visits along one path of the arguments; a visit takes some tens of nanoseconds.
MAX_VISITS = 20_000

_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE = ("not", "if", "then", "else")
_IN_PLACE_MAPS = ("dependentSchemas", "dependencies")
_EVERY_CHILD = (
    "additionalProperties",
    "propertyNames",
    "unevaluatedProperties",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "items",
)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANY = ""

Schema = dict[str, Any]


class SchemaTooCostly(ValueError):
    """A schema beyond the bounds, or with a reference that leads nowhere."""


def measure(schema: object) -> tuple[int, int]:
    """Nodes and depth of a JSON value, walked without recursion; stops past the bounds."""
    nodes = deepest = 0
    level = [schema]
    while level and nodes <= MAX_NODES and deepest <= MAX_DEPTH:
        nodes += len(level)
        deepest += 1
        level = [child for value in level for child in _children(value)]
    return nodes, deepest


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple):
        yield from value


class Cost:
    """The work a schema can ask for, per depth of the arguments."""

    def __init__(self, root: Schema) -> None:
        self._resources = _Resources(root)
        self._nodes: dict[int, _Node] = {}
        self._root = self._explore(root)
        self._by_depth: list[int] = []

    def visits(self, depth: int) -> int:
        """The most visits along one path of ``depth`` levels, at most ``MAX_VISITS`` + 1."""
        while len(self._by_depth) <= depth:
            self._deepen()
        return self._by_depth[depth]

    def _deepen(self) -> None:
        if self._settled():
            self._by_depth.append(self._by_depth[-1])
            return
        for node in self._nodes.values():
            node.next = node.own_visits + node.below()
        for node in self._nodes.values():
            node.visits = min(node.next, MAX_VISITS + 1)
        self._by_depth.append(self._root.visits)

    def _settled(self) -> bool:
        last = self._by_depth[-2:]
        return bool(last) and (
            last[-1] > MAX_VISITS
            or (len(last) == 2 and all(n.next == n.visits_before for n in self._nodes.values()))
        )

    def _explore(self, root: Schema) -> _Node:
        """Find every schema that evaluation can reach, and what each does where it stands."""
        waiting = [root]
        while waiting:
            schema = waiting.pop()
            if id(schema) in self._nodes:
                continue
            node = self._nodes[id(schema)] = _Node()
            for place in self._in_place(schema):
                node.own_visits = min(node.own_visits + 1, MAX_VISITS + 1)
                for key, child in _descents(place):
                    node.add(key, id(child))
                    waiting.append(child)
        raise NotImplementedError
