"""The routes of the tools API.

A call's answer is the outcome, whatever came of it; its status is the one that the error table
gives the outcome's code. A caller who hangs up ends the call. Below: ``sessions.py``, and the
shared parts of ``bascule.asgi``. Above: the composition roots mount the routes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.errors import Refused
from bascule.asgi.guard import GuardedRoute, route
from bascule.asgi.identity import Principal
from bascule.asgi.json import as_struct, json_response, read_object
from bascule.asgi.presence import while_connected
from bascule.doors.tools.sessions import Sessions
from bascule.model.outcome import Outcome
from bascule.node.bridge.toolset import ToolSet
from bascule.wire.faults import face


class CallBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a caller sends: the tool by the name a model uses, and its arguments."""

    name: Annotated[str, Meta(min_length=1, max_length=512)]
    arguments: dict[str, Any] = {}
    timeout_ms: Annotated[int, Meta(ge=1, le=86_400_000)] | None = None


def tools_routes(sessions: Sessions) -> list[GuardedRoute]:
    """Return the routes, each for client tokens alone."""

    async def tools(request: Request) -> Response:
        async with sessions.of(_principal(request)) as session:
            found = await while_connected(request.receive, session.tools())
        return json_response(tools_object(found))

    async def call(request: Request) -> Response:
        body = _call_body(await read_object(request))
        seconds = None if body.timeout_ms is None else body.timeout_ms / 1000
        async with sessions.of(_principal(request)) as session:
            work = session.call(body.name, body.arguments, timeout=seconds)
            outcome = await while_connected(request.receive, work)
        return _answer(outcome)

    async def explain(request: Request) -> Response:
        name = request.query_params.get("name")
        if not name:
            raise Refused("invalid_request", "say which tool or server: ?name=…")
        async with sessions.of(_principal(request)) as session:
            await while_connected(request.receive, session.tools())
            explanation = session.explain(name)
        return json_response(explanation.plain())

    return [
        route("/api/v1/tools", tools, ["GET"], permission="tools:use"),
        route("/api/v1/tools/call", call, ["POST"], permission="tools:use"),
        route("/api/v1/tools/explain", explain, ["GET"], permission="tools:use"),
    ]


def _call_body(plain: Mapping[str, Any]) -> CallBody:
    """Return a body; only one that is wrong is read again, slowly, for all of its problems."""
    try:
        return msgspec.convert(plain, CallBody)
    except msgspec.ValidationError:
        return as_struct(plain, CallBody)


def _principal(request: Request) -> Principal:
    principal: Principal = request.scope["principal"]  # the guard lets nobody else come here
    return principal


def _answer(outcome: Outcome) -> Response:
    if outcome.error is None:
        return json_response(outcome_object(outcome))
    after = outcome.error.retry_after
    headers = {} if after is None else {"Retry-After": str(math.ceil(after))}
    return json_response(outcome_object(outcome), face(outcome.error.code).http, headers=headers)


def tools_object(tools: ToolSet) -> dict[str, Any]:
    """Return a tool set as plain values, its prose made harmless for a model."""
    shown = zip(tools, tools.anthropic(), strict=True)
    return {
        "revision": tools.revision,
        "tools": [{**entry, "server": tool.server_id, "tool": tool.name} for tool, entry in shown],
        "warnings": list(tools.warnings),
    }


def outcome_object(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain values, the same fields whatever came of the call."""
    return {
        "ok": outcome.ok,
        "text": outcome.text,
        "structured": outcome.structured,
        "content": outcome.content,
        "error": msgspec.to_builtins(outcome.error),
        "truncated": outcome.truncated,
        "request_id": outcome.request_id,
        "revision": outcome.revision,
    }
