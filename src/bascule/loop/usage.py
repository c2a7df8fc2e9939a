"""Tokens used, summed over the turns of a conversation.

Below: plain values. Above: ``turns.py`` adds each turn's.
"""

from __future__ import annotations

from typing import Any

from bascule.model.json import JsonObject, is_object


def add_usage(total: JsonObject | None, turn: JsonObject | None) -> JsonObject | None:
    """Return the sum: numbers are added, also inside of details; of the rest the latest stands."""
    if total is None or turn is None:
        return turn if total is None else total
    return {key: _sum(total.get(key), turn.get(key)) for key in {**total, **turn}}


def _sum(before: Any, now: Any) -> Any:
    if now is None:
        return before
    if is_object(before) and is_object(now):
        return add_usage(before, now)
    return before + now if _is_number(before) and _is_number(now) else now


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
