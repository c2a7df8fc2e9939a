"""What a store holds of a record beyond the fields that this version knows.

It stays with the record, is shown beside its fields with what seems to be a credential hidden, and
may be sent back as it was shown. Anything else that is unknown is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import inspect

from bascule.control.registry.kinds import description
from bascule.control.registry.masks import MASK
from bascule.control.registry.merge import normal_patch
from bascule.control.registry.store import Stored
from bascule.errors import refuse_any
from bascule.model.json import JsonObject, JsonValue, is_array, is_object, paths
from bascule.model.kinds import Kind, Record
from bascule.model.reference import looks_like_a_credential, names_a_credential
from bascule.model.task import TaskRecord
from bascule.wire.collector import unknown_field
from bascule.wire.records import encode
from bascule.wire.task_config import CONFIG
from bascule.wire.unknown_fields import removed_from, split_kept, unknown_fields

Plain = JsonObject


def shown_extra(stored: Stored) -> Plain:
    """Return the unknown fields of a stored record for people."""
    return {name: _masked(value, name) for name, value in stored.extra.items()}


def without_kept(given: Plain, stored: Stored | None) -> tuple[Plain, Plain]:
    """Split fields into those that are to be read, and unknown ones that are stored already."""
    if stored is None or not stored.extra:
        return dict(given), {}
    return split_kept(given, shown_extra(stored), stored.extra)


def merged_extra(kind: Kind, patch: Plain, stored: Stored) -> tuple[Plain, Plain]:
    """Return a merge patch without what is kept, and what is kept after it.

    Raise InvalidRecord where it takes away a field that nobody knows.
    """
    rest, _ = without_kept(patch, stored)
    unknown = unknown_fields(description(kind), normal_patch(kind, rest))
    lost = {path for path, value in paths(unknown) if value is None} - {*dict(paths(stored.extra))}
    refuse_any([f"{path}: {_unknown(kind, path)}" for path in sorted(lost)])
    return rest, removed_from(patch, stored.extra)


def texts_of(record: Record | None) -> frozenset[str]:
    """Return every text in the lists of a record, which a newer rule must not lock in.

    Keys of a task's config map stand among them by their path.
    """
    if record is None:
        return frozenset()
    config = record.config if isinstance(record, TaskRecord) else ()
    return frozenset((*_texts(encode(record)), *(f"{CONFIG}.{key}" for key in config)))


def _texts(value: JsonValue) -> list[str]:
    if is_object(value):
        return [*value] + [text for item in value.values() for text in _texts(item)]
    if is_array(value):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []


def _unknown(kind: Kind, path: str) -> str:
    """Say that there is no such field, and which of the record's was probably meant."""
    names = [*_names(description(kind))]
    return unknown_field(path.rpartition(".")[2], names)


def _names(kind: inspect.Type) -> Iterator[str]:
    for field in kind.fields if isinstance(kind, inspect.StructType) else ():
        yield field.encode_name
        yield from _names(field.type)


def _masked(value: JsonValue, key: str = "") -> JsonValue:
    if is_object(value):
        return {name: _masked(item, name) for name, item in value.items()}
    if is_array(value):
        return [_masked(item, key) for item in value]
    if isinstance(value, str) and (names_a_credential(key) or looks_like_a_credential(value)):
        return MASK
    return value
