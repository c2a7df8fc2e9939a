"""Fields that a record's description does not know, and yet may be kept.

A store may hold what another version of Bascule wrote. Such fields stay with their record, are
shown, and may be sent back as they are; new ones are refused like every unknown field.
"""

from __future__ import annotations

from msgspec import inspect

from bascule.model.json import JsonObject, JsonValue, is_object

Plain = JsonObject


def unknown_fields(kind: inspect.Type, value: JsonValue) -> dict[str, JsonValue]:
    """Return what of a table is unknown, as tables in tables; lists are not looked into."""
    members = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    struct = next((m for m in members if isinstance(m, inspect.StructType)), None)
    if struct is None or not is_object(value):
        return {}
    types = {field.encode_name: field.type for field in struct.fields}
    found: dict[str, JsonValue] = {}
    for name, item in value.items():
        if name not in types:
            found[name] = item
        elif inner := unknown_fields(types[name], item):
            found[name] = inner
    return found


def split_kept(given: Plain, *stored: Plain) -> tuple[dict[str, JsonValue], dict[str, JsonValue]]:
    """Take out of given fields what is stored in one of these forms; return the rest and it.

    The last form is the one that is kept: others are how it may have been shown.
    """
    rest: dict[str, JsonValue] = {}
    kept: dict[str, JsonValue] = {}
    for name, value in given.items():
        forms = [form[name] for form in stored if name in form]
        if forms and value in forms:
            kept[name] = forms[-1]
        elif forms and is_object(value) and all(map(is_object, forms)):
            left, inner = split_kept(value, *filter(is_object, forms))
            kept |= {name: inner} if inner else {}
            rest |= {name: left} if left or not inner else {}
        else:
            rest[name] = value
    return rest, kept


def removed_from(patch: Plain, stored: Plain) -> dict[str, JsonValue]:
    """Return stored fields without those that a merge patch takes away by null."""
    left: dict[str, JsonValue] = {}
    for name, value in stored.items():
        change = patch.get(name, ...)
        if change is None:
            continue
        inner = removed_from(change, value) if is_object(change) and is_object(value) else value
        if inner or not value:
            left[name] = inner
    return left
