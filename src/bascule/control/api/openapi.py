"""The registry's API described in OpenAPI 3.1, from the routes and types that serve it.

Paths, permissions and summaries are read off the real routes; the schemas of records come from the
classes that the validator uses. What a route takes and gives is the one table here, and a route
that is missing from it fails. Above: ``docs/openapi.json`` is this, committed.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from bascule.asgi.errors import status_of
from bascule.asgi.guard import OPEN, GuardedRoute
from bascule.clock import SYSTEM_CLOCK
from bascule.control.api.asked import MAX_PAGE
from bascule.control.api.history import RecordName, Rollback
from bascule.control.api.imports import MODES
from bascule.control.api.node_face import TestReport, ToolPreview
from bascule.control.api.records import Collection
from bascule.control.api.rest import ADMIN, COLLECTIONS, PLATFORM, PUBLIC, SERVERS, registry_routes
from bascule.control.registry.kinds import CLASSES
from bascule.control.registry.memory_store import MemoryStore
from bascule.control.registry.service import RegistryService
from bascule.control.registry.status import CombinedStatus
from bascule.control.registry.store import View
from bascule.model.snapshot import KINDS, KindChange
from bascule.policy.explain import AccessDiff

Schema = dict[str, Any]

_REFS = "#/components/schemas/"
_TYPES = (
    *CLASSES.values(),
    CombinedStatus,
    TestReport,
    ToolPreview,
    Rollback,
    RecordName,
    KindChange,
    AccessDiff,
)
_TEXT: Schema = {"type": "string"}
_NULLABLE: Schema = {"type": ["string", "null"]}
_REVISION: Schema = {"type": "integer", "minimum": 0, "maximum": 10**15 - 1}
_LIMIT: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_PAGE}
_CURSOR: Schema = {"type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,128}$"}
_TAGS = {"type": "string", "description": "an ETag, several, or *"}
_READ = ("invalid_request", "unauthenticated", "forbidden", "origin_refused", "host_refused")
_WRITE = (*_READ, "invalid_json", "body_too_large", "unsupported_media_type", "request_timeout")
_SAVE = (*_WRITE, "invalid_record", "owned_by_file", "store_unavailable")
_CONDITIONAL = (*_SAVE, "conflict", "not_found")
_PAST = (*_READ, "compacted", "future_revision")


class Exchange(Struct, frozen=True, kw_only=True):
    """What one route takes and gives: ``answers`` by status, ``refusals`` by code."""

    answers: Mapping[int, Schema]
    refusals: tuple[str, ...] = _READ
    body: Schema | None = None
    query: Mapping[str, Schema] = {}
    headers: Mapping[str, Schema] = {}
    needed: tuple[str, ...] = ()
    media_type: str = "application/json"
    tagged: bool = False


def render() -> str:
    """Return the description as the text of a file."""
    unused = RegistryService(MemoryStore(), View("", 0, {}))
    described = document(registry_routes(unused, clock=SYSTEM_CLOCK))
    return msgspec.json.format(msgspec.json.encode(described), indent=2).decode() + "\n"


def document(routes: Iterable[GuardedRoute]) -> dict[str, Any]:
    """Describe routes; raise KeyError for one that the table does not know."""
    exchanges = dict(_exchanges())
    paths: dict[str, dict[str, Any]] = {}
    for one in routes:
        for method in sorted(one.verbs):
            operation = _operation(one, method, exchanges[method, one.path])
            paths.setdefault(one.path, {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Bascule registry", "version": "1"},
        "paths": paths,
        "components": {
            "schemas": _components(),
            "responses": _refusals(exchanges.values()),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


# --- what each route takes and gives


def _exchanges() -> Iterator[tuple[tuple[str, str], Exchange]]:
    yield from _reads(PUBLIC, SERVERS)
    yield ("GET", f"{PUBLIC}/watch"), _watch()
    for collection in COLLECTIONS:
        many = f"{ADMIN}/{collection.name}"
        yield from _reads(ADMIN, collection)
        yield ("POST", many), _create(collection)
        yield from _writes(f"{many}/{{id}}", collection)
    yield ("GET", f"{ADMIN}/platform"), _get(PLATFORM)
    yield from _writes(f"{ADMIN}/platform", PLATFORM)
    yield from _trials(f"{ADMIN}/servers/{{id}}")
    yield ("POST", f"{ADMIN}/import"), _import()
    yield ("POST", f"{ADMIN}/servers/import"), _import()
    yield from _past()


def _reads(prefix: str, collection: Collection) -> Iterator[tuple[tuple[str, str], Exchange]]:
    many = f"{prefix}/{collection.name}"
    shown = _shown(collection)
    listing = _object(
        store_id=_TEXT, revision=_REVISION, next_cursor=_NULLABLE, **{collection.name: _list(shown)}
    )
    yield (
        ("GET", many),
        Exchange(
            answers={200: listing, 304: {}},
            query={"limit": _LIMIT, "cursor": _CURSOR},
            headers={"If-None-Match": _TAGS},
            tagged=True,
        ),
    )
    yield ("GET", f"{many}/{{id}}"), _get(collection)


def _get(collection: Collection) -> Exchange:
    return Exchange(
        answers={200: _shown(collection), 304: {}},
        refusals=(*_READ, "not_found"),
        headers={"If-None-Match": _TAGS},
        tagged=True,
    )


def _create(collection: Collection) -> Exchange:
    return Exchange(
        answers={201: _written(collection)},
        refusals=(*_SAVE, "already_exists"),
        body=_record(collection),
        query=_STRICT,
        tagged=True,
    )


def _writes(path: str, collection: Collection) -> Iterator[tuple[tuple[str, str], Exchange]]:
    written = _written(collection)
    when = {"If-Match": _TAGS, "If-None-Match": _TAGS}
    merge = {"type": "object", "description": "a JSON merge patch (RFC 7396) of the record"}
    put = Exchange(
        answers={200: written, 201: written},
        refusals=_CONDITIONAL,
        body=_record(collection),
        query=_STRICT,
        headers=when,
        tagged=True,
    )
    yield ("PUT", path), put
    yield ("PATCH", path), msgspec.structs.replace(put, answers={200: written}, body=merge)
    deleted = _object(revision=_REVISION, deleted=_TEXT)
    yield (
        ("DELETE", path),
        Exchange(answers={200: deleted}, refusals=_CONDITIONAL, headers=when),
    )
    yield (
        ("POST", f"{path}/adopt"),
        Exchange(answers={200: written}, refusals=_CONDITIONAL, tagged=True),
    )


def _trials(path: str) -> Iterator[tuple[tuple[str, str], Exchange]]:
    refusals = (*_READ, "not_found", "no_node")
    tools = _object(server_id=_TEXT, tools=_list(_ref(ToolPreview)))
    yield ("POST", f"{path}/test"), Exchange(answers={200: _ref(TestReport)}, refusals=refusals)
    unreachable = (*refusals, "mcp_unavailable", "mcp_timeout", "mcp_tool_error")
    yield ("GET", f"{path}/tools"), Exchange(answers={200: tools}, refusals=unreachable)


def _watch() -> Exchange:
    item = {"anyOf": [_TEXT, {"type": "object"}]}
    event = _object(
        revision=_REVISION,
        kind={"enum": [*KINDS, "bookmark"]},
        upserts=_list(item),
        deletes=_list(_TEXT),
    )
    return Exchange(
        answers={200: event},
        refusals=(*_PAST, "store_changed"),
        query={
            "since": _REVISION,
            "kind": {"type": "string", "description": f"some of {', '.join(KINDS)}, by commas"},
            "include": {"enum": ["ids", "objects"]},
            "store_id": _TEXT,
        },
        headers={"Last-Event-ID": _TEXT},
        media_type="text/event-stream",
    )


def _import() -> Exchange:
    records = _list({"type": "object"})
    answer = _object(
        mode={"enum": list(MODES)}, revision=_REVISION, diff=_DIFF, warnings=_list(_TEXT)
    )
    return Exchange(
        answers={200: answer},
        refusals=_CONDITIONAL,
        body={"anyOf": [records, {"type": "object"}]},
        query={"mode": {"enum": list(MODES)}, **_STRICT},
    )


def _past() -> Iterator[tuple[tuple[str, str], Exchange]]:
    change = _object(
        revision=_REVISION,
        at=_NULLABLE,
        actor=_TEXT,
        note=_TEXT,
        upserts=_list(_ref(RecordName)),
        deletes=_list(_ref(RecordName)),
    )
    page = _object(
        store_id=_TEXT,
        revision=_REVISION,
        floor=_REVISION,
        changes=_list(change),
        next_before={"type": ["integer", "null"]},
    )
    back = _object(revision=_REVISION, diff=_DIFF)
    yield (
        ("GET", f"{ADMIN}/history"),
        Exchange(answers={200: page}, query={"limit": _LIMIT, "before": _REVISION}),
    )
    yield (
        ("GET", f"{ADMIN}/diff"),
        Exchange(
            answers={200: _DIFF},
            refusals=_PAST,
            query={"from": _REVISION, "to": _REVISION, "environment": _TEXT},
            needed=("from",),
        ),
    )
    yield (
        ("POST", f"{ADMIN}/rollback"),
        Exchange(
            answers={200: back},
            refusals=(*_SAVE, "compacted", "future_revision"),
            body=_ref(Rollback),
        ),
    )


# --- schemas


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def _ref(kind: type[Any]) -> Schema:
    return {"$ref": _REFS + kind.__name__}


def _record(collection: Collection) -> Schema:
    return _ref(CLASSES[collection.kind])


def _shown(collection: Collection) -> Schema:
    return {"$ref": f"{_REFS}{collection.kind.title()}Shown"}


def _written(collection: Collection) -> Schema:
    return {"$ref": f"{_REFS}{collection.kind.title()}Written"}


def _shapes(collection: Collection) -> Iterator[tuple[str, Schema]]:
    """Yield a record with what is shown beside its fields, and the answer to a write of it."""
    name = collection.kind.title()
    beside: dict[str, Schema] = {"revision": _REVISION, "updated_at": _NULLABLE, "owner": _NULLABLE}
    if collection.kind == "server":
        beside["status"] = _ref(CombinedStatus)
    yield f"{name}Shown", {"allOf": [_record(collection), _object(**beside)]}
    shown = {collection.kind: _shown(collection)}
    yield f"{name}Written", _object(revision=_REVISION, warnings=_list(_TEXT), **shown)


_STRICT: Mapping[str, Schema] = {"strict": {"type": "boolean"}}
_TASK_ACCESS = _object(task=_TEXT, default=_ref(AccessDiff), most=_ref(AccessDiff))
_DIFF: Schema = {"$ref": f"{_REFS}Diff"}


def _diff() -> Schema:
    return _object(
        **{"from": _REVISION, "to": _REVISION},
        changes=_list(_ref(KindChange)),
        reconnect=_list(_TEXT),
        access=_object(platform=_ref(AccessDiff), tasks=_list(_TASK_ACCESS)),
        text=_TEXT,
    )


def _components() -> dict[str, Any]:
    _, found = msgspec.json.schema_components(_TYPES, ref_template=_REFS + "{name}")
    error = _object(code=_TEXT, message=_TEXT, details={"type": "object"})
    shapes = [shape for one in (*COLLECTIONS, PLATFORM) for shape in _shapes(one)]
    return {**found, **dict(shapes), "Diff": _diff(), "Error": _object(error=error)}


def _refusals(exchanges: Iterable[Exchange]) -> dict[str, Any]:
    """Describe every refusal once, by its status."""
    codes: dict[int, set[str]] = {}
    for exchange in exchanges:
        for code in exchange.refusals:
            codes.setdefault(status_of(code), set()).add(code)
    content = {"application/json": {"schema": {"$ref": f"{_REFS}Error"}}}
    return {
        f"Refused{status}": {"description": ", ".join(sorted(named)), "content": content}
        for status, named in sorted(codes.items())
    }


# --- operations


def _operation(one: GuardedRoute, method: str, exchange: Exchange) -> dict[str, Any]:
    summary = (inspect.getdoc(one.endpoint) or "").partition("\n")[0]
    operation: dict[str, Any] = {
        "operationId": _name(method, one.path),
        "summary": summary,
        "parameters": list(_parameters(one, exchange)),
        "responses": dict(_responses(exchange)),
    }
    if one.access != OPEN:
        operation |= {"security": [{"token": []}], "x-permission": one.access}
    if exchange.body is not None:
        content = {"application/json": {"schema": exchange.body}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _name(method: str, path: str) -> str:
    words = path.replace("{", "").replace("}", "").strip("/").split("/")
    return "_".join([method.lower(), *words])


def _parameters(one: GuardedRoute, exchange: Exchange) -> Iterator[dict[str, Any]]:
    for name in one.param_convertors:
        yield {"name": name, "in": "path", "required": True, "schema": _TEXT}
    for place, named in (("query", exchange.query), ("header", exchange.headers)):
        for name, schema in named.items():
            needed = name in exchange.needed
            yield {"name": name, "in": place, "required": needed, "schema": schema}


def _responses(exchange: Exchange) -> Iterator[tuple[str, dict[str, Any]]]:
    for status, schema in exchange.answers.items():
        answer: dict[str, Any] = {"description": _MEANINGS[status]}
        if schema:
            answer["content"] = {exchange.media_type: {"schema": schema}}
        if exchange.tagged:
            answer["headers"] = {"ETag": {"schema": _TEXT}}
        yield str(status), answer
    for status in sorted({status_of(code) for code in exchange.refusals}):
        yield str(status), {"$ref": f"#/components/responses/Refused{status}"}


_MEANINGS = {200: "done", 201: "created", 304: "unchanged"}
