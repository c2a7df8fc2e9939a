"""From a JSON Schema to shapes: which Python types say most of what the schema says.

Every shape takes at least what the schema takes. Where a type would be stricter the schema is
followed only as far as it can be: conditions, exclusive alternatives and rules about single
values are named in ``lossy`` and left to the validator. Only what applies in place is compiled
recursively; what is inside an object or an array waits in a queue, so that recursive schemas end
and deep ones need no deep stack. Sizes are bounded: past a bound a place is ``Any``, and lossy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from bascule.model.json import JsonValue, is_object
from bascule.section import schema_facets as facet_rules
from bascule.section.dataclass_names import class_name, short_class_name, unused
from bascule.section.dataclass_objects import FieldPlan, ObjectShape
from bascule.section.dataclass_shapes import (
    ANYTHING,
    NOTHING,
    ListShape,
    LiteralShape,
    MapShape,
    ScalarShape,
    Shape,
    SoftShape,
    one_of,
    step_text,
)
from bascule.section.schema_facets import ATOMS, Document, Group, Schema

MAX_SHAPES = 2_000
MAX_CLASSES = 200
MAX_LOSSY = 200
_MAX_DOC = 2_000


class Where(NamedTuple):
    """A place in the schema: the path to it, and the name of a class made there."""

    path: str
    name: str

    def property(self, name: str) -> Where:
        """Go to a property."""
        return self.down(f"properties{step_text(name)}", name)

    def down(self, step: str, name: str) -> Where:
        """Go one step into the schema."""
        suffix = class_name(f"x{name}")[1:] if name[:1].isdigit() else _suffix(name)
        return Where(f"{self.path}.{step}", short_class_name(self.name, suffix[:60]))


def _suffix(name: str) -> str:
    words = class_name(name)
    return words if words != "T" else "Field"


class Properties(NamedTuple):
    """What the facets of a place say of objects."""

    schemas: dict[str, list[JsonValue]]
    required: list[str]
    patterns: list[JsonValue]
    additional: list[JsonValue]
    closed: bool

    @property
    def bare(self) -> bool:
        """Say whether nothing is said that asks for a class."""
        return not (self.schemas or self.required or self.closed)


def _properties(facets: Sequence[Schema]) -> Properties:
    found = Properties({}, [], [], [], closed=any(map(_closes, facets)))
    for facet in facets:
        for name, schema in facet_rules.members(facet, "properties").items():
            found.schemas.setdefault(name, []).append(schema)
        found.required.extend(facet_rules.names(facet, "required"))
        found.patterns.extend(facet_rules.members(facet, "patternProperties").values())
        additional = facet.get("additionalProperties")
        if is_object(additional) or additional is True:
            found.additional.append(additional)
    return found


def _closes(facet: Schema) -> bool:
    patterns = facet_rules.members(facet, "patternProperties")
    return facet.get("additionalProperties") is False and not patterns


class Compiler:
    """Compiles one schema."""

    def __init__(self, document: Document, name: str) -> None:
        self._document = document
        self._name = name
        self._shapes: dict[frozenset[int], Shape] = {}
        self._busy: set[frozenset[int]] = set()
        self._queue: deque[Callable[[], None]] = deque()
        self._class_names: set[str] = set()
        self._lossy: dict[str, None] = {}
        self.objects: list[ObjectShape] = []

    @property
    def lossy(self) -> tuple[str, ...]:
        """Return what the shapes do not say, as ``path: keyword`` lines."""
        lines = tuple(self._lossy)
        return lines if len(lines) <= MAX_LOSSY else (*lines[:MAX_LOSSY], "$: and more")

    def object(self, facets: list[Schema], doc: str) -> None:
        """Compile the whole schema as one object, whatever alternatives it has."""
        where = Where("$", self._name)
        self._lose_all(where, facets)
        groups = facet_rules.alternatives(facets)
        self._lose_choice(where, groups)
        self._shapes[frozenset(map(id, facets))] = self._class(facets, groups, where, doc)
        while self._queue:
            self._queue.popleft()()
        for made in self.objects:
            made.make()
        for made in self.objects:
            made.annotate()

    def _shape(self, schemas: Sequence[JsonValue], where: Where) -> Shape:
        facets = self._document.facets(schemas)
        if facets is None:
            return NOTHING
        if self._document.nested and any(is_object(s) and "$ref" in s for s in schemas):
            self._lose(where, "$ref")
        key = frozenset(map(id, facets))
        if not facets or key in self._shapes:
            return self._shapes[key] if facets else ANYTHING
        if key in self._busy or len(self._shapes) >= MAX_SHAPES:
            self._lose(where, "refers to itself" if key in self._busy else "too large")
            return ANYTHING
        self._busy.add(key)
        shape = self._shapes[key] = self._compiled(facets, self._renamed(where, schemas))
        self._busy.discard(key)
        return shape

    def _renamed(self, where: Where, schemas: Sequence[JsonValue]) -> Where:
        """Name a shared definition after itself: many places may lead to it."""
        last = schemas[-1]
        reference = last.get("$ref") if is_object(last) else None
        if not isinstance(reference, str) or "/" not in reference:
            return where
        named = Where("", self._name).down("", reference.rpartition("/")[2])
        return where._replace(name=named.name)

    def _compiled(self, facets: list[Schema], where: Where) -> Shape:
        self._lose_all(where, facets)
        groups = facet_rules.alternatives(facets)
        values = facet_rules.listed_values(facets)
        own = [bare for facet in facets if (bare := self._document.bare(facet)) is not None]
        if values is not None:
            shape = self._listed(values, facet_rules.types(own), where)
        elif not groups:
            return self._typed(own, groups, where)
        elif facet_rules.speaks_of(own, "object") or facet_rules.speaks_of(own, "array"):
            shape = self._typed(own, groups, where)
        else:
            return self._union(own, groups, where)
        self._lose_choice(where, groups)
        return shape

    def _listed(self, values: list[JsonValue], allowed: frozenset[str], where: Where) -> Shape:
        atoms = [(facet_rules.atom_of(value), value) for value in values]
        kept = [(atom, value) for atom, value in atoms if atom in allowed]
        containers = {atom for atom, _ in kept if atom in ("object", "array")}
        scalars = [value for atom, value in kept if atom not in containers]
        literal = LiteralShape(scalars)
        parts: list[Shape] = [literal] if scalars else []
        if "object" in containers:
            parts.append(MapShape())
        if "array" in containers:
            parts.append(ListShape())
        if containers or not literal.exactly():
            self._lose(where, "enum")
        return one_of(parts)

    def _union(self, own: list[Schema], groups: list[Group], where: Where) -> Shape:
        self._lose_choice(where, groups[1:])
        word, listed = groups[0]
        options = [
            self._shape([*own, option], where.down(f"{word}[{index}]", _option_name(option, index)))
            for index, option in enumerate(listed)
        ]
        return one_of(options)

    def _typed(self, facets: list[Schema], groups: list[Group], where: Where) -> Shape:
        allowed = facet_rules.types(facets)
        vague = allowed == ATOMS
        parts: list[Shape] = []
        if "object" in allowed and (not vague or facet_rules.speaks_of(facets, "object")):
            parts.append(self._object(facets, groups, where))
        if "array" in allowed and (not vague or facet_rules.speaks_of(facets, "array")):
            parts.append(self._array(facets, where))
        if not vague:
            scalars = allowed - {"object", "array"}
            return one_of([*parts, ScalarShape(scalars)] if scalars else parts)
        if not parts:
            return ANYTHING
        self._lose(where, "no type")
        return SoftShape(one_of(parts))

    def _object(self, facets: list[Schema], groups: list[Group], where: Where) -> Shape:
        found = _properties(facets)
        if found.bare and not groups:
            shape = MapShape()
            self._queue.append(partial(self._fill_map, shape, found, where))
            return shape
        if len(self.objects) >= MAX_CLASSES:
            self._lose(where, "too large")
            return MapShape()
        return self._class(facets, groups, where, facet_rules.first_text(facets, "description"))

    def _class(
        self, facets: list[Schema], groups: list[Group], where: Where, doc: str
    ) -> ObjectShape:
        found = _properties(facets)
        name = unused(where.name, self._class_names)
        self._class_names.add(name)
        shape = ObjectShape(name, doc[:_MAX_DOC] or f"An object described by {where.path}.")
        shape.closed = found.closed
        if (found.patterns or found.additional) and not found.closed:
            shape.extra = ANYTHING
        self.objects.append(shape)
        self._queue.append(partial(self._fill_class, shape, found, groups, where))
        return shape

    def _fill_map(self, shape: MapShape, found: Properties, where: Where) -> None:
        shape.values = self._further(found, where)

    def _further(self, found: Properties, where: Where) -> Shape:
        """Return the shape of the properties that have no schema under their own name."""
        place = where.down("additionalProperties", "Value")
        options = [self._shape([schema], place) for schema in found.patterns]
        if found.additional:
            options.append(self._shape(found.additional, place))
        if not found.patterns:
            return options[0] if options else ANYTHING
        # Which pattern a name matches is not asked: foreign patterns are never run here.
        return SoftShape(one_of(options))

    def _fill_class(
        self, shape: ObjectShape, found: Properties, groups: list[Group], where: Where
    ) -> None:
        required = set(found.required)
        if shape.extra is not None:
            shape.extra = self._further(found, where)
        for name, schemas in found.schemas.items():
            member = self._shape(schemas, where.property(name))
            if member is NOTHING and name not in required:
                self._lose(where.property(name), "false")
                continue
            shape.plans.append(self._plan(name, schemas, member, required=name in required))
        known = set(found.schemas)
        for name in dict.fromkeys(name for name in found.required if name not in known):
            shape.plans.append(FieldPlan(name, ANYTHING, {"alias": name}, required=True))
        if groups and not found.closed:
            self._fill_alternatives(shape, groups, known | required, where)

    def _fill_alternatives(
        self, shape: ObjectShape, groups: list[Group], known: set[str], where: Where
    ) -> None:
        """Add what only some alternatives declare: none of it is certain, so all of it is soft."""
        found: dict[str, list[JsonValue]] = {}
        for option in (option for _, group in groups for option in group):
            facets = self._document.facets([option]) or []
            for name, schemas in _properties(facets).schemas.items():
                if name not in known:
                    found.setdefault(name, []).extend(schemas)
        for name, schemas in found.items():
            place = where.property(name)
            member = SoftShape(one_of([self._shape([schema], place) for schema in schemas]))
            shape.plans.append(self._plan(name, schemas, member, required=False))

    def _plan(
        self, name: str, schemas: Sequence[JsonValue], shape: Shape, *, required: bool
    ) -> FieldPlan:
        metadata: dict[str, JsonValue] = {"alias": name}
        said = [schema for schema in schemas if is_object(schema)]
        every = [*said, *(self._document.facets(said) or ())]
        if description := facet_rules.first_text(every, "description"):
            metadata["description"] = description
        if said and "default" in said[0]:
            metadata["default"] = said[0]["default"]
        return FieldPlan(name, shape, metadata, required=required)

    def _array(self, facets: list[Schema], where: Where) -> ListShape:
        shape = ListShape()
        shape.fixed = self._fixed(facets)
        self._queue.append(partial(self._fill_array, shape, facets, where))
        return shape

    def _fill_array(self, shape: ListShape, facets: list[Schema], where: Where) -> None:
        parts = [self._document.array(facet) for facet in facets]
        for index in range(max(len(prefix) for prefix, _ in parts)):
            schemas = [rest if index >= len(head) else head[index] for head, rest in parts]
            place = where.down(f"prefixItems[{index}]", f"Item{index + 1}")
            shape.prefix.append(self._shape(schemas, place))
        shape.rest = self._shape([rest for _, rest in parts], where.down("items", "Item"))
        if shape.prefix and not shape.fixed:
            self._lose(where, "prefixItems")

    def _fixed(self, facets: Sequence[Schema]) -> bool:
        """Say whether an array has one length only, and a schema for each place."""
        parts = [self._document.array(facet) for facet in facets]
        length = max((len(prefix) for prefix, _ in parts), default=0)
        least = max((_whole(facet.get("minItems")) for facet in facets), default=-1)
        ends = any(rest is False and len(prefix) == length for prefix, rest in parts)
        most = [_whole(facet["maxItems"]) for facet in facets if "maxItems" in facet]
        return 0 < length == least and (ends or length in most)

    def _lose_all(self, where: Where, facets: Sequence[Schema]) -> None:
        counted = {"minItems", "maxItems"} if self._fixed(facets) else set[str]()
        self._lose(where, *(w for w in facet_rules.inexpressible(facets) if w not in counted))

    def _lose_choice(self, where: Where, groups: Sequence[Group]) -> None:
        """Name alternatives that are not followed, or followed loosely."""
        self._lose(where, *(word for word, _ in groups))

    def _lose(self, where: Where, *words: str) -> None:
        for word in words:
            if len(self._lossy) <= MAX_LOSSY:
                self._lossy[f"{where.path}: {word}"] = None


def _whole(value: JsonValue) -> int:
    return value if isinstance(value, int) else -1


def _option_name(option: JsonValue, index: int) -> str:
    title = option.get("title") if is_object(option) else None
    return title if isinstance(title, str) and title else f"Option{index + 1}"
