"""Import over HTTP: many records at once, or a client's ``mcp.json``; preview, upsert, replace.

A body is a list of server records, collections of records (``{"servers": [...], "tasks": [...]}``)
or a client's file; either as it is, with ``?mode=``, or as ``records`` beside ``mode``. Below: the
service and ``registry/imports.py``. Above: ``rest.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, get_args

from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.errors import Refused
from bascule.asgi.json import json_response, read_json
from bascule.control.api import asked, shapes
from bascule.control.api.tasks import one_form_of
from bascule.control.registry.imports import is_client_config, read_client_config
from bascule.control.registry.kinds import KEY_FIELDS, SECTIONS
from bascule.control.registry.planning import ImportMode, records_of
from bascule.control.registry.service import RegistryService
from bascule.control.registry.store import View
from bascule.errors import InvalidRecord
from bascule.model.json import is_array, is_object
from bascule.model.snapshot import Kind

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
        body = await read_json(request)
        given, content = _taken_apart(body)
        mode = _mode(given if given is not None else asked.word(request, "mode"))
        records, warnings = _records(content)
        written = await self._service.import_records(
            _plain(self._service.view, records),
            mode,
            asked.author(request, "import"),
            strict=asked.flag(request, "strict"),
        )
        answer = {
            "mode": mode,
            "revision": written.revision,
            "diff": shapes.diff_shape(self._service.diff_of(written)),
            "warnings": [*warnings, *written.warnings],
        }
        return json_response(answer)


def _taken_apart(body: Any) -> tuple[Any, Any]:
    """Return the mode that a body names, if it does, and what is to be imported."""
    if is_object(body) and ("records" in body or "mode" in body):
        rest = {name: value for name, value in body.items() if name != "mode"}
        return body.get("mode"), rest.get("records", rest)
    return None, body


def _mode(given: Any) -> ImportMode:
    if given is None:
        return "upsert"
    if not isinstance(given, str) or given not in MODES:
        raise Refused(
            "invalid_request",
            f"mode: must be one of: {', '.join(MODES)}",
            details={"parameter": "mode"},
        )
    return MODES[given]


def _records(content: Any) -> tuple[Records, tuple[str, ...]]:
    if is_array(content):
        return [("server", item) for item in content], ()
    if not is_object(content):
        raise InvalidRecord(["records: must be a list of records or a client's file"])
    if is_client_config(content):
        client = read_client_config(content)
        return client.records, client.warnings
    unknown = sorted(set(content) - set(SECTIONS))
    if unknown and set(content) & set(SECTIONS):
        raise InvalidRecord([f"{name}: is not a kind of record" for name in unknown])
    if unknown and KEY_FIELDS["server"] not in content:
        raise InvalidRecord([_NOTHING])
    return records_of(content), ()


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
    own = shapes.own_fields(data)
    if kind != "task":
        return own
    named = own.get("task_id")
    return one_form_of(own, view.get("task", named) if isinstance(named, str) else None)
