"""Import over HTTP: many records at once, or a client's ``mcp.json``; preview, upsert, replace.

A body is a list of server records, collections of records (``{"servers": [...], "tasks": [...]}``)
or a client's file; either as it is, with ``?mode=``, or as ``records`` beside ``mode`` and, for a
client's file, ``allow``: the tools that its servers may use where they are new. A server that
exists keeps what the body does not name, unless ``?whole=true`` says that whole records are meant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, get_args

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.json import json_response, read_json
from bascule.asgi.parameters import flag, only_parameters, word, wrong
from bascule.control.api import query
from bascule.control.api.tasks import one_form_of
from bascule.control.registry.carryover import Brings
from bascule.control.registry.imports import is_client_config, read_client_config
from bascule.control.registry.offload import LARGE, apart
from bascule.control.registry.plan import records_of
from bascule.control.registry.service import RegistryService, Written
from bascule.control.registry.store import View
from bascule.errors import InvalidRecord
from bascule.model.json import is_array, is_object
from bascule.model.kinds import KEY_FIELDS, SECTIONS, Kind
from bascule.model.server import ServerRecord
from bascule.wire.api.imports import Imported, ImportMode
from bascule.wire.api.records import own_fields
from bascule.wire.collector import unknown_field

MODES: Mapping[str, ImportMode] = {mode: mode for mode in get_args(ImportMode)}
Records: TypeAlias = Sequence[tuple[Kind, Mapping[str, Any]]]
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
        given, allow, content = _taken_apart(await read_json(request))
        mode = _mode(given if given is not None else word(request, "mode"))
        whole = flag(request, "whole")
        reading = partial(_load, self._service.view, content, allow, whole=whole)
        load = await apart(LARGE, reading)  # nobody knows yet how many records they are
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
        )
        return json_response(answer)


class _Load(Struct, frozen=True):
    """The records of a body, and what they are to servers that exist."""

    records: Records
    brings: Brings
    warnings: tuple[str, ...] = ()


def _taken_apart(body: Any) -> tuple[Any, Sequence[str], Any]:
    """Return mode and allowed tools if a body names them, and what is to be imported."""
    if not is_object(body) or not ("records" in body or "mode" in body):
        return None, (), body
    rest = {name: value for name, value in body.items() if name not in ("mode", "allow")}
    strange = set(rest) - {"records"} if "records" in rest else ()
    if strange:
        raise InvalidRecord(
            [
                f"{name}: {unknown_field(name, ('mode', 'allow', 'records'))}"
                for name in sorted(strange)
            ]
        )
    return body.get("mode"), _patterns(body.get("allow")), rest.get("records", rest)


def _patterns(given: Any) -> Sequence[str]:
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
    ids = [str(data["server_id"]) for _, data in load.records]
    return [f"{i}: no tool is allowed yet; set allowed_tools" for i in ids if _is_shut(servers, i)]


def _is_shut(servers: Mapping[str, ServerRecord], server_id: str) -> bool:
    return server_id in servers and not servers[server_id].allowed_tools


def _mode(given: Any) -> ImportMode:
    if given is None:
        return "upsert"
    if not isinstance(given, str) or given not in MODES:
        raise wrong("mode", f"must be one of: {', '.join(MODES)}")
    return MODES[given]


def _load(view: View, content: Any, allow: Sequence[str], *, whole: bool) -> _Load:
    if is_object(content) and is_client_config(content):
        client = read_client_config(content, allow)
        return _Load(_plain(view, client.records), "connection", client.warnings)
    if allow:
        raise InvalidRecord(["allow: is for a client's file; a record has allowed_tools"])
    return _Load(_plain(view, _records(content)), "records" if whole else "fields")


def _records(content: Any) -> Records:
    if is_array(content):
        return [("server", item) for item in content]
    if not is_object(content):
        raise InvalidRecord(["records: must be a list of records or a client's file"])
    unknown = sorted(set(content) - set(SECTIONS))
    if unknown and set(content) & set(SECTIONS):
        raise InvalidRecord([f"{name}: is not a kind of record" for name in unknown])
    if unknown and KEY_FIELDS["server"] not in content:
        raise InvalidRecord([_NOTHING])
    return records_of(content)


def _plain(view: View, records: Records) -> Records:
    """Return records as they are to be read; raise InvalidRecord with where each problem is."""
    plain: list[tuple[Kind, Mapping[str, Any]]] = []
    problems: list[str] = []
    for number, (kind, data) in enumerate(records):
        try:
            plain.append((kind, _own(view, kind, data)))
        except InvalidRecord as error:
            problems += [f"{kind}[{number}].{problem}" for problem in error.problems]
    if problems:
        raise InvalidRecord(problems)
    return plain


def _own(view: View, kind: Kind, data: Any) -> Any:
    """Return one record's own fields; what is no object is left to the validator."""
    if not is_object(data):
        return data
    own = own_fields(data)
    if kind != "task":
        return own
    named = own.get("task_id")
    return one_form_of(own, view.get("task", named) if isinstance(named, str) else None)
