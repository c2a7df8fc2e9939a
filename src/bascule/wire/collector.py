"""Read a plain value against a record's description and report every problem at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from msgspec import inspect

from bascule.model.json import JsonValue, is_array, is_object

#: More is of no help to anybody: a small request must not be answered with all it did wrong.
MAX_LISTED = 100
_SHOWN = 60
_UNWRITABLE = re.compile("[\\x00\\ud800-\\udfff]")


class Findings:
    """Problems that refuse a record, and warnings that do not (unless strict).

    ``lenient`` is for what a newer version may have written: an unknown field is a warning then.
    ``familiar`` are texts that were stored before a rule refused them, and may stay.

    Once a field is known to be broken, nothing more is said about it or what is inside it:
    a later check would only see what an earlier one left out. Of each kind so many are listed,
    and then that there are more.
    """

    def __init__(
        self,
        *,
        strict: bool = False,
        lenient: bool = False,
        familiar: frozenset[str] = frozenset(),
    ) -> None:
        self.strict = strict
        self.lenient = lenient
        self.familiar = familiar
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self.broken: set[str] = set()

    @property
    def full(self) -> bool:
        """Say whether so much is wrong that there is no point in looking further."""
        return len(self.problems) >= MAX_LISTED

    @property
    def advised(self) -> bool:
        """Say whether there is no room for more advice."""
        return len(self._advice) >= MAX_LISTED

    def problem(self, path: str, message: str) -> None:
        """Note what makes the record unusable."""
        if not self._is_broken(path):
            _list(self.problems, f"{path}: {message}" if path else message)

    def advise(self, path: str, message: str) -> None:
        """Note what a strict reader refuses and others are warned about."""
        if not self._is_broken(path):
            _list(self._advice, f"{path}: {message}")

    def refuse(self, path: str, message: str, *, tolerated: bool = False) -> None:
        """Note what refuses a record, or is only advised on where it is tolerated."""
        (self.advise if tolerated or self.lenient else self.problem)(path, message)

    @property
    def _advice(self) -> list[str]:
        return self.problems if self.strict else self.warnings

    def _is_broken(self, path: str) -> bool:
        steps = re.split(r"(?=[.\[])", path)
        return any("".join(steps[:n]) in self.broken for n in range(1, len(steps) + 1))


def _list(found: list[str], text: str) -> None:
    if len(found) < MAX_LISTED:
        found.append(text if len(found) < MAX_LISTED - 1 else "there is more that is not listed")


def collect(kind: inspect.Type, value: JsonValue, path: str, findings: Findings) -> JsonValue:
    """Check a value; return it with unknown fields left out. Every problem goes to findings."""
    handler = _HANDLERS.get(type(kind))
    return handler(kind, value, path, findings) if handler else value


def _struct(kind: inspect.StructType, value: JsonValue, path: str, findings: Findings) -> JsonValue:
    if not is_object(value):
        findings.problem(path, f"must be a table of fields, not {_type_of(value)}")
        return value
    fields = _fields(kind.cls)
    clean: dict[str, JsonValue] = {}
    broken: list[str] = []
    for name, field in fields.items():
        if name not in value and not field.required:
            continue
        where = _join(path, name)
        before = len(findings.problems)
        if name in value:
            clean[name] = collect(field.type, value[name], where, findings)
        else:
            findings.problem(where, "is required")
        if len(findings.problems) > before:
            clean.pop(name, None)
            broken.append(where)
    findings.broken.update(broken)
    for key in value:  # after the fields, so that many of these hide no mistake in those
        if key not in fields and not findings.advised and not findings.full:
            findings.refuse(_join(path, key), unknown_field(str(key), fields))
    return clean


@cache
def _fields(cls: type[object]) -> dict[str, inspect.Field]:
    """Return the fields of a struct by the names they are given under."""
    kind = inspect.type_info(cls)
    fields = kind.fields if isinstance(kind, inspect.StructType) else ()
    return {field.encode_name: field for field in fields}


def unknown_field(name: str, known: Iterable[str]) -> str:
    """Say that a name is unknown, and which one was probably meant."""
    close = get_close_matches(name, list(known), n=1)
    return f"unknown field; did you mean {close[0]!r}?" if close else "unknown field"


def _sequence(
    kind: inspect.VarTupleType, value: JsonValue, path: str, findings: Findings
) -> JsonValue:
    if not is_array(value):
        findings.problem(path, f"must be a list, not {_type_of(value)}")
        return value
    return [
        collect(kind.item_type, item, f"{path}[{index}]", findings)
        for index, item in enumerate(value)
        if not findings.full
    ]


def _dict(kind: inspect.DictType, value: JsonValue, path: str, findings: Findings) -> JsonValue:
    if not is_object(value):
        findings.problem(path, f"must be a table, not {_type_of(value)}")
        return value
    clean: dict[str, JsonValue] = {}
    for key, item in value.items():
        if findings.full:
            break
        where = _join(path, key)
        collect(kind.key_type, key, where, findings)
        clean[key] = collect(kind.value_type, item, where, findings)
    return clean


def _string(kind: inspect.StrType, value: JsonValue, path: str, findings: Findings) -> JsonValue:
    _check_string(kind, value, path, findings, "")
    return value


def _metadata(kind: inspect.Metadata, value: JsonValue, path: str, findings: Findings) -> JsonValue:
    if isinstance(kind.type, inspect.StrType):
        _check_string(kind.type, value, path, findings, _description(kind))
        return value
    return collect(kind.type, value, path, findings)


def _description(kind: inspect.Metadata) -> str:
    extra: Any = getattr(kind, "extra_json_schema", None)  # the stubs leave its type unknown
    return str(extra.get("description", "")) if extra else ""


def _check_string(
    kind: inspect.StrType, value: JsonValue, path: str, findings: Findings, expected: str
) -> None:
    if not isinstance(value, str):
        findings.problem(path, f"must be a string, not {_type_of(value)}")
    elif _UNWRITABLE.search(value):
        findings.problem(path, "must not contain NUL or half of a surrogate pair")
    elif kind.min_length is not None and len(value) < kind.min_length:
        findings.problem(path, "must not be empty")
    elif kind.max_length is not None and len(value) > kind.max_length:
        findings.problem(path, f"must be at most {kind.max_length} characters")
    elif kind.pattern is not None and not re.search(kind.pattern.removesuffix("$") + r"\Z", value):
        wanted = expected or f"text matching {kind.pattern}"
        findings.problem(path, f"{_shown(value)} is not valid; expected {wanted}")


def _integer(kind: inspect.IntType, value: JsonValue, path: str, findings: Findings) -> JsonValue:
    if not isinstance(value, int) or isinstance(value, bool):
        findings.problem(path, f"must be a whole number, not {_type_of(value)}")
    elif kind.ge is not None and value < kind.ge:
        findings.problem(path, f"must be at least {kind.ge}")
    elif kind.le is not None and value > kind.le:
        findings.problem(path, f"must be at most {kind.le}")
    return value


def _boolean(kind: inspect.BoolType, value: JsonValue, path: str, findings: Findings) -> JsonValue:
    del kind
    if not isinstance(value, bool):
        findings.problem(path, f"must be true or false, not {_type_of(value)}")
    return value


def _literal(
    kind: inspect.LiteralType, value: JsonValue, path: str, findings: Findings
) -> JsonValue:
    if value not in kind.values or type(value) not in {type(choice) for choice in kind.values}:
        choices = ", ".join(str(choice) for choice in sorted(kind.values, key=str))
        findings.problem(path, f"{_shown(value)} is not one of: {choices}")
    return value


def _union(kind: inspect.UnionType, value: JsonValue, path: str, findings: Findings) -> JsonValue:
    """Check against the one member that could hold the value; None stands for absent."""
    members = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
    if value is None and len(members) < len(kind.types):
        return None
    chosen = [m for m in members if isinstance(m, inspect.StructType) == is_object(value)]
    return collect((chosen or members)[0], value, path, findings)


def _any(kind: inspect.AnyType, value: JsonValue, path: str, findings: Findings) -> JsonValue:
    del kind
    if is_object(value):
        return {
            _key(key, path, findings): _any(_ANY, item, _join(path, key), findings)
            for key, item in value.items()
        }
    if is_array(value):
        return [
            _any(_ANY, item, f"{path}[{i}]", findings)
            for i, item in enumerate(value)
            if not findings.full
        ]
    if isinstance(value, float) and value - value != 0:
        findings.problem(path, "must be a finite number")
    elif value is None:
        findings.problem(path, "must not be null; leave it out instead")
    elif isinstance(value, str):
        _check_string(_TEXT, value, path, findings, "")
    elif not isinstance(value, int | float):
        findings.problem(path, f"must be a JSON value, not {_type_of(value)}")
    return value


def _key(key: Any, path: str, findings: Findings) -> Any:
    if isinstance(key, str):
        _check_string(_TEXT, key, path, findings, "")
    else:
        findings.problem(path, f"its keys must be strings, not {_type_of(key)}")
    return key


_ANY = inspect.AnyType()
_TEXT = inspect.StrType()
_HANDLERS: dict[type[inspect.Type], Callable[..., JsonValue]] = {
    inspect.StructType: _struct,
    inspect.VarTupleType: _sequence,
    inspect.DictType: _dict,
    inspect.StrType: _string,
    inspect.Metadata: _metadata,
    inspect.IntType: _integer,
    inspect.BoolType: _boolean,
    inspect.LiteralType: _literal,
    inspect.UnionType: _union,
    inspect.AnyType: _any,
}


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _type_of(value: object) -> str:
    if is_object(value):
        return "a table"
    return _TYPE_NAMES.get(type(value), "a date or time")


_TYPE_NAMES: Mapping[type, str] = {
    bool: "true or false",
    str: "a string",
    int: "a number",
    float: "a number",
    list: "a list",
    tuple: "a list",
    type(None): "nothing",
}
