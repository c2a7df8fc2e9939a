"""The one way in from plain values to records, and the text in which stores keep them."""

from __future__ import annotations

from functools import cache

import msgspec
from msgspec import inspect

from bascule.errors import InvalidRecord
from bascule.model.json import JsonObject, JsonValue, is_object
from bascule.model.kinds import CLASSES, KEY_FIELDS, PLATFORM, Kind, Record
from bascule.wire.merge_patch import merge_patch
from bascule.wire.records import decode, encode
from bascule.wire.unknown_fields import unknown_fields


def read_record(
    kind: Kind,
    data: JsonObject,
    *,
    key: str | None = None,
    strict: bool = False,
    familiar: frozenset[str] = frozenset(),
) -> tuple[Record, tuple[str, ...]]:
    """Validate plain values; ``key`` is what they must be called, and fills a missing name in."""
    if is_object(data) and key is not None:
        data = _keyed(kind, data, key)
    return decode(CLASSES[kind], data, strict=strict, familiar=familiar)


@cache
def description(kind: Kind) -> inspect.Type:
    """Return what is known of the fields of a kind."""
    return inspect.type_info(CLASSES[kind])


def _keyed(kind: Kind, data: JsonObject, key: str) -> JsonObject:
    field = KEY_FIELDS.get(kind)
    if field is None:
        if key != PLATFORM:
            raise InvalidRecord([f"the only platform record is {PLATFORM!r}"])
        return data
    if data.get(field, key) != key:
        raise InvalidRecord([f"{field}: must be {key!r}, the id in the path"])
    return {field: key, **data}


def body_of(record: Record, extra: JsonObject | None = None) -> str:
    """Return a record as text in which equal records are equal, and ``1`` is not ``true``.

    ``extra`` are fields that this version does not know.
    """
    plain = encode(record)
    whole = merge_patch(plain, extra) if extra else plain
    return msgspec.json.encode(whole, order="deterministic").decode()


def record_of(kind: Kind, body: str) -> tuple[Record, dict[str, JsonValue]]:
    """Read a record back from a store's own text, and what it has beyond the known fields."""
    record = msgspec.json.decode(body, type=CLASSES[kind])
    if body_of(record) == body:
        return record, {}
    return record, unknown_fields(description(kind), msgspec.json.decode(body))
