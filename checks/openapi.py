"""The API of ``bascule up`` in OpenAPI 3.1, from its routes and the structs that they exchange.

Addresses, permissions and summaries are read off the routes, bodies off the structs of
``bascule.wire.api``; what else a route takes and gives is the table in ``openapi_routes.py``.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from bascule.app.reload import Reloading
from bascule.app.settings import Settings
from bascule.app.stores import Stores
from bascule.app.up import all_routes, parts_of
from bascule.asgi.errors import status_of
from bascule.asgi.guard import OPEN, GuardedRoute
from bascule.audit.approvals import Approvals, MemoryStore
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.auth.memory_token_store import MemoryTokenStore
from bascule.auth.tokens import KEY_BYTES, Tokens
from bascule.clock import SYSTEM_CLOCK
from bascule.control.registry.service import RegistryService
from bascule.control.registry.sqlite_store import SqliteStore
from bascule.control.registry.status import CombinedStatus
from bascule.control.registry.store import View
from bascule.control.secret_keys import KeyFile, Keys
from bascule.control.secret_store import SqliteSecretStore
from bascule.control.secrets import Secrets
from bascule.control.web.page import PATHS as PAGE_PATHS
from bascule.manager.fleet import AgentFleet
from bascule.model.call import Progress
from bascule.model.kinds import CLASSES, COLLECTIONS, KINDS, Kind
from bascule.wire.api.audit import VerifyProgress
from bascule.wire.api.errors import Error
from bascule.wire.api.records import LISTS, WRITTEN, Beside
from bascule.wire.api.tools import WaitingBody
from checks.openapi_agents import AGENT_ROUTES
from checks.openapi_audit import AUDIT_ROUTES
from checks.openapi_catalogue import CATALOGUE
from checks.openapi_guests import GUEST_ROUTES, GUEST_SHAPES
from checks.openapi_live import LIVE_ROUTES, LIVE_SHAPES
from checks.openapi_login import LOGIN_ROUTES
from checks.openapi_reads import with_reads
from checks.openapi_routes import REFS, TEXT, Exchange, Schema, exchanges, ref, shown, structs_of
from checks.openapi_writes import SHAPES, with_writes

Document: TypeAlias = dict[str, Any]

#: The chat door speaks OpenAI's own API, and the gateway MCP: both are described elsewhere.
DOORS_APART = ("/v1", "/mcp")
_MEANINGS = {200: "done", 201: "created", 304: "unchanged"}


def render() -> str:
    """Return the document as the text of a file."""
    return msgspec.json.format(msgspec.json.encode(document()), indent=2).decode() + "\n"


def document() -> Document:
    """Return the document, as plain values."""
    return describe(asyncio.run(routes_of_a_process()))


async def routes_of_a_process() -> list[GuardedRoute]:
    """Return the routes of ``bascule up`` but those of doors apart, over nothing at all."""
    service = RegistryService(SqliteStore(""), View("", 0, {}))
    tokens = Tokens(MemoryTokenStore(), bytes(KEY_BYTES), SYSTEM_CLOCK)
    files = Reloading(service, Settings(), None, lambda _: None)
    ledger = SqliteLedger(Path(), key=bytes(KEY_BYTES))  # which is opened at a start only
    keys = Keys(KeyFile(Path()))
    secrets = Secrets(SqliteSecretStore(Path()), keys, note=ledger.note)
    stores = Stores(
        service=service,
        files=files,
        tokens=tokens,
        secrets=secrets,
        kept=ledger,
        approvals=Approvals(MemoryStore()),
    )
    async with parts_of(Settings(), stores) as parts:
        whole = replace(parts, agents=AgentFleet("agents.toml"))
        api = [route for route in all_routes(whole) if route.path not in PAGE_PATHS]
        return [route for route in api if not route.path.startswith(DOORS_APART)]


def describe(routes: Iterable[GuardedRoute]) -> Document:
    """Describe routes; raise KeyError for one that the table does not have."""
    known = _known()
    described: list[Exchange] = []
    paths: dict[str, Document] = {}
    for one in routes:
        for method in sorted(one.verbs):
            exchange = known[method, one.path_format]
            described.append(exchange)
            operation = _operation(one, method, exchange)
            paths.setdefault(one.path_format, {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Bascule", "version": "1"},
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "responses": _refusals(described),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


@cache
def _known() -> Mapping[tuple[str, str], Exchange]:
    """Return what every route takes and gives, by method and address."""
    parts = (AGENT_ROUTES, AUDIT_ROUTES, GUEST_ROUTES, LIVE_ROUTES, LOGIN_ROUTES, CATALOGUE)
    rest = dict(chain.from_iterable(one.items() for one in parts))
    return with_reads(with_writes(dict(exchanges())) | rest)


# --- schemas


@cache
def _schemas() -> dict[str, Schema]:
    """Return the schema of every struct that is exchanged, by its name; whatever is described."""
    known = _known().values()
    taken = {one.body for one in known if isinstance(one.body, type)} | {*CLASSES.values()}
    given = {kind for one in known for body in one.answers.values() for kind in structs_of(body)}
    given |= {Error, Beside, CombinedStatus, *LISTS.values(), *WRITTEN.values()}
    given |= {Progress, VerifyProgress, WaitingBody, *SHAPES, *LIVE_SHAPES, *GUEST_SHAPES}
    types = sorted(taken | given, key=lambda kind: kind.__name__)
    _, found = msgspec.json.schema_components(types, ref_template=REFS + "{name}")
    for kind in _structs(given) - _structs(taken):
        _require_all(kind, found[kind.__name__])
    for kind in KINDS:
        _name_records(kind, found)
    return dict(sorted(found.items()))


def _require_all(kind: type[Struct], schema: Schema) -> None:
    """Say that an answer has all of its fields, those with a default too."""
    if not kind.__struct_config__.omit_defaults:
        fields = msgspec.structs.fields(kind)
        schema["required"] = [f.encode_name for f in fields if f.default is not UNSET]


def _name_records(kind: Kind, found: dict[str, Schema]) -> None:
    """Say what the plain values in lists and answers are: records, and what stands beside them."""
    name = kind.title()
    beside = [ref(Beside)]
    if kind == "server":
        status = {"status": ref(CombinedStatus)}
        beside.append({"type": "object", "properties": status, "required": ["status"]})
    found[f"{name}Shown"] = {"allOf": [ref(CLASSES[kind]), *beside]}
    found[f"{name}Written"]["properties"][kind] = shown(kind)
    found[f"{name}List"]["properties"][COLLECTIONS[kind]]["items"] = shown(kind)


def _structs(types: Iterable[type]) -> set[type[Struct]]:
    """Return the structs among some types and all that they are made of."""
    found: set[type[Struct]] = set()
    left: list[object] = list(msgspec.inspect.multi_type_info(types))
    while left:
        one = left.pop()
        if isinstance(one, msgspec.inspect.StructType) and one.cls in found:
            continue
        if isinstance(one, msgspec.inspect.StructType):
            found.add(one.cls)
        if isinstance(one, msgspec.inspect.Type | msgspec.inspect.Field):
            left += [getattr(one, name) for name in one.__struct_fields__ if name != "default"]
        elif isinstance(one, tuple):
            left += one
    return found


def _refusals(described: Iterable[Exchange]) -> Document:
    """Describe every refusal once, by its status."""
    codes: dict[int, set[str]] = {}
    for exchange in described:
        for code in exchange.refusals:
            codes.setdefault(status_of(code), set()).add(code)
    content = {"application/json": {"schema": ref(Error)}}
    return {
        f"Refused{status}": {"description": ", ".join(sorted(named)), "content": content}
        for status, named in sorted(codes.items())
    }


# --- operations


def _operation(one: GuardedRoute, method: str, exchange: Exchange) -> Document:
    operation: Document = {
        "operationId": _name(method, one.path_format),
        "summary": (inspect.getdoc(one.endpoint) or "").partition("\n")[0],
        "parameters": list(_parameters(one, exchange)),
        "responses": dict(_responses(exchange)),
    }
    if one.access != OPEN:
        operation |= {"security": [{"token": []}], "x-permission": one.access}
    if exchange.body is not None:
        content = {kind: {"schema": ref(exchange.body)} for kind in one.body.media_types}
        operation["requestBody"] = {"required": not exchange.optional, "content": content}
    return operation


def _name(method: str, path: str) -> str:
    words = path.replace("{", "").replace("}", "").strip("/").split("/")
    return "_".join([method.lower(), *words])


def _parameters(one: GuardedRoute, exchange: Exchange) -> Iterator[Document]:
    for name in one.param_convertors:
        yield {"name": name, "in": "path", "required": True, "schema": TEXT}
    for place, named in (("query", exchange.query), ("header", exchange.headers)):
        for name, schema in named.items():
            needed = name in exchange.needed
            yield {"name": name, "in": place, "required": needed, "schema": schema}


def _responses(exchange: Exchange) -> Iterator[tuple[str, Document]]:
    for status, body in exchange.answers.items():
        answer: Document = {"description": _MEANINGS[status]}
        if body is not None:
            bodies = {exchange.media_type: body, **exchange.also}
            answer["content"] = {kind: {"schema": ref(one)} for kind, one in bodies.items()}
        if exchange.tagged:
            answer["headers"] = {"ETag": {"schema": TEXT}}
        yield str(status), answer
    refused = {status_of(code) for code in exchange.refusals}
    for status in sorted({*refused, *exchange.fallible}):
        yield str(status), _failed(exchange, status, refused=status in refused)


def _failed(exchange: Exchange, status: int, *, refused: bool) -> Document:
    """Describe an answer that is not a success: a refusal, a failed outcome, or either."""
    if status not in exchange.fallible:
        return {"$ref": f"#/components/responses/Refused{status}"}
    outcome = ref(exchange.answers[200])
    schema = {"anyOf": [outcome, ref(Error)]} if refused else outcome
    return {
        "description": "the outcome of a call that failed",
        "content": {exchange.media_type: {"schema": schema}},
    }
