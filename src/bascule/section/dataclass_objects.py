"""The generated dataclasses: how one is made, filled from plain JSON and written back.

An ``ObjectShape`` is filled with fields by the compiler and then finished: the class is made by
``dataclasses.make_dataclass`` (only ever with names from ``dataclass_names``), the plans for
loading and dumping are drawn up, and in a last step the annotations are put in, so that classes
may refer to each other and to themselves with real types.

Writing back goes by the value, not by the schema: whatever stands in a field is turned to plain
JSON by its own class. So a union needs no second decision, and a dictionary may stand for a
dataclass.

Above: ``schema_compiler``, ``dataclasses``. Below: ``dataclass_shapes``, ``dataclass_names``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, make_dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import UNSET

from bascule.section.dataclass_names import field_names, unused
from bascule.section.dataclass_shapes import (
    ListShape,
    Memo,
    Misfit,
    Shape,
    UnionShape,
    kind_of,
    load_values,
    union_of,
)

MODULE = "bascule.section.dataclasses"

_ABSENT: Any = object()
_REQUIRED: Any = object()
_SCALARS = frozenset({str, int, float, bool, type(None)})
_NO_EXTRA: Mapping[str, Any] = {}

#: Makes an instance again from its schema's origin, its class's name and its state.
Restore = Callable[[Any, str, Sequence[Any]], Any]


class SchemaObject:
    """The base of every generated class."""

    __slots__ = ()
    if TYPE_CHECKING:  # at run time it would be among the type hints of every class
        __bascule_shape__: ObjectShape

    def __reduce__(self) -> tuple[Any, ...]:
        shape = self.__bascule_shape__
        return shape.restore, (shape.owner.origin, shape.name, shape.state(self))


class OpenObject(SchemaObject):
    """The base where the schema does not close the object, and does not speak of more either.

    Such an object has no field for what it does not declare, yet what came in goes out again.
    """

    __slots__ = ("__extra__",)


def _equal(self: Any, other: object) -> bool:
    if other.__class__ is not self.__class__:
        return NotImplemented
    shape: ObjectShape = self.__bascule_shape__
    return shape.state(self) == shape.state(other)


def extras(value: Any) -> Mapping[str, Any]:
    """Return the properties of a loaded object that its schema does not declare."""
    shape: ObjectShape = value.__bascule_shape__
    return getattr(value, shape.extra_name or "__extra__", _NO_EXTRA)


class FieldPlan:
    """One property of an object, before its class is made."""

    __slots__ = ("key", "metadata", "required", "shape")

    def __init__(
        self, key: str, shape: Shape, metadata: Mapping[str, Any], *, required: bool
    ) -> None:
        self.key = key
        self.shape = shape
        self.metadata = metadata
        self.required = required

    @property
    def default(self) -> Any:
        """Return what an absent property reads as: None, unless null means something else."""
        if self.required:
            return _REQUIRED
        return UNSET if self.shape.nullable else None

    @property
    def annotation(self) -> Any:
        """Return the field's type; what may be left out is optional."""
        kind = self.shape.annotated()[0]
        return kind if self.required else union_of([kind, type(None)])

    @property
    def hashed(self) -> bool:
        """Say whether values of the field can be counted on to have a hash."""
        shape = self.shape
        options = shape.options if isinstance(shape, UnionShape) else [shape]
        return all(option.scalar or isinstance(option, ObjectShape) for option in options)

    def dumper(self) -> Callable[[Any], Any] | None:
        """Return how a value is turned to plain JSON; None for one that is plain already."""
        shape = self.shape
        if shape.scalar:
            return None
        if isinstance(shape, ListShape) and not shape.prefix and shape.rest.scalar:
            return _plain_list
        return plain


class ObjectShape(Shape):
    """An object with properties, and the dataclass for it."""

    takes = frozenset({"object"})
    nullable = False

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
        #: The SchemaType it belongs to, which lives as long as an instance does.
        self.owner: Any = None
        self.restore: Restore = _no_restore
        self._names: list[str] = []
        self._known: frozenset[str] = frozenset()
        self._loads: list[tuple[Any, ...]] = []
        self._setters: list[Callable[[Any, Any], None]] = []
        self._dumps: list[tuple[str, Any, Any]] = []
        self._values: Callable[[Any], tuple[Any, ...]] = _no_values

    def make(self) -> type[Any]:
        """Make the class; its annotations come with ``annotate``, when all classes exist."""
        names = field_names(plan.key for plan in self.plans)
        self._names = [names[plan.key] for plan in self.plans]
        specs: list[tuple[str, Any, Any]] = [
            (name, Any, _field(plan)) for name, plan in zip(self._names, self.plans, strict=True)
        ]
        if self.extra is not None:
            self.extra_name = unused("extra", set(self._names))
            specs.append((self.extra_name, Any, _extra_field()))
        hidden = self.extra is None and not self.closed
        namespace: dict[str, Any] = {"__doc__": self.doc}
        if hidden:
            namespace["__eq__"] = _equal
        self.cls = make_dataclass(
            self.name,
            specs,
            bases=(OpenObject if hidden else SchemaObject,),
            namespace=namespace,
            frozen=True,
            slots=True,
        )
        self.cls.__module__ = MODULE
        self.cls.__bascule_shape__ = self
        self._plan()
        return self.cls

    def annotate(self) -> None:
        """Put the real types where placeholders stood."""
        types = {n: plan.annotation for n, plan in zip(self._names, self.plans, strict=True)}
        if self.extra is not None:
            extra: Any = dict
            types[self.extra_name] = extra[str, self.extra.annotated()[0]]
        self.cls.__annotations__ = types
        self.cls.__init__.__annotations__ = {**types, "return": None}
        for item in fields(self.cls):
            item.type = types[item.name]

    def load(self, value: Any, memo: Memo | None) -> Any:
        """Return an instance; raise Misfit."""
        if kind_of(value) is not dict:
            raise Misfit("must be an object")
        instance = _new(self.cls)
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

    def _load_extras(self, instance: Any, value: dict[str, Any], memo: Memo | None) -> None:
        rest = {key: member for key, member in value.items() if key not in self._known}
        if self.extra is not None:
            self._setters[-1](instance, load_values(rest, self.extra, memo))
        elif self.closed:
            raise Misfit("is not a property of this object").within(next(iter(rest)))
        else:
            _put_extra(instance, rest)

    def dump(self, value: Any) -> dict[str, Any]:
        """Return the plain object: what is unset is left out, what was extra is put back."""
        out: dict[str, Any] = {}
        for (key, unset, dumper), member in zip(self._dumps, self._values(value), strict=True):
            if member is not unset:
                out[key] = member if dumper is None else dumper(member)
        if not self.closed and (extra := getattr(value, self.extra_name or "__extra__", None)):
            for key, member in extra.items():
                if key not in out:
                    out[key] = plain(member)
        return out

    def state(self, value: Any) -> tuple[Any, ...]:
        """Return all that an instance holds: its fields, then what no field is for."""
        held = tuple(getattr(value, name) for name in self._names)
        return held if self.closed else (*held, extras(value))

    def revive(self, state: Sequence[Any]) -> Any:
        """Make an instance from its state."""
        instance = _new(self.cls)
        setters = self._setters if self.closed or self.extra_name else [*self._setters, _put_extra]
        for put, member in zip(setters, state, strict=True):
            put(instance, member)
        return instance

    def strangers(self, value: dict[str, Any]) -> int:
        """Count the keys that are no properties here."""
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

    def _spelled(self, depth: int) -> tuple[Any, int]:
        return self.cls, 1


_new: Callable[[type[Any]], Any] = object.__new__
_put_extra: Callable[[Any, Any], None] = getattr(OpenObject, "__extra__").__set__  # noqa: B009 - the slot, not a value


def plain(value: Any) -> Any:
    """Return plain JSON for a value that may have generated objects in it."""
    kind = kind_of(value)
    if kind in _SCALARS:
        return value
    if kind is list or kind is tuple:
        return [plain(item) for item in value]
    if kind is dict:
        return {key: plain(member) for key, member in value.items()}
    if issubclass(kind, SchemaObject):
        shape: ObjectShape = kind.__bascule_shape__
        return shape.dump(value)
    return value


def _plain_list(value: Any) -> Any:
    return value if kind_of(value) is list else plain(value)


def _refuse(problem: str) -> NoReturn:
    raise Misfit(problem)


def _field(plan: FieldPlan) -> Any:
    hashed = None if plan.hashed else False
    if plan.required:
        return field(hash=hashed, metadata=plan.metadata)
    return field(default=plan.default, kw_only=True, hash=hashed, metadata=plan.metadata)


def _extra_field() -> Any:
    metadata = {"description": "Further properties, by name."}
    empty: type[dict[str, Any]] = dict
    return field(default_factory=empty, kw_only=True, hash=False, metadata=metadata)


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def _no_values(value: Any) -> tuple[Any, ...]:
    raise NotImplementedError


def _no_restore(origin: Any, name: str, state: Sequence[Any]) -> Any:
    raise NotImplementedError
