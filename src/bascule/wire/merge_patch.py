"""JSON merge patch (RFC 7396) on plain values."""

from __future__ import annotations

from bascule.model.json import JsonObject, JsonValue, is_object


def merge_patch(old: JsonObject, patch: JsonObject) -> dict[str, JsonValue]:
    """Return the old fields with a patch applied: null takes one away, objects are merged."""
    result = dict(old)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif is_object(value):
            before = result.get(name)
            result[name] = merge_patch(before if is_object(before) else {}, value)
        else:
            result[name] = value
    return result
