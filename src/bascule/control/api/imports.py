"""Import over HTTP: many records at once, or a client's ``mcp.json``; preview, upsert, replace.

A body is a list of server records, collections of records (``{"servers": [...], "tasks": [...]}``)
or a client's file; either as it is, with ``?mode=``, or as ``records`` beside ``mode`` and, for a
client's file, ``allow``: the tools that its servers may use where they are new. ``text`` is a file
as it stands, of which ``only`` picks some records, and ``sandboxes`` says what new local servers
are kept from. A server that exists keeps what the body does not name, unless ``?whole=true`` says
that whole records are meant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import get_args

from msgspec import Struct, to_builtins
from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.json import as_struct, json_response, read_json
from bascule.asgi.parameters import flag, only_parameters, word, wrong
from bascule.control.api import query
from bascule.control.registry.carryover import Brings
from bascule.control.registry.imports import is_client_config, read_client_config
from bascule.control.registry.offload import LARGE, apart
from bascule.control.registry.plan import KindData, records_of
from bascule.control.registry.service import RegistryService, Written
from bascule.errors import InvalidRecord, refuse_any
from bascule.files.scan import parse_text
from bascule.model.json import JsonObject, JsonValue, is_array, is_object
from bascule.model.kinds import KEY_FIELDS, SECTIONS, Kind
from bascule.wire.api.history import RecordName
from bascule.wire.api.imports import (
    Imported,
    ImportMode,
    ImportText,
    ImportTrial,
    NewLocalServer,
)
from bascule.wire.collector import unknown_field
from bascule.wire.new_servers import named_places
from bascule.wire.records import encode

MODES: Mapping[str, ImportMode] = {mode: mode for mode in get_args(ImportMode)}
_NOTHING = (
    "there is nothing to import: expected mcpServers (Claude, Cursor), servers (VS Code), "
    f"or lists of records under {', '.join(SECTIONS)}"
)


class Imports:
    """The endpoint of the import."""

    def __init__(self, service: RegistryService) -> None:
        self._service = service

    async def take_in(self, request: Request) -> Response:
        """Import records, all or none, and answer with what that changes."""
        only_parameters(request, "mode", "whole", "strict")
        asked = _taken_apart(await read_json(request))
        mode = _mode(asked.mode if asked.mode is not None else word(request, "mode"))
        if mode == "replace" and asked.only is not None:
            raise wrong("only", "is not for mode replace, which would remove all others")
        reading = partial(_load, asked, whole=flag(request, "whole"))
        load = await apart(LARGE, reading)  # nobody knows yet how many records they are
        self._refuse_sandboxes(asked.sandboxes)
        written = await self._service.import_records(
            load.records,
            mode,
            query.author(request, "import"),
            brings=load.brings,
            strict=flag(request, "strict"),
        )
        answer = Imported(
            mode=mode,
            revision=written.revision,
            diff=await self._service.diff_of(written),
            warnings=(*load.warnings, *_unusable(load, written), *written.warnings),
            servers=_new_local(written) if mode == "preview" else (),
        )
        return json_response(answer)

    def _refuse_sandboxes(self, sandboxes: Mapping[str, JsonObject]) -> None:
        """Refuse a sandbox for a server that exists: an import leaves it what it has."""
        known = self._service.view.snapshot().servers
        refuse_any(
            [
                f"sandboxes.{one}: the server exists and keeps its sandbox"
                for one in sandboxes
                if one in known
            ]
        )


def server_of(given: ImportTrial) -> JsonObject:
    """Return one server of a file, as its import would write it where it is new."""
    content = parse_text(given.text.encode(), "the text", relaxed=True)
    own: JsonObject = {} if given.sandbox is None else {"sandbox": to_builtins(given.sandbox)}
    for kind, data in _load(_Asked(content), whole=True).records:
        if kind == "server" and is_object(data) and _key(kind, data) == given.server_id:
            return {**data, **own}
    raise wrong("server_id", f"the text has no server {given.server_id!r}")


def _new_local(written: Written) -> tuple[NewLocalServer, ...]:
    before, after = written.before.snapshot().servers, written.after.snapshot().servers
    return tuple(
        NewLocalServer(
            server_id=one.server_id,
            sandbox=one.sandbox,
            places=tuple(named_places(encode(one))),
        )
        for one in after.values()
        if one.server_id not in before and one.transport == "stdio"
    )


class _Load(Struct, frozen=True):
    """The records of a body, and what they are to servers that exist."""

    records: Sequence[KindData]
    brings: Brings
    warnings: tuple[str, ...] = ()


class _Asked(Struct, frozen=True):
    """What is to be imported, and what a body says beside it."""

    content: JsonValue
    mode: JsonValue = None
    allow: Sequence[str] = ()
    only: frozenset[RecordName] | None = None
    sandboxes: Mapping[str, JsonObject] = {}


def _taken_apart(body: JsonValue) -> _Asked:
    if is_object(body) and isinstance(body.get("text"), str):
        return _of_text(as_struct(body, ImportText))
    if not is_object(body) or not ("records" in body or "mode" in body):
        return _Asked(body)
    rest = {name: value for name, value in body.items() if name not in ("mode", "allow")}
    strange = set(rest) - {"records"} if "records" in rest else ()
    known = ("mode", "allow", "records")
    refuse_any([f"{name}: {unknown_field(name, known)}" for name in sorted(strange)])
    return _Asked(rest.get("records", rest), body.get("mode"), _patterns(body.get("allow")))


def _of_text(given: ImportText) -> _Asked:
    content = parse_text(given.text.encode(), "the text", relaxed=True)
    only = None if given.only is None else frozenset(given.only)
    sandboxes = {name: to_builtins(one) for name, one in given.sandboxes.items()}
    return _Asked(content, given.mode, given.allow, only, sandboxes)


def _patterns(given: JsonValue) -> Sequence[str]:
    if given is None:
        return ()
    if not is_array(given) or not all(isinstance(item, str) for item in given):
        raise wrong("allow", "must be a list of tool patterns")
    return [str(item) for item in given]


def _unusable(load: _Load, written: Written) -> list[str]:
    """Say which servers of a client's file nobody may use yet."""
    if load.brings != "connection":
        return []
    servers = written.after.snapshot().servers
    brought = [servers.get(str(data["server_id"])) for _, data in load.records if is_object(data)]
    return [
        f"{one.server_id}: no tool is allowed yet; set allowed_tools"
        for one in brought
        if one is not None and not one.allowed_tools
    ]


def _mode(given: JsonValue) -> ImportMode:
    if given is None:
        return "upsert"
    if not isinstance(given, str) or given not in MODES:
        raise wrong("mode", f"must be one of: {', '.join(MODES)}")
    return MODES[given]


def _load(asked: _Asked, *, whole: bool) -> _Load:
    content = asked.content
    if is_object(content) and is_client_config(content):
        client = read_client_config(content, asked.allow, asked.sandboxes)
        _refuse_unknown(client.records, asked.sandboxes)
        return _Load(_picked(client.records, asked.only), "connection", client.warnings)
    if asked.allow:
        raise InvalidRecord(
            ["allow: is only for the file of an MCP client; in a record, set allowed_tools"]
        )
    records = [_confined(one, asked.sandboxes) for one in _records(content)]
    _refuse_unknown(records, asked.sandboxes)
    return _Load(_picked(records, asked.only), "records" if whole else "fields")


def _confined(one: KindData, sandboxes: Mapping[str, JsonObject]) -> KindData:
    """Return a record with the sandbox that is said beside the text, if one is."""
    kind, data = one
    sandbox = sandboxes.get(_key(kind, data)) if kind == "server" else None
    return one if sandbox is None or not is_object(data) else (kind, {**data, "sandbox": sandbox})


def _refuse_unknown(records: Sequence[KindData], sandboxes: Mapping[str, JsonObject]) -> None:
    local = {
        _key(kind, data)
        for kind, data in records
        if kind == "server" and is_object(data) and data.get("transport") == "stdio"
    }
    strange = sorted(set(sandboxes) - local)
    refuse_any([f"sandboxes.{one}: the text has no local server {one!r}" for one in strange])


def _picked(records: Sequence[KindData], only: frozenset[RecordName] | None) -> Sequence[KindData]:
    """Return the records that are wanted; one that is not there is a mistake of who asks."""
    if only is None:
        return records
    named = [(RecordName(one[0], _key(*one)), one) for one in records]
    missing = only - {name for name, _ in named}
    refuse_any(sorted(f"only: the text has no {one.kind} {one.id!r}" for one in missing))
    return [record for name, record in named if name in only]


def _key(kind: Kind, data: JsonValue) -> str:
    """Return how a record that may be wrong is named."""
    return str(data.get(KEY_FIELDS.get(kind, ""), kind)) if is_object(data) else ""


def _records(content: JsonValue) -> Sequence[KindData]:
    if is_array(content):
        return [("server", item) for item in content]
    if not is_object(content):
        raise InvalidRecord(["records: must be a list of records, or the file of an MCP client"])
    unknown = sorted(set(content) - set(SECTIONS))
    if unknown and set(content) & set(SECTIONS):
        raise InvalidRecord([f"{name}: is not a kind of record" for name in unknown])
    if unknown and KEY_FIELDS["server"] not in content:
        raise InvalidRecord([_NOTHING])
    return records_of(content)
