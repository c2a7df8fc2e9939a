"""The registry over HTTP: all of it at one revision, and each change to it."""

from __future__ import annotations

from msgspec import Struct

from bascule.model.json import JsonObject


class SnapshotBody(Struct, frozen=True, kw_only=True):
    """Every record at one revision; literal values are masked for all but nodes."""

    store_id: str
    revision: int
    servers: tuple[JsonObject, ...]
    tasks: tuple[JsonObject, ...]
    profiles: tuple[JsonObject, ...]
    platform: JsonObject
    backends: tuple[JsonObject, ...]


class WatchEvent(Struct, frozen=True, kw_only=True):
    """What a revision did to the records of one kind: those it wrote, as ids or whole."""

    revision: int
    kind: str
    upserts: tuple[str | JsonObject, ...] = ()
    deletes: tuple[str, ...] = ()
