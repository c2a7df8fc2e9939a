"""What is written down of a call's arguments: their shape, nothing, or all but some keys.

A value that came from a reference (a secret the node resolved) is never written, in any mode.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Any

from bascule.model.json import JsonObject, JsonValue, is_array, is_object
from bascule.model.server import Redaction

HIDDEN = "[redacted]"
_MAX_ITEMS = 100
_MAX_DEPTH = 16


def redact(arguments: JsonObject, mode: Redaction, known_values: Collection[str] = ()) -> Any:
    """Return what may be written down of a call's arguments."""
    if mode == "full":
        return HIDDEN
    if mode == "shape":
        return _shape(arguments, known_values, 0)
    hidden = frozenset(key.casefold() for key in mode.keys)
    return _without(arguments, hidden, known_values, 0)


def _shape(value: JsonValue, known_values: Collection[str], depth: int) -> JsonValue:
    """Keep the names and kinds of things, and lengths; no value."""
    if isinstance(value, str):
        return f"string({len(value)})"
    if depth >= _MAX_DEPTH:
        return "…"
    if not is_object(value):
        return f"list({len(value)})" if is_array(value) else _kind(value)
    shape: dict[str, JsonValue] = {}
    for key, item in islice(value.items(), _MAX_ITEMS):
        if known_values:
            key = _hidden(key, known_values)
        if type(item) is str:
            shape[key] = f"string({len(item)})"
        else:
            shape[key] = _shape(item, known_values, depth + 1)
    return shape


def _kind(value: object) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    return "number"


def _without(
    value: JsonValue, hidden: Collection[str], known_values: Collection[str], depth: int
) -> JsonValue:
    if depth >= _MAX_DEPTH:
        return HIDDEN
    if is_object(value):
        return {
            _hidden(key, known_values): HIDDEN
            if key.casefold() in hidden
            else _without(item, hidden, known_values, depth + 1)
            for key, item in value.items()
        }
    if is_array(value):
        return [_without(item, hidden, known_values, depth + 1) for item in value]
    return _hidden(value, known_values) if isinstance(value, str) else value


def _hidden(text: str, known_values: Collection[str]) -> str:
    """Hide a text that holds a value from a reference."""
    if known_values and any(known and known in text for known in known_values):
        return HIDDEN
    return text
