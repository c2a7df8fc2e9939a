"""What an import of many records, or a load of the files, changed or would change."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from bascule.model.sandbox import Sandbox
from bascule.wire.api.history import RecordName, RevisionDiff

ImportMode: TypeAlias = Literal["preview", "upsert", "replace"]


class ImportText(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file as it stands: records as TOML or JSON, or a client's JSON, comments and all.

    ``only`` picks records of it; ``allow`` are the tools that a client's servers may use where they
    are new; ``sandboxes`` are those of new local servers, by their ids, instead of what the text
    says or new ones get.
    """

    text: str
    mode: ImportMode | None = None
    allow: tuple[str, ...] = ()
    only: tuple[RecordName, ...] | None = None
    sandboxes: dict[str, Sandbox] = {}


class ImportTrial(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server of a file as it stands, to be tried before the file is imported."""

    text: str
    server_id: str
    sandbox: Sandbox | None = None


class NewLocalServer(Struct, frozen=True, kw_only=True):
    """A local server that an import would add: its sandbox, and the paths its arguments name.

    ``sandbox`` is None where the record does not say any: such a server is not confined.
    """

    server_id: str
    sandbox: Sandbox | None
    places: tuple[str, ...]


class Imported(Struct, frozen=True, kw_only=True):
    """What an import changed, or would change (``mode`` preview).

    ``servers`` are the local servers that a preview would add: what to grant them is decided
    before they are written.
    """

    mode: ImportMode
    revision: int
    diff: RevisionDiff
    warnings: tuple[str, ...]
    servers: tuple[NewLocalServer, ...] = ()


class Rescanned(Struct, frozen=True, kw_only=True):
    """What loading the files anew did, or would do; ``problems`` are what was left out.

    ``changed`` says that it wrote, or would write; ``diff`` has the lines of a text for people.
    """

    revision: int
    changed: bool
    diff: tuple[str, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
