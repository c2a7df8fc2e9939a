"""What an import of many records, or a load of the files, changed or would change."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from bascule.wire.api.history import RevisionDiff

ImportMode: TypeAlias = Literal["preview", "upsert", "replace"]


class Imported(Struct, frozen=True, kw_only=True):
    """What an import changed, or would change (``mode`` preview)."""

    mode: ImportMode
    revision: int
    diff: RevisionDiff
    warnings: tuple[str, ...]


class Rescanned(Struct, frozen=True, kw_only=True):
    """What loading the files anew did, or would do; ``problems`` are what was left out.

    ``diff`` has the lines of a text for people.
    """

    revision: int
    changed: bool
    diff: tuple[str, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
