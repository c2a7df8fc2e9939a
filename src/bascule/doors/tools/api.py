"""The routes of the tools API.

A call's answer is the outcome, whatever came of it; its status is the one that the error table
gives the outcome's code. A caller who accepts ``text/event-stream`` is told of progress before it.
A caller who hangs up ends the call. On every route the ``X-Bascule-*`` headers narrow the session.
Below: ``sessions.py``, ``shapes.py``, and the shared parts of ``bascule.asgi``. Above: the
composition roots mount the routes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.errors import Refused
from bascule.asgi.guard import GuardedRoute, route
from bascule.asgi.json import as_struct, json_response, read_object
from bascule.asgi.narrowing import narrowing
from bascule.asgi.parameters import only_parameters
from bascule.asgi.presence import while_connected
from bascule.asgi.whoami import identity_route
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.doors.tools.progress import CallStream, told
from bascule.doors.tools.sessions import Sessions
from bascule.doors.tools.shapes import outcome_object, tools_object
from bascule.model.call import CallLimits
from bascule.model.outcome import Outcome
from bascule.model.session import OutputBytes
from bascule.node.bridge.session import Session
from bascule.wire.faults import face

Milliseconds = Annotated[int, Meta(ge=1, le=86_400_000)]
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_PLACE_DIGITS = 12


class CallBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a caller sends: the tool by the name a model uses, its arguments, and own limits.

    ``max_tool_output_bytes`` is the record's name for ``max_output_bytes``: the lower one counts.
    """

    name: Annotated[str, Meta(min_length=1, max_length=512)]
    arguments: dict[str, Any] = {}
    timeout_ms: Milliseconds | None = None
    idle_timeout_ms: Milliseconds | None = None
    max_output_bytes: Annotated[int, Meta(ge=0, le=104_857_600)] | None = None
    max_tool_output_bytes: OutputBytes | None = None

    def limits(self) -> CallLimits:
        """Return the caller's own limits; they only lower what the record gives."""
        given = self.max_output_bytes, self.max_tool_output_bytes
        caps = [cap for cap in given if cap is not None]
        return CallLimits(
            timeout=_seconds(self.timeout_ms),
            idle_timeout=_seconds(self.idle_timeout_ms),
            max_output_bytes=min(caps, default=None),
        )


def tools_routes(sessions: Sessions, *, clock: Clock = SYSTEM_CLOCK) -> list[GuardedRoute]:
    """Return the routes: for client tokens alone, but for one's own identity."""
    door = ToolsDoor(sessions, clock)
    return [
        identity_route(lambda: sessions.position),
        route("/api/v1/tools", door.tools, ["GET"], permission="tools:use"),
        route("/api/v1/tools/call", door.call, ["POST"], permission="tools:use"),
        route("/api/v1/tools/explain", door.explain, ["GET"], permission="tools:use"),
        route("/api/v1/tools/output", door.output, ["GET"], permission="tools:use"),
    ]


class ToolsDoor:
    """The endpoints."""

    def __init__(self, sessions: Sessions, clock: Clock) -> None:
        self._sessions = sessions
        self._clock = clock

    async def tools(self, request: Request) -> Response:
        """List the tools; ``explain`` adds the decisions, ``definitions`` what servers listed."""
        only_parameters(request, "explain", "definitions")
        explain, definitions = _flag(request, "explain"), _flag(request, "definitions")
        async with self._session(request) as session:
            found = await while_connected(request.receive, session.tools())
            explanations = session.explanations() if explain else None
        return json_response(tools_object(found, explanations, definitions=definitions))

    async def call(self, request: Request) -> Response:
        """Call a tool, and say how it goes if that is asked for."""
        only_parameters(request)
        body = _call_body(await read_object(request))
        if "text/event-stream" in request.headers.get("accept", ""):
            return await self._call_with_progress(request, body)
        limits = body.limits()
        async with self._session(request) as session:
            work = session.call(
                body.name,
                body.arguments,
                timeout=limits.timeout,
                idle_timeout=limits.idle_timeout,
                max_output_bytes=limits.max_output_bytes,
            )
            outcome = await while_connected(request.receive, work)
        return _answer(outcome)

    async def _call_with_progress(self, request: Request, body: CallBody) -> Response:
        async with self._session(request):
            pass  # what is refused is refused before the stream begins
        source = told(self._session(request), body.name, body.arguments, body.limits())
        return CallStream(source, self._clock)

    async def explain(self, request: Request) -> Response:
        """Explain a tool or a server by name."""
        name = _word(request, "name")
        if not name:
            raise Refused("invalid_request", "say which tool or server: ?name=…")
        async with self._session(request) as session:
            await while_connected(request.receive, session.look_up(name))
            explanation = session.explain(name)
        return json_response(explanation.plain())

    async def output(self, request: Request) -> Response:
        """Read a part of an output that was cut."""
        handle = _word(request, "handle")
        if not handle:
            raise Refused("invalid_request", "say which output: ?handle=…")
        start, end = _place(request, "start") or 0, _place(request, "end")
        async with self._session(request) as session:
            try:
                text = session.read_output(handle, start, end)
            except KeyError:
                raise Refused("not_found", "no output is kept under this handle") from None
        return json_response({"handle": handle, "start": start, "text": text})

    def _session(self, request: Request) -> AbstractAsyncContextManager[Session]:
        principal = request.scope["principal"]  # the guard lets nobody else come here
        return self._sessions.of(principal, *narrowing(request.headers))


def _call_body(plain: Mapping[str, Any]) -> CallBody:
    """Return a body; only one that is wrong is read again, slowly, for all of its problems."""
    try:
        return msgspec.convert(plain, CallBody)
    except msgspec.ValidationError:
        return as_struct(plain, CallBody)


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _answer(outcome: Outcome) -> Response:
    if outcome.error is None:
        return json_response(outcome_object(outcome))
    after = outcome.error.retry_after
    headers = {} if after is None else {"Retry-After": str(math.ceil(after))}
    return json_response(outcome_object(outcome), face(outcome.error.code).http, headers=headers)


# --- the query


def _word(request: Request, name: str) -> str | None:
    values = request.query_params.getlist(name)
    if len(values) > 1:
        raise _wrong(name, "is given more than once")
    return values[0] if values else None


def _flag(request: Request, name: str) -> bool:
    given = (_word(request, name) or "false").lower()
    if given not in _FLAGS:
        raise _wrong(name, "must be true or false")
    return _FLAGS[given]


def _place(request: Request, name: str) -> int | None:
    given = _word(request, name)
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= _PLACE_DIGITS):
        raise _wrong(name, "must be a number of bytes from 0 on")
    return int(given)


def _wrong(name: str, problem: str) -> Refused:
    return Refused("invalid_request", f"{name}: {problem}", details={"parameter": name})
