"""What an import of many records, or a load of the files, changed or would change."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from bascule.wire.api.history import RecordName, RevisionDiff

ImportMode: TypeAlias = Literal["preview", "upsert", "replace"]


class ImportText(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file as it stands: records as TOML or JSON, or a client's JSON, comments and all.

    ``only`` picks records of it; ``allow`` are the tools that a client's servers may use where they
    are new.
    """

    text: str
    mode: ImportMode | None = None
    allow: tuple[str, ...] = ()
    only: tuple[RecordName, ...] | None = None


class Imported(Struct, frozen=True, kw_only=True):
    """What an import changed, or would change (``mode`` preview)."""

    mode: ImportMode
    revision: int
    diff: RevisionDiff
    warnings: tuple[str, ...]


class Rescanned(Struct, frozen=True, kw_only=True):
    """What loading the files anew did, or would do; ``problems`` are what was left out.

    ``changed`` says that it wrote, or would write; ``diff`` has the lines of a text for people.
    """

    revision: int
    changed: bool
    diff: tuple[str, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
