"""What changed inside records: field by field, old and new, without anybody's literals.

Below: records as plain values, and their masks. Above: ``history.py`` and the API's history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from bascule.control.registry.masks import MASK, masked
from bascule.control.registry.store import Change, Key
from bascule.model.json import is_array, is_object
from bascule.model.kinds import KINDS, Kind, Record
from bascule.model.snapshot import Snapshot, SnapshotDiff
from bascule.wire.api.history import FieldChange

_SHOWN = 200


def words_of(change: FieldChange) -> str:
    """Return a changed field for people."""
    same = " (another value)" if change.old == change.new else ""
    return f"{change.field}: {_words(change.old)} -> {_words(change.new)}{same}"


def field_changes(old: Snapshot, new: Snapshot, diff: SnapshotDiff) -> tuple[FieldChange, ...]:
    """Return the fields that differ in the records that were changed."""
    return tuple(
        found
        for change in diff.changes
        for key in change.changed
        for found in _changes(
            (change.kind, key), old.items(change.kind)[key], new.items(change.kind)[key]
        )
    )


class Touched(Struct, frozen=True):
    """What one revision did to its records: those that were new, and the fields of the others."""

    created: tuple[Key, ...] = ()
    fields: tuple[FieldChange, ...] = ()


def touched(before: Snapshot | None, changes: Sequence[Change]) -> dict[int, Touched]:
    """Return what each of some changes did, the oldest first; ``before`` is what they began with.

    Without it (history is not kept for ever) nothing is said of a record until it is seen twice.
    """
    known: dict[Key, Record] = {}
    if before is not None:
        known = {(kind, key): one for kind in KINDS for key, one in before.items(kind).items()}
    found: dict[int, Touched] = {}
    for change in changes:
        written: dict[Key, Record] = {
            (entry.kind, entry.id): entry.stored.record
            for entry in change.entries
            if entry.stored is not None
        }
        found[change.revision] = Touched(
            tuple(key for key in written if before is not None and key not in known),
            tuple(
                field
                for key, record in written.items()
                if key in known
                for field in _changes(key, known[key], record)
            ),
        )
        known |= written
        for entry in change.entries:
            if entry.stored is None:
                known.pop((entry.kind, entry.id), None)
    return found


def _changes(key: Key, before: Record, after: Record) -> Iterator[FieldChange]:
    kind, name = key
    had, has = _flat(_whole(before)), _flat(_whole(after))
    shown_before, shown_after = _shown(kind, before, had), _shown(kind, after, has)
    for field in dict.fromkeys((*had, *has)):
        if had.get(field) != has.get(field):
            yield FieldChange(kind, name, field, shown_before.get(field), shown_after.get(field))


def _shown(kind: Kind, record: Record, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's values with the literals hidden that only a node may see."""
    hidden = {path for path, value in _flat(masked(kind, record)).items() if value == MASK}
    return {path: MASK if path in hidden else value for path, value in values.items()}


def _whole(value: Any) -> Any:
    """Return plain values with every default in its place."""
    if isinstance(value, Struct):
        return {name: _whole(getattr(value, name)) for name in value.__struct_fields__}
    if is_object(value):
        return {name: _whole(item) for name, item in value.items()}
    return [_whole(item) for item in value] if is_array(value) else value


def _flat(plain: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return the values of tables in tables by their dotted paths."""
    found: dict[str, Any] = {}
    for name, value in plain.items():
        path = f"{above}.{name}" if above else str(name)
        found |= _flat(value, path) if is_object(value) else {path: value}
    return found


def _words(value: Any) -> str:
    if value is None:
        return "none"
    if is_array(value) and all(isinstance(item, str) for item in value):
        text = ", ".join(value) or "nothing"
    else:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
