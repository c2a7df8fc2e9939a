"""Tokens used, summed over the turns of a conversation."""

from __future__ import annotations

from typing import TypeGuard

from bascule.model.json import JsonObject, JsonValue, is_object


def add_usage(total: JsonObject | None, turn: JsonObject | None) -> JsonObject | None:
    """Return the sum: numbers are added, also inside of details; of the rest the latest stands."""
    if total is None or turn is None:
        return turn if total is None else total
    return {key: _sum(total.get(key), turn.get(key)) for key in {**total, **turn}}


def _sum(before: JsonValue, now: JsonValue) -> JsonValue:
    if type(before) is int and type(now) is int:
        return before + now
    if now is None:
        return before
    if is_object(before) and is_object(now):
        return add_usage(before, now)
    return before + now if _is_number(before) and _is_number(now) else now


def _is_number(value: JsonValue) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
