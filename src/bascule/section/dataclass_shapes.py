"""Shapes: what a value may look like, as far as a Python type can say it.

A shape reads a plain JSON value into its Python form (``load``) and names the type for it
(``annotated``). It is never stricter than the schema it was made from, so that whatever the schema
accepts can be read; where it is looser the compiler says so, and the bridge checks the rest.
Reading changes containers only: a scalar goes back on the wire as it came.

A union tries its alternatives in turn. In a recursive schema that could take time exponential in
the depth of the value, so the outcome for each pair of alternative and value is kept for the
length of one load (``Memo``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from types import GenericAlias
from typing import Any, Literal, Never

from bascule.model.json import JsonObject, JsonValue

Memo = dict[tuple[int, int], object]

#: Types in one annotation; a bigger one says Any, because Python spells out every branch.
MAX_WEIGHT = 64
MAX_ANNOTATION_DEPTH = 16
MAX_LITERALS = 256

_LITERAL: Any = Literal  # filled with values at run time, out of the type checker's sight
_MISFIT = object()
_NOTHING_FITS = "no value is accepted here"
_EVERYTHING = frozenset({"object", "array", "scalar"})
_SCALAR_TYPES = frozenset({str, bool, int, float, type(None)})
#: The Python types for each JSON type, the one to expect first.
PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (float, int),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}


class Misfit(ValueError):
    """A value that does not fit, with the path to it; the value itself is not repeated."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        self.steps: list[str | int] = []

    def __str__(self) -> str:
        return f"{path_text(reversed(self.steps))}: {self.problem}"

    def within(self, step: str | int) -> Misfit:
        """Add the step by which the caller came here."""
        self.steps.append(step)
        return self


def path_text(steps: Iterable[str | int]) -> str:
    """Write a path as ``$.items[2].name``."""
    return "$" + "".join(map(step_text, steps))


def step_text(step: str | int) -> str:
    """Write one step of a path: ``.name``, ``[2]``, or ``['a name']``."""
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step[:60]}" if step.isidentifier() else f"[{step[:60]!r}]"


class Shape:
    """What one value may be: anything, unless a kind below says what it knows of it."""

    takes: frozenset[str] = _EVERYTHING
    nullable: bool = True
    scalar: bool = False
    #: A value of exactly this type needs no reading.
    exact: type | None = None

    def __init__(self) -> None:
        self._annotation: tuple[object, int] | None = None
        self._annotating = False

    def load(self, value: JsonValue, memo: Memo) -> object:
        """Return the value's Python form; raise Misfit."""
        return value

    def strangers(self, value: JsonObject) -> int:
        """Count the keys of an object that this shape has no field for."""
        return len(value) + 1

    def annotated(self, depth: int = 0) -> tuple[object, int]:
        """Return the type and its weight; Any where it contains itself or grows too large."""
        if self._annotating or depth > MAX_ANNOTATION_DEPTH:
            return Any, 1
        if self._annotation is None:
            self._annotating = True
            try:
                self._annotation = self._spelled(depth + 1)
            finally:
                self._annotating = False
        return self._annotation

    def _parts(self) -> Sequence[Shape]:
        """Return the shapes that the annotation is made of."""
        return ()

    def _spell(self, parts: Sequence[object]) -> object:
        """Return the annotation, given those of the parts."""
        return Any

    def _spelled(self, depth: int) -> tuple[object, int]:
        parts = [part.annotated(depth) for part in self._parts()]
        weight = 1 + sum(weight for _, weight in parts)
        if weight > MAX_WEIGHT:
            return self._spell([Any] * len(parts)), 2
        return self._spell([part for part, _ in parts]), weight


class ScalarShape(Shape):
    """Some of the JSON scalars. Whole numbers count as integers however they are written."""

    takes = frozenset({"scalar"})
    scalar = True

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__()
        wanted = frozenset(names)
        self.names = [name for name in PYTHON_TYPES if name in wanted]
        self._types = frozenset(kind for name in self.names for kind in PYTHON_TYPES[name])
        self._whole = "integer" in self.names and float not in self._types
        self.nullable = "null" in self.names
        self.exact = PYTHON_TYPES[self.names[0]][0]

    def load(self, value: JsonValue, memo: Memo) -> object:
        if type(value) in self._types:
            return value
        if self._whole and isinstance(value, float) and value.is_integer():
            return value
        raise Misfit(f"must be {' or '.join(self.names)}")

    def _spell(self, parts: Sequence[object]) -> object:
        shown = [name for name in self.names if name != "integer" or "number" not in self.names]
        return union_of([PYTHON_TYPES[name][0] for name in shown])


class LiteralShape(Shape):
    """One of the scalars listed by ``enum`` or ``const``; 1 and 1.0 are the same, true is not."""

    takes = frozenset({"scalar"})
    scalar = True

    def __init__(self, values: Iterable[JsonValue]) -> None:
        super().__init__()
        self.values = list(values)
        self._allowed = frozenset((type(value) is bool, value) for value in self.values)
        self.nullable = None in self.values

    def load(self, value: JsonValue, memo: Memo) -> object:
        kind = type(value)
        if kind in _SCALAR_TYPES and (kind is bool, value) in self._allowed:
            return value
        raise Misfit("must be one of the listed values")

    def exactly(self) -> bool:
        """Say whether ``Literal`` can list the values."""
        return len(self.values) <= MAX_LITERALS and not any(type(v) is float for v in self.values)

    def _spell(self, parts: Sequence[object]) -> object:
        if not self.exactly():
            return union_of(list(dict.fromkeys(map(type, self.values))))
        values = tuple(value for value in self.values if value is not None)
        kinds = [_LITERAL[values]] if values else []
        return union_of([*kinds, type(None)] if self.nullable else kinds)


class ListShape(Shape):
    """An array: items by their place as far as ``prefix`` reaches, then ``rest``."""

    takes = frozenset({"array"})
    nullable = False

    def __init__(self) -> None:
        super().__init__()
        self.prefix: list[Shape] = []
        self.rest: Shape = ANYTHING
        #: All items have their place and none may be missing: a tuple can say that.
        self.fixed = False

    def load(self, value: JsonValue, memo: Memo) -> object:
        if not isinstance(value, list):
            raise Misfit("must be an array")
        if self.fixed and len(value) != len(self.prefix):
            raise Misfit(f"must have {len(self.prefix)} items")
        index = 0
        loaded: list[object] = []
        try:
            for shape, item in zip(self.prefix, value, strict=False):
                loaded.append(shape.load(item, memo))
                index += 1
            exact, load = self.rest.exact, self.rest.load
            for item in value[index:] if index else value:
                loaded.append(item if type(item) is exact else load(item, memo))
                index += 1
        except Misfit as misfit:
            raise misfit.within(index) from None
        return tuple(loaded) if self.fixed else loaded

    def _parts(self) -> Sequence[Shape]:
        return self.prefix if self.fixed else [*self.prefix, self.rest]

    def _spell(self, parts: Sequence[object]) -> object:
        if self.fixed:
            return GenericAlias(tuple, tuple(parts))
        return GenericAlias(list, (union_of(parts),))


class MapShape(Shape):
    """An object without properties of its own: names to values of one shape."""

    takes = frozenset({"object"})
    nullable = False

    def __init__(self) -> None:
        super().__init__()
        self.values: Shape = ANYTHING

    def load(self, value: JsonValue, memo: Memo) -> object:
        if not isinstance(value, dict):
            raise Misfit("must be an object")
        return load_values(value, self.values, memo)

    def _parts(self) -> Sequence[Shape]:
        return [self.values]

    def _spell(self, parts: Sequence[object]) -> object:
        return GenericAlias(dict, (str, parts[0]))


def load_values(members: JsonObject, shape: Shape, memo: Memo) -> dict[str, object]:
    """Load the values of an object, each by the same shape."""
    loaded: dict[str, object] = {}
    for key, value in members.items():
        try:
            loaded[key] = shape.load(value, memo)
        except Misfit as misfit:
            raise misfit.within(key) from None
    return loaded


class SoftShape(Shape):
    """A likely shape, in a place where the schema cannot be followed: what does not fit is kept."""

    def __init__(self, inner: Shape) -> None:
        super().__init__()
        self.inner = inner
        self.exact = inner.exact

    def load(self, value: JsonValue, memo: Memo) -> object:
        try:
            return self.inner.load(value, memo)
        except Misfit:
            return value

    def strangers(self, value: JsonObject) -> int:
        return self.inner.strangers(value)

    def _parts(self) -> Sequence[Shape]:
        return [self.inner]

    def _spell(self, parts: Sequence[object]) -> object:
        return parts[0]


class UnionShape(Shape):
    """Alternatives. For an object, those that know most of its keys are tried first."""

    def __init__(self, options: Sequence[Shape]) -> None:
        super().__init__()
        self.options = list(options)
        self.takes = frozenset[str]().union(*(option.takes for option in options))
        self.nullable = any(option.nullable for option in options)
        self.scalar = all(option.scalar for option in options)
        self._takers = {
            kind: [option for option in options if kind in option.takes] for kind in _EVERYTHING
        }

    def load(self, value: JsonValue, memo: Memo) -> object:
        if isinstance(value, dict):
            takers = self._takers["object"]
            if len(takers) > 1:
                takers = sorted(takers, key=lambda option: option.strangers(value))
        else:
            takers = self._takers["array" if isinstance(value, list) else "scalar"]
        if len(takers) == 1:
            return takers[0].load(value, memo)
        for option in takers:
            found = _attempt(option, value, memo)
            if found is not _MISFIT:
                return found
        raise Misfit("fits none of the alternatives" if self.options else _NOTHING_FITS)

    def _parts(self) -> Sequence[Shape]:
        return self.options

    def _spell(self, parts: Sequence[object]) -> object:
        return union_of(parts)


def _attempt(option: Shape, value: JsonValue, memo: Memo) -> object:
    key = (id(option), id(value))
    if key in memo:
        return memo[key]
    try:
        found = option.load(value, memo)
    except Misfit:
        found = _MISFIT
    if type(value) not in _SCALAR_TYPES:
        memo[key] = found
    return found


def union_of(types: Sequence[object]) -> object:
    """Return ``A | B``, each once and None last."""
    distinct = dict.fromkeys(types)
    if Any in distinct:
        return Any
    once: list[Any] = [kind for kind in distinct if kind is not type(None) and kind is not Never]
    if type(None) in distinct:
        once.append(type(None))
    return reduce(lambda one, other: one | other, once) if once else Never


def one_of(options: Iterable[Shape]) -> Shape:
    """Return the simplest shape that takes what any of these take."""
    distinct = [o for o in dict.fromkeys(options) if o is not NOTHING]
    if ANYTHING in distinct and all(o is ANYTHING or o.scalar for o in distinct):
        return ANYTHING
    scalars = [o for o in distinct if isinstance(o, ScalarShape)]
    if len(scalars) > 1:
        merged = ScalarShape(name for o in scalars for name in o.names)
        distinct = [merged, *(o for o in distinct if o not in scalars)]
    if not distinct:
        return NOTHING
    return distinct[0] if len(distinct) == 1 else UnionShape(distinct)


ANYTHING = Shape()
#: The schema ``false``, or rules that exclude each other.
NOTHING = UnionShape(())
