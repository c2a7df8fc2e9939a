"""The whole registry at one revision."""

from __future__ import annotations

from msgspec import Struct

from bascule.model.json import JsonObject


class SnapshotBody(Struct, frozen=True, kw_only=True):
    """Every record at one revision; literal values are masked for all but nodes.

    ``follows`` is false for a reader whose If-None-Match names a revision that is not in the past
    of this one, though the store is the same: one of the two is another copy.
    """

    store_id: str
    revision: int
    servers: tuple[JsonObject, ...]
    tasks: tuple[JsonObject, ...]
    profiles: tuple[JsonObject, ...]
    platform: JsonObject
    backends: tuple[JsonObject, ...]
    users: tuple[JsonObject, ...] = ()
    mark: str = ""
    predecessor: str = ""
    follows: bool = True
