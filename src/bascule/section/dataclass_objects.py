"""The generated dataclasses: how one is made, filled from plain JSON and written back.

An ``ObjectShape`` is filled with fields by the compiler and then finished: the class is made by
``dataclasses.make_dataclass`` (only ever with names from ``dataclass_names``), the plans for
loading and dumping are drawn up, and in a last step the annotations are put in, so that classes
may refer to each other and to themselves with real types.

Writing back goes by the value, not by the schema: whatever stands in a field is turned to plain
JSON by its own class. So a union needs no second decision, and a dictionary may stand for a
dataclass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, make_dataclass
from operator import attrgetter
from types import GenericAlias
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from msgspec import UNSET

from bascule.model.json import JsonObject, JsonValue, is_array, is_object
from bascule.section.dataclass_names import field_names, unused
from bascule.section.dataclass_shapes import (
    ListShape,
    Memo,
    Misfit,
    Shape,
    UnionShape,
    load_values,
    union_of,
)

MODULE = "bascule.section.dataclasses"

_ABSENT: Any = object()
_REQUIRED = object()
_SCALARS = frozenset({str, int, float, bool, type(None)})
_NO_EXTRA: Mapping[str, object] = {}

State = Sequence[object]
Put = Callable[[object, object], None]
Load = Callable[[JsonValue, Memo], object]


class SchemaObject:
    """The base of every generated class."""

    __slots__ = ()
    if TYPE_CHECKING:  # at run time it would be among the type hints of every class
        __bascule_shape__: ObjectShape

    def __reduce__(self) -> tuple[Callable[[str, State], object], tuple[str, State]]:
        shape = self.__bascule_shape__
        return shape.remake, (shape.name, shape.state(self))


class OpenObject(SchemaObject):
    """The base where the schema does not close the object, and does not speak of more either.

    Such an object has no field for what it does not declare, yet what came in goes out again.
    """

    __slots__ = ("__extra__",)


def _equal(self: SchemaObject, other: object) -> bool:
    if not isinstance(other, SchemaObject) or type(other) is not type(self):
        return NotImplemented
    shape = self.__bascule_shape__
    return shape.state(self) == shape.state(other)


def extras(value: SchemaObject) -> Mapping[str, object]:
    """Return the properties of a loaded object that its schema does not declare."""
    return getattr(value, value.__bascule_shape__.extra_name or "__extra__", _NO_EXTRA)


class FieldPlan(NamedTuple):
    """One property of an object, before its class is made."""

    key: str
    shape: Shape
    metadata: JsonObject
    required: bool

    @property
    def default(self) -> object:
        """Return what an absent property reads as: None, unless null means something else."""
        if self.required:
            return _REQUIRED
        return UNSET if self.shape.nullable else None

    @property
    def annotation(self) -> object:
        """Return the field's type; what may be left out is optional."""
        kind = self.shape.annotated()[0]
        return kind if self.required else union_of([kind, type(None)])

    @property
    def hashed(self) -> bool:
        """Say whether values of the field can be counted on to have a hash."""
        shape = self.shape
        options = shape.options if isinstance(shape, UnionShape) else [shape]
        return all(option.scalar or isinstance(option, ObjectShape) for option in options)

    def spec(self) -> object:
        """Return the field as ``dataclasses`` declares it."""
        hashed = None if self.hashed else False
        if self.required:
            return field(hash=hashed, metadata=self.metadata)
        return field(default=self.default, kw_only=True, hash=hashed, metadata=self.metadata)

    def dumper(self) -> Callable[[object], object] | None:
        """Return how a value is turned to plain JSON; None for one that is plain already."""
        shape = self.shape
        if isinstance(shape, ListShape) and not shape.prefix and shape.rest.scalar:
            return _plain_list
        return None if shape.scalar else plain


class ObjectShape(Shape):
    """An object with properties, and the dataclass for it."""

    takes = frozenset({"object"})
    nullable = False
    #: Makes an instance of a class of the same schema again, from the class's name and its state.
    remake: Callable[[str, State], object]
    _names: Sequence[str]
    _known: frozenset[str]
    _loads: Sequence[tuple[str, Put, type | None, Load, object]]
    _setters: Sequence[Put]
    _dumps: Sequence[tuple[str, object, Callable[[object], object] | None]]
    _values: Callable[[object], tuple[object, ...]]

    def __init__(self, name: str, doc: str) -> None:
        super().__init__()
        self.name = name
        self.doc = doc
        self.plans: list[FieldPlan] = []
        self.closed = False
        #: The shape of further properties, where the schema speaks of them.
        self.extra: Shape | None = None
        self.extra_name = ""
        self.cls: type[Any] = SchemaObject

    def make(self) -> None:
        """Make the class; its annotations come with ``annotate``, when all classes exist."""
        names = field_names(plan.key for plan in self.plans)
        self._names = [names[plan.key] for plan in self.plans]
        specs = [
            (name, Any, plan.spec()) for name, plan in zip(self._names, self.plans, strict=True)
        ]
        if self.extra is not None:
            self.extra_name = unused("extra", set(self._names))
            specs.append((self.extra_name, Any, _extra_field()))
        hidden = self.extra is None and not self.closed
        self.cls = make_dataclass(
            self.name,
            specs,
            bases=(OpenObject if hidden else SchemaObject,),
            namespace={"__doc__": self.doc, **({"__eq__": _equal} if hidden else {})},
            frozen=True,
            slots=True,
        )
        self.cls.__module__ = MODULE
        self.cls.__bascule_shape__ = self
        self._plan()

    def annotate(self) -> None:
        """Put the real types where placeholders stood."""
        types = {n: plan.annotation for n, plan in zip(self._names, self.plans, strict=True)}
        if self.extra is not None:
            types[self.extra_name] = GenericAlias(dict, (str, self.extra.annotated()[0]))
        self.cls.__annotations__ = types
        self.cls.__init__.__annotations__ = {**types, "return": None}
        for item in fields(self.cls):
            item.type = types[item.name]

    def load(self, value: JsonValue, memo: Memo) -> object:
        if not isinstance(value, dict):
            raise Misfit("must be an object")
        instance = object.__new__(self.cls)
        found, get = 0, value.get
        key = ""
        try:
            for key, put, exact, load, default in self._loads:
                member = get(key, _ABSENT)
                if member is not _ABSENT:
                    found += 1
                    put(instance, member if type(member) is exact else load(member, memo))
                elif default is not _REQUIRED:
                    put(instance, default)
                else:
                    _refuse("is required")
        except Misfit as misfit:
            raise misfit.within(key) from None
        if found != len(value) or self.extra is not None:
            self._load_extras(instance, value, memo)
        return instance

    def _load_extras(self, instance: object, value: JsonObject, memo: Memo) -> None:
        rest = {key: member for key, member in value.items() if key not in self._known}
        if self.extra is not None:
            self._setters[-1](instance, load_values(rest, self.extra, memo))
        elif self.closed:
            raise Misfit("is not a property of this object").within(next(iter(rest)))
        else:
            _put_extra(instance, rest)

    def dump(self, value: SchemaObject) -> dict[str, object]:
        """Return the plain object: what is unset is left out, what was extra is put back."""
        out: dict[str, object] = {}
        for (key, unset, dumper), member in zip(self._dumps, self._values(value), strict=True):
            if member is not unset:
                out[key] = member if dumper is None else dumper(member)
        if not self.closed:
            for key, member in (extras(value) or _NO_EXTRA).items():
                if key not in out:
                    out[key] = plain(member)
        return out

    def state(self, value: SchemaObject) -> State:
        """Return all that an instance holds: its fields, then what no field is for."""
        held = self._values(value)
        return held if self.closed else (*held, extras(value))

    def revive(self, state: State) -> object:
        """Make an instance from its state."""
        instance = object.__new__(self.cls)
        setters = self._setters if self.closed or self.extra_name else [*self._setters, _put_extra]
        for put, member in zip(setters, state, strict=True):
            put(instance, member)
        return instance

    def strangers(self, value: JsonObject) -> int:
        return len(value.keys() - self._known)

    def _plan(self) -> None:
        self._known = frozenset(plan.key for plan in self.plans)
        names = [*self._names, self.extra_name] if self.extra_name else self._names
        self._setters = [getattr(self.cls, name).__set__ for name in names]
        self._loads = [
            (plan.key, put, plan.shape.exact, plan.shape.load, plan.default)
            for plan, put in zip(self.plans, self._setters, strict=False)
        ]
        self._dumps = [
            (plan.key, UNSET if plan.required else plan.default, plan.dumper())
            for plan in self.plans
        ]
        self._values = _getter(self._names)

    def _spelled(self, depth: int) -> tuple[object, int]:
        return self.cls, 1


_put_extra: Put = getattr(OpenObject, "__extra__").__set__  # noqa: B009 - the slot, not a value


def plain(value: object) -> object:
    """Return plain JSON for a value that may have generated objects in it."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, SchemaObject):
        return value.__bascule_shape__.dump(value)
    if is_array(value):
        return [plain(item) for item in value]
    if is_object(value):
        return {key: plain(member) for key, member in value.items()}
    return value


def _plain_list(value: object) -> object:
    kind = type(value)
    return value if kind is list else plain(value)


def _refuse(problem: str) -> NoReturn:
    raise Misfit(problem)


def _extra_field() -> object:
    metadata = {"description": "Further properties, by name."}
    return field(default_factory=dict[str, object], kw_only=True, hash=False, metadata=metadata)


def _getter(names: Sequence[str]) -> Callable[[object], tuple[object, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)
