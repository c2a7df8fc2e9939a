"""What changed inside records: field by field, old and new, without anybody's literals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct, to_builtins
from msgspec.structs import asdict

from bascule.control.registry.masks import MASK, masked
from bascule.control.registry.store import Change, Key
from bascule.model.json import JsonObject, JsonValue, is_array, is_object, paths
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
            entry.key: entry.stored.record for entry in change.entries if entry.stored is not None
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
                known.pop(entry.key, None)
    return found


def _changes(key: Key, before: Record, after: Record) -> Iterator[FieldChange]:
    kind, name = key
    had, has = _values(before), _values(after)
    shown_before, shown_after = _shown(kind, before, had), _shown(kind, after, has)
    for field in dict.fromkeys((*had, *has)):
        if had.get(field) != has.get(field):
            yield FieldChange(kind, name, field, shown_before.get(field), shown_after.get(field))


def _values(record: Record) -> dict[str, JsonValue]:
    whole = _whole(record)
    return _flat(whole) if is_object(whole) else {}


def _shown(kind: Kind, record: Record, values: JsonObject) -> JsonObject:
    """Return a record's values with the literals hidden that only a node may see."""
    hidden = {path for path, value in _flat(masked(kind, record)).items() if value == MASK}
    return {path: MASK if path in hidden else value for path, value in values.items()}


def _whole(value: object) -> JsonValue:
    """Return plain values with every default in its place."""
    if isinstance(value, Struct):
        value = asdict(value)
    if is_object(value):
        return {name: _whole(item) for name, item in value.items()}
    return [_whole(item) for item in value] if is_array(value) else to_builtins(value)


def _flat(plain: JsonObject) -> dict[str, JsonValue]:
    """Return the values of tables in tables by their dotted paths."""
    return {path: value for path, value in paths(plain) if not is_object(value)}


def _words(value: JsonValue) -> str:
    if value is None:
        return "none"
    if is_array(value) and all(isinstance(item, str) for item in value):
        text = ", ".join(value) or "nothing"
    else:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
