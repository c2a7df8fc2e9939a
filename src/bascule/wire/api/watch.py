"""One event of the registry's watch."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from bascule.model.json import JsonObject
from bascule.model.kinds import KINDS


class WatchEvent(Struct, frozen=True, kw_only=True):
    """What one revision did to one kind; ``kind`` is ``bookmark`` where nothing happened.

    ``upserts`` are keys, or whole records for a reader who asked for objects. A registry may be
    newer than its reader and know more kinds.
    """

    revision: int
    kind: Annotated[str, Meta(extra_json_schema={"enum": [*KINDS, "bookmark"]})]
    upserts: tuple[str | JsonObject, ...] = ()
    deletes: tuple[str, ...] = ()
