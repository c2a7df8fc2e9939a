"""The kinds of records: their classes, their keys, and the one way in from plain values.

Below: ``bascule.wire.records``, the validator. Above: stores read their rows with it, the
service, the loader and the import take records in with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from bascule.errors import InvalidRecord
from bascule.model.backend import BackendRecord
from bascule.model.json import is_object
from bascule.model.platform import PlatformRecord
from bascule.model.profile import ProfileRecord
from bascule.model.server import ServerRecord
from bascule.model.snapshot import Kind
from bascule.model.task import TaskRecord
from bascule.wire.records import Record, decode, encode

CLASSES: Mapping[Kind, type[Any]] = {
    "server": ServerRecord,
    "task": TaskRecord,
    "profile": ProfileRecord,
    "platform": PlatformRecord,
    "backend": BackendRecord,
}
KEY_FIELDS: Mapping[Kind, str] = {
    "server": "server_id",
    "task": "task_id",
    "profile": "name",
    "backend": "name",
}
SECTIONS: Mapping[str, Kind] = {
    "servers": "server",
    "tasks": "task",
    "profiles": "profile",
    "platform": "platform",
    "backends": "backend",
}
PLATFORM = "platform"


def record_key(kind: Kind, record: Record) -> str:
    """Return what a record is found by; the one platform record has the key ``platform``."""
    return getattr(record, KEY_FIELDS[kind]) if kind in KEY_FIELDS else PLATFORM


def read_record(
    kind: Kind,
    data: Mapping[str, Any],
    *,
    key: str | None = None,
    strict: bool = False,
    source: str | None = None,
) -> tuple[Record, tuple[str, ...]]:
    """Validate plain values; ``key`` is what they must be called, and fills a missing name in."""
    if is_object(data) and key is not None:
        data = _keyed(kind, data, key, source)
    return decode(CLASSES[kind], data, strict=strict, source=source)


def _keyed(kind: Kind, data: Mapping[str, Any], key: str, source: str | None) -> Mapping[str, Any]:
    field = KEY_FIELDS.get(kind)
    if field is None:
        if key != PLATFORM:
            raise InvalidRecord([f"there is one platform record, {PLATFORM!r}"], source=source)
        return data
    if data.get(field, key) != key:
        raise InvalidRecord([f"{field}: must be {key!r}, as it is addressed"], source=source)
    return {field: key, **data}


def body_of(record: Record) -> str:
    """Return a record as text in which equal records are equal, and ``1`` is not ``true``."""
    return msgspec.json.encode(encode(record), order="deterministic").decode()


def record_of(kind: Kind, body: str) -> Record:
    """Read a record back from a store's own text."""
    return msgspec.json.decode(body, type=CLASSES[kind])
