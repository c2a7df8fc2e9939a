"""The whole API of ``bascule up`` in OpenAPI 3.1, from the routes and types that serve it.

The registry and the agents describe their own routes; what the tools API, health and reloading take
and give is the table here. The routes of agents are there with ``--agents`` alone.

Below: ``bascule.asgi.openapi``. Above: ``docs/openapi.json`` is this, committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeAlias, get_args

import msgspec

from bascule.app.data_dir import INSTANCE_PATH
from bascule.app.reload import RESCAN_PATH, Reloading
from bascule.app.settings import Settings
from bascule.app.up import all_routes, parts_of
from bascule.asgi.guard import GuardedRoute
from bascule.asgi.openapi import (
    ANYBODY,
    NULLABLE,
    READ,
    REFS,
    TEXT,
    WRITE,
    Exchange,
    Schema,
    document,
    list_of,
    object_of,
    ref,
)
from bascule.asgi.whoami import PATH as IDENTITY_PATH
from bascule.asgi.whoami import Identity
from bascule.auth.tokens import KEY_BYTES, MemoryTokenStore, Tokens
from bascule.clock import SYSTEM_CLOCK
from bascule.control.api import openapi as registry
from bascule.control.api.openapi import REVISION
from bascule.control.registry.service import RegistryService
from bascule.control.registry.sqlite_store import SqliteStore
from bascule.control.registry.store import View
from bascule.doors.agents import openapi as agents
from bascule.doors.health import Health
from bascule.manager.config import McpServerConfig
from bascule.manager.fleet import AgentFleet
from bascule.model.code import ErrorCode
from bascule.model.outcome import Failure, Truncation
from bascule.wire.api.tools import CallBody
from bascule.wire.faults import face
from bascule.wire.narrowing import FLAGS, LISTS, NUMBERS

Pairs: TypeAlias = Iterator[tuple[tuple[str, str], Exchange]]

_TOOLS = "/api/v1/tools"
#: The chat door speaks OpenAI's own API, which is described elsewhere.
MODEL_DOOR = "/v1"
_TYPES = (Identity, Health, CallBody, Failure, Truncation, McpServerConfig)
_SWITCH: Schema = {"type": "boolean"}
_PLACE: Schema = {"type": "integer", "minimum": 0, "maximum": 10**12 - 1}
_NAME: Schema = {"type": "string", "minLength": 1}
_ANYTHING: Schema = {}
#: What narrows a session, on every route of the tools API.
_NARROWING: dict[str, Schema] = {
    **{name: {"type": "boolean"} for name in FLAGS},
    **{name: {**TEXT, "pattern": "^[1-9][0-9]{0,7}$"} for name in NUMBERS},
    **{name: {**TEXT, "pattern": "^([^%]|%[0-9A-Fa-f]{2})*$"} for name in LISTS},
}


def render() -> str:
    """Return the description of the process as the text of a file."""
    described = describe(asyncio.run(routes_of_a_process()))
    return msgspec.json.format(msgspec.json.encode(described), indent=2).decode() + "\n"


def describe(routes: list[GuardedRoute]) -> dict[str, Any]:
    """Describe routes; raise KeyError for one that nobody described."""
    return document(routes, [*registry.exchanges(), *_exchanges()], _schemas())


async def routes_of_a_process() -> list[GuardedRoute]:
    """Return the routes of ``bascule up`` but the chat door's, over nothing at all."""
    service = RegistryService(SqliteStore(""), View("", 0, {}))
    tokens = Tokens(MemoryTokenStore(), bytes(KEY_BYTES), SYSTEM_CLOCK)
    files = Reloading(service, Settings(), None, lambda _: None)
    async with parts_of(Settings(), service, files, tokens) as parts:
        whole = replace(parts, agents=AgentFleet("agents.toml"))  # which is read at a start only
        return [route for route in all_routes(whole) if not route.path.startswith(MODEL_DOOR)]


def _schemas() -> dict[str, Any]:
    _, found = msgspec.json.schema_components(_TYPES, ref_template=REFS + "{name}")
    own = {"Tools": _tool_set(), "Outcome": _outcome(), "Explanation": _explanation()}
    return {**registry.schemas(), **agents.schemas(), **found, **own}


# --- what each route takes and gives


def _exchanges() -> Pairs:
    yield ("POST", RESCAN_PATH), _rescan()
    yield ("GET", IDENTITY_PATH), _identity()
    yield ("GET", INSTANCE_PATH), _instance()
    yield from _tools()
    yield from agents.exchanges(ref(McpServerConfig))
    yield from _health()


def _rescan() -> Exchange:
    lines = list_of(TEXT)
    answer = object_of(
        revision=REVISION, changed=_SWITCH, diff=lines, problems=lines, warnings=lines
    )
    refusals = (*WRITE, "invalid_record", "store_unavailable")
    return Exchange(answers={200: answer}, refusals=refusals, query={"dry_run": _SWITCH})


def _identity() -> Exchange:
    summary = "Say whose token this is, and where the registry stands."
    return Exchange(answers={200: ref(Identity)}, refusals=READ, summary=summary)


def _instance() -> Exchange:
    return Exchange(
        answers={200: object_of(proof=TEXT)},
        refusals=(*ANYBODY, "invalid_request", "not_found"),
        query={"nonce": {"type": "string", "pattern": "^[0-9a-f]{64}$"}},
        needed=("nonce",),
        summary="Prove that the process holds the lock of its data directory.",
    )


def _tools() -> Pairs:
    refusals = (*READ, "session_refused")
    yield (
        ("GET", _TOOLS),
        Exchange(
            answers={200: ref("Tools")},
            refusals=refusals,
            query={"explain": _SWITCH, "definitions": _SWITCH},
            headers=_NARROWING,
        ),
    )
    yield ("POST", f"{_TOOLS}/call"), _call()
    yield (
        ("GET", f"{_TOOLS}/explain"),
        Exchange(
            answers={200: ref("Explanation")},
            refusals=refusals,
            query={"name": _NAME},
            needed=("name",),
            headers=_NARROWING,
        ),
    )
    part = object_of(handle=TEXT, start=_PLACE, text=TEXT)
    yield (
        ("GET", f"{_TOOLS}/output"),
        Exchange(
            answers={200: part},
            refusals=(*refusals, "not_found"),
            query={"handle": _NAME, "start": _PLACE, "end": _PLACE},
            needed=("handle",),
            headers=_NARROWING,
        ),
    )


def _call() -> Exchange:
    failed = sorted({face(code).http for code in get_args(ErrorCode)} - {200})
    return Exchange(
        answers={200: ref("Outcome")},
        refusals=(*WRITE, "invalid_record", "session_refused"),
        body=ref(CallBody),
        headers=_NARROWING,
        fallible=tuple(failed),
    )


def _health() -> Pairs:
    ready = object_of(status={"const": "ready"})
    summaries = (
        "Say how the process is.",
        "Say whether the process serves and can write.",
        "Give the figures.",
    )
    health, readiness, figures = summaries
    yield (
        ("GET", "/healthz"),
        Exchange(answers={200: ref(Health)}, refusals=ANYBODY, summary=health),
    )
    yield (
        ("GET", "/readyz"),
        Exchange(answers={200: ready}, refusals=(*ANYBODY, "store_unavailable"), summary=readiness),
    )
    yield (
        ("GET", "/metrics"),
        Exchange(answers={200: TEXT}, refusals=READ, media_type="text/plain", summary=figures),
    )


# --- schemas


def _outcome() -> Schema:
    return object_of(
        ok=_SWITCH,
        text=TEXT,
        structured=_ANYTHING,
        content=list_of({"type": "object"}),
        error={"anyOf": [ref(Failure), {"type": "null"}]},
        truncated={"anyOf": [ref(Truncation), {"type": "null"}]},
        request_id=TEXT,
        revision=REVISION,
    )


def _explanation() -> Schema:
    return object_of(
        name=TEXT,
        server=NULLABLE,
        tool=NULLABLE,
        allowed=_SWITCH,
        layer=TEXT,
        reason=TEXT,
        meaning=TEXT,
        rule=NULLABLE,
        notes=list_of(TEXT),
        blocked_by=list_of(object_of(layer=TEXT, reason=TEXT, meaning=TEXT, rule=TEXT)),
        filters={"anyOf": [_filters(), {"type": "null"}]},
        revision=REVISION,
    )


def _filters() -> Schema:
    """Describe the tool filters of all layers over one server, and what they come to."""
    lists = {"deny": list_of(TEXT), "read_only": _SWITCH}
    own = {"anyOf": [list_of(TEXT), {"type": "null"}]}
    layer = object_of(layer=TEXT, source=TEXT, allow=own, **lists)
    return object_of(layers=list_of(layer), merged=object_of(allow=list_of(TEXT), **lists))


def _tool_set() -> Schema:
    tool = object_of(
        name=TEXT,
        description=TEXT,
        input_schema={"type": "object"},
        server=TEXT,
        tool=TEXT,
    )
    plain = object_of(revision=REVISION, tools=list_of(tool), warnings=list_of(TEXT))
    plain["properties"]["explanations"] = list_of(ref("Explanation"))
    return plain
