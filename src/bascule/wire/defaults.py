"""A record with its defaults, as readers of an API want to see it, and without, as it is kept.

What was read with its defaults and is written back is the record that it was: msgspec leaves out
only what is the default itself, not what is equal to it. A field that may be absent and is
(``http`` of a local server, ``allowed_server_ids`` of a task) has no default to show. Pure.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from msgspec import NODEFAULT, Struct, structs

from bascule.model.json import JsonObject, JsonValue, is_array, is_object


def with_defaults(plain: dict[str, JsonValue], record: Struct) -> dict[str, JsonValue]:
    """Return the plain values of a record, in their order, and the defaults it leaves out."""
    whole: dict[str, JsonValue] = _joined(_full(record), plain)
    return {**plain, **whole}


def without_defaults(plain: JsonObject, record: Struct) -> dict[str, JsonValue]:
    """Return the plain values of a record without what is equal to a default."""
    kept = dict(plain)
    for shown, field, default in _defaults(type(record)):
        if shown not in kept:
            continue
        value = getattr(record, field)
        if value == default:
            del kept[shown]
        elif isinstance(value, Struct) and is_object(inner := kept[shown]):
            kept[shown] = without_defaults(inner, value)
    return kept


@cache
def _defaults(cls: type[Struct]) -> tuple[tuple[str, str, object], ...]:
    """Return the fields of a struct as they are written and as they are called, with defaults."""
    return tuple(
        (f.encode_name, f.name, f.default_factory() if f.default is NODEFAULT else f.default)
        for f in structs.fields(cls)
        if not f.required
    )


def _full(value: object) -> JsonValue:
    """Return a struct as plain values, defaults included."""
    if isinstance(value, Struct):
        named = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        members = ((shown, getattr(value, field)) for shown, field in named)
        return {shown: _full(member) for shown, member in members if member is not None}
    if is_object(value):
        return {key: _full(member) for key, member in value.items()}
    if is_array(value):
        return [_full(item) for item in value]
    return msgspec.to_builtins(value)


def _joined(whole: JsonValue, shown: JsonValue) -> Any:
    """Return a value in which what is shown counts: a literal may be masked there."""
    if is_object(whole) and is_object(shown):
        both = {key: _joined(whole[key], value) if key in whole else value
                for key, value in shown.items()}  # fmt: skip
        return {**both, **{key: value for key, value in whole.items() if key not in shown}}
    if is_array(whole) and is_array(shown) and len(whole) == len(shown):
        return [_joined(*pair) for pair in zip(whole, shown, strict=True)]
    return shown
