"""Which fields of records a write changed, with their old and new values, masked.

Below: ``masking.py`` hides literals. Above: the import's answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from bascule.control.registry.masking import MASK, masked
from bascule.control.registry.store import View
from bascule.model.json import is_object
from bascule.model.snapshot import Kind
from bascule.wire.records import encode


class ChangedField(Struct, frozen=True):
    """One field by its dotted path; what is not there is None."""

    kind: Kind
    id: str
    field: str
    old: Any = None
    new: Any = None

    def __str__(self) -> str:
        where = f"  {self.kind} {self.id}: {self.field}"
        if self.old == self.new == MASK:
            return f"{where} changed (it is not shown)"
        return f"{where}: {_text(self.old)} -> {_text(self.new)}"


def changed_fields(before: View, after: View) -> tuple[ChangedField, ...]:
    """Return the fields that differ in records that are there before and after."""
    return tuple(
        ChangedField(key[0], key[1], path, _shown(old, path), _shown(new, path))
        for key in sorted(before.objects.keys() & after.objects.keys())
        if before.objects[key].record != after.objects[key].record
        for old, new in [(_leaves(before, key), _leaves(after, key))]
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path)
    )


def _leaves(view: View, key: tuple[Kind, str]) -> dict[str, tuple[Any, Any]]:
    """Return every field of a record by its path: as it is, and as it may be shown."""
    record = view.objects[key].record
    shown = dict(_flat(masked(key[0], record)))
    return {path: (value, shown.get(path)) for path, value in _flat(encode(record))}


def _shown(leaves: Mapping[str, tuple[Any, Any]], path: str) -> Any:
    return leaves[path][1] if path in leaves else None


def _flat(plain: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in plain.items():
        if is_object(value) and value:
            yield from _flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _text(value: Any) -> str:
    return "nothing" if value is None else msgspec.json.encode(value).decode()
