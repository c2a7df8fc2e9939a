"""A record that was shown, as a file of records has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bascule.model.json import JsonValue, is_array, is_object
from bascule.wire.api.records import own_fields
from bascule.wire.task_config import typed_form


def toml_of(shown: Mapping[str, Any]) -> str:
    """Return the record alone, without what is shown beside it and what is null."""
    import tomli_w  # noqa: PLC0415 - only writing TOML needs it

    return tomli_w.dumps(_without_nulls({"version": 1} | typed_form(own_fields(shown))))


def _without_nulls(value: JsonValue) -> Any:
    """Return plain values without what is null, which TOML has no word for."""
    if is_object(value):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if is_array(value):
        return [_without_nulls(item) for item in value if item is not None]
    return value
