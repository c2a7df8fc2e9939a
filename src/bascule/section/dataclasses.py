"""Frozen, slotted dataclasses made from the schemas of tools.

``params_type("github", "create_issue", schema).type`` is a class ``GithubCreateIssueParams``;
``dump`` turns an instance of it into the arguments for the wire and ``load`` the other way.
Whatever the schema accepts comes back the same: ``dump(load(x)) == x``. The class says what a
Python type can say; ``lossy`` names the rest, and the bridge validates every call against the
whole schema all the same.

A property that is not required is ``T | None`` and left out of the wire when it is not set. Unset
is None, except where the schema gives null a meaning: there it is ``UNSET``, so that null can be
sent. A schema's ``default`` is kept in the field's metadata and never sent for the caller.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from threading import RLock
from typing import Any, ClassVar, Literal, NamedTuple
from weakref import WeakValueDictionary

from msgspec import UNSET

from bascule.model.json import JsonObject, JsonValue, is_object
from bascule.policy.schema_cost import MAX_DEPTH, MAX_NODES, measure
from bascule.section import schema_facets as facet_rules
from bascule.section.dataclass_names import class_name, short_class_name
from bascule.section.dataclass_objects import ObjectShape, SchemaObject, State, extras, plain
from bascule.section.dataclass_shapes import Misfit
from bascule.section.schema_compiler import Compiler
from bascule.section.schema_facets import Document, Schema, SchemaUnsupported

__all__ = ["UNSET", "SchemaType", "SchemaUnsupported", "extras", "params_type", "result_type"]

Kind = Literal["Params", "Result"]

#: Types kept although nobody holds them; one that is in use is found again in any case.
MAX_KEPT = 512


class Origin(NamedTuple):
    """What a type was made from: enough to make it again, in another process too."""

    kind: Kind
    server: str
    tool: str
    schema: str


class SchemaType:
    """The Python type of a tool's arguments or result, and the way to and from plain JSON."""

    unset: ClassVar[Any] = UNSET

    __slots__ = ("__weakref__", "_shapes", "lossy", "origin", "type")

    def __init__(
        self, origin: Origin, shapes: Sequence[ObjectShape] = (), lossy: tuple[str, ...] = ()
    ) -> None:
        self.origin = origin
        #: The dataclass; ``dict[str, Any]`` for a result that is no object with properties.
        self.type: Any = shapes[0].cls if shapes else dict[str, Any]
        self.lossy = lossy
        self._shapes = shapes

    def __repr__(self) -> str:
        return f"<SchemaType {getattr(self.type, '__name__', 'dict')} of {len(self.lossy)} losses>"

    @property
    def types(self) -> dict[str, type[Any]]:
        """Return every generated class by name, the outermost first."""
        return {shape.name: shape.cls for shape in self._shapes}

    def load(self, plain: JsonValue) -> Any:
        """Return the typed value of plain JSON; raise ValueError with the path of what is wrong."""
        if not self._shapes:
            return plain
        try:
            return self._shapes[0].load(plain, {})
        except RecursionError:
            raise Misfit("is nested too deep") from None

    def dump(self, value: object) -> dict[str, Any]:
        """Return plain JSON: unset values left out, properties under their original names."""
        if isinstance(value, SchemaObject) and type(value) is self.type:
            return self._shapes[0].dump(value)
        if self._shapes or not is_object(value):
            raise TypeError(f"{self!r} cannot write a {type(value).__name__}")
        return {key: plain(member) for key, member in value.items()}

    def revive(self, name: str, state: State) -> object:
        """Make an instance of one of the types from what ``pickle`` kept of it."""
        return next(shape for shape in self._shapes if shape.name == name).revive(state)

    def __reduce__(self) -> tuple[Callable[[Origin], SchemaType], tuple[Origin]]:
        return _known, (self.origin,)


def params_type(server: str, tool: str, schema: JsonObject) -> SchemaType:
    """Return the type of a tool's arguments: always a dataclass."""
    return _known(Origin("Params", server, tool, _text(schema)))


def result_type(server: str, tool: str, schema: JsonObject | None) -> SchemaType:
    """Return the type of a tool's result: a dataclass if its schema declares properties."""
    return _known(Origin("Result", server, tool, _text({} if schema is None else schema)))


def _text(schema: object) -> str:
    nodes, levels = measure(schema)
    if nodes > MAX_NODES or levels > MAX_DEPTH:
        raise SchemaUnsupported(f"over {MAX_NODES} nodes or {MAX_DEPTH} levels")
    try:
        return json.dumps(schema, separators=(",", ":"), default=_as_json)
    except (TypeError, ValueError) as error:
        raise SchemaUnsupported(f"not JSON: {error}") from None


def _as_json(value: object) -> JsonValue:
    if is_object(value):
        return dict(value)
    raise TypeError(f"a {type(value).__name__}")


_lock = RLock()
_live: WeakValueDictionary[Origin, SchemaType] = WeakValueDictionary()


@lru_cache(MAX_KEPT)
def _known(origin: Origin) -> SchemaType:
    """Return the one type of this origin, made when there is none alive."""
    schema: JsonValue = json.loads(origin.schema)
    key = origin._replace(schema=json.dumps(schema, sort_keys=True))
    with _lock:
        found = _live.get(key)
        if found is None:
            found = _live[key] = _made(origin, schema)
    return found


def _made(origin: Origin, schema: JsonValue) -> SchemaType:
    document = Document(schema if is_object(schema) else {})
    try:
        facets = document.facets([schema])
        if facets is None:
            raise SchemaUnsupported("nothing fits the schema")
        if not _has_class(origin.kind, document, facets):
            return SchemaType(origin)
        return _compiled(origin, document, facets)
    except RecursionError:
        raise SchemaUnsupported("its alternatives are nested too deep") from None


def _has_class(kind: Kind, document: Document, facets: list[Schema]) -> bool:
    objects = "object" in facet_rules.types(facets)
    if kind == "Params":
        if not objects:
            raise SchemaUnsupported("the arguments of a tool are an object, this schema has none")
        return True
    options = [option for _, group in facet_rules.alternatives(facets) for option in group]
    every = [*facets, *(document.facets(options) or ())]
    return objects and any(facet_rules.members(facet, "properties") for facet in every)


def _compiled(origin: Origin, document: Document, facets: list[Schema]) -> SchemaType:
    name = short_class_name(class_name(origin.server, origin.tool), origin.kind)
    what = "Arguments" if origin.kind == "Params" else "Result"
    doc = facet_rules.first_text(facets, "description")
    compiler = Compiler(document, name)
    compiler.object(facets, doc or f"{what} of the tool {origin.tool} of {origin.server}.")
    made = SchemaType(origin, compiler.objects, compiler.lossy)
    for shape in compiler.objects:
        shape.remake = made.revive
    return made
