"""The routes of the tools API.

A call's answer is the outcome, whatever came of it; its status is the one that the error table
gives the outcome's code. A caller who accepts ``text/event-stream`` is told of progress before it.
A caller who hangs up ends the call, and takes back the question that it waits for. On every route
of tools the ``X-Bascule-*`` headers narrow the session, and ``X-Bascule-User`` says for whom it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bascule.asgi.errors import Refused
from bascule.asgi.guard import GuardedRoute, direct_route, route
from bascule.asgi.head import head_of
from bascule.asgi.json import as_object, as_struct, json_response, read_as, read_body, send_json
from bascule.asgi.long_poll import long_poll
from bascule.asgi.narrowing import narrowing_in
from bascule.asgi.parameters import (
    flag,
    milliseconds,
    no_parameters,
    number,
    only_parameters,
    word,
)
from bascule.asgi.presence import while_connected
from bascule.asgi.speaker import speaker
from bascule.asgi.sse import EventStream
from bascule.asgi.whoami import identity_route
from bascule.auth.identity import Principal
from bascule.client.approval_times import body_of
from bascule.clock import SYSTEM_CLOCK, Clock, rfc3339
from bascule.doors.questions import Questions
from bascule.doors.sessions import Sessions
from bascule.doors.tools.progress import told
from bascule.model.approval import Approval
from bascule.model.explanation import Explanation
from bascule.model.json import JsonObject
from bascule.model.outcome import Outcome
from bascule.model.tool import ToolDescriptor
from bascule.node.bridge.own_call import note_own
from bascule.node.bridge.session import Session
from bascule.node.bridge.toolset import ToolSet, harmless
from bascule.policy.characters import neutralise
from bascule.wire.api.tools import (
    MAX_WAIT_MS,
    AskedBody,
    CallBody,
    DecidedBody,
    OutputBody,
    OwnCallBody,
    OwnCallNoted,
    SessionBody,
    ToolBody,
    ToolsBody,
)
from bascule.wire.faults import face

_PLACE_DIGITS = 12
_NOT_FOUND = 404


def tools_routes(
    sessions: Sessions,
    approvals: Questions | None = None,
    *,
    clock: Clock = SYSTEM_CLOCK,
    serves: Sequence[str] = (),
) -> list[GuardedRoute]:
    """Return the routes: for client tokens alone, but for one's own identity."""
    door = ToolsDoor(sessions, approvals, clock)
    return [
        identity_route(lambda: sessions.position, serves),
        route("/api/v1/tools", door.tools, ["GET"], permission="tools:use"),
        route("/api/v1/tools/session", door.session, ["GET"], permission="tools:use"),
        direct_route("/api/v1/tools/call", door.call, ["POST"], permission="tools:use"),
        route("/api/v1/tools/own", door.own, ["POST"], permission="tools:use"),
        route("/api/v1/tools/explain", door.explain, ["GET"], permission="tools:use"),
        route("/api/v1/tools/output", door.output, ["GET"], permission="tools:use"),
        route("/api/v1/approvals/{id}", door.approval, ["GET"], permission="tools:use"),
    ]


class ToolsDoor:
    """The endpoints."""

    def __init__(self, sessions: Sessions, approvals: Questions | None, clock: Clock) -> None:
        self._sessions = sessions
        self._approvals = approvals
        self._clock = clock

    async def tools(self, request: Request) -> Response:
        """List the tools; ``explain`` adds the decisions, ``definitions`` what servers listed."""
        only_parameters(request, "explain", "definitions")
        explain, definitions = flag(request, "explain"), flag(request, "definitions")
        async with self._looking(request.scope) as session:
            found = await while_connected(request.scope, request.receive, session.tools())
            explanations = session.explanations() if explain else UNSET
        return json_response(tools_body(found, explanations, definitions=definitions))

    async def session(self, request: Request) -> Response:
        """Say what a conversation of the session may spend; this starts no server."""
        no_parameters(request.scope)
        async with self._looking(request.scope) as session:
            budgets = await session.budgets()
        return json_response(SessionBody(revision=session.revision, budgets=budgets))

    async def call(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call a tool, and say how it goes if that is asked for."""
        no_parameters(scope)
        body = _call_body(await as_object(await read_body(receive)))
        if head_of(scope).accepts(b"text/event-stream"):
            async with self._session(scope):
                pass  # what is refused is refused before the stream begins
            stream = EventStream(told(self._session(scope), body), self._clock, finishes=True)
            await stream(scope, receive, send)
            return
        async with self._session(scope) as session:
            work = session.call(
                body.name, body.arguments, limits=body.limits, approval=body.asking()
            )
            outcome = await while_connected(scope, receive, work)
        await _tell(outcome, body, scope, send)

    async def own(self, request: Request) -> Response:
        """Write down a call of a tool of the caller's own, which ran where the caller is."""
        no_parameters(request.scope)
        body = await read_as(request, OwnCallBody)
        async with self._session(request.scope) as session:
            call = note_own(session, body)
        return json_response(OwnCallNoted(request_id=call.request_id, revision=call.revision))

    async def explain(self, request: Request) -> Response:
        """Explain a tool or a server by name."""
        name = word(request, "name")
        if not name:
            raise Refused("invalid_request", "say which tool or server: ?name=…")
        async with self._looking(request.scope) as session:
            await while_connected(request.scope, request.receive, session.look_up(name))
            explanation = session.explain(name)
        return json_response(explanation)

    async def output(self, request: Request) -> Response:
        """Read a part of an output that was cut."""
        handle = word(request, "handle")
        if not handle:
            raise Refused("invalid_request", "say which output: ?handle=…")
        start, end = _place(request, "start") or 0, _place(request, "end")
        async with self._looking(request.scope) as session:
            try:
                text = await session.output(handle, start, end)
            except KeyError:
                raise Refused("not_found", "no output is kept under this handle") from None
        return json_response(OutputBody(handle=handle, start=start, text=text))

    async def approval(self, request: Request) -> Response:
        """Say what became of a question, to whoever asked it; ``wait_ms`` waits for that."""
        only_parameters(request, "wait_ms")
        asking, wait_ms = (
            self._present(request.scope),
            milliseconds(request, "wait_ms", MAX_WAIT_MS),
        )
        approvals, id = self._approvals, request.path_params["id"]
        found = None if approvals is None else await approvals.current(id)
        if approvals is None or found is None or not _asked(found, asking):
            raise Refused("not_found", "there is no such approval, or you have not asked for it")
        if wait_ms and found.state == "pending":
            await long_poll(request, approvals.settled(id, wait_ms / 1000))
            found = await approvals.current(id) or found
        return json_response(_asked_body(found))

    def _present(self, scope: Scope) -> Principal:
        """Return who asks, for whom; raise SessionRefused for people who may do nothing now."""
        asking = speaker(scope)
        self._sessions.refuse_absent(asking)
        return asking

    def _looking(self, scope: Scope) -> AbstractAsyncContextManager[Session]:
        return self._sessions.of(self._present(scope), *narrowing_in(scope))

    def _session(self, scope: Scope) -> AbstractAsyncContextManager[Session]:
        return self._sessions.of(speaker(scope), *narrowing_in(scope))


def _asked(approval: Approval, by: Principal) -> bool:
    return (approval.call.token_id, approval.call.person) == by.owner


def _asked_body(approval: Approval) -> AskedBody:
    decided = approval.decided
    return AskedBody(
        id=approval.id,
        state=approval.state,
        expires_at=rfc3339(approval.expires_at),
        server=approval.call.server_id,
        tool=approval.call.tool_name,
        reason=approval.reason,
        decided=None
        if decided is None
        else DecidedBody(by=decided.by, at=rfc3339(decided.at), reason=decided.reason),
    )


def _call_body(plain: JsonObject) -> CallBody:
    """Return a body; only one that is wrong is read again, slowly, for all of its problems."""
    try:
        return msgspec.convert(plain, CallBody)
    except msgspec.ValidationError:
        return as_struct(plain, CallBody)


async def _tell(outcome: Outcome, call: CallBody, scope: Scope, send: Send) -> None:
    body = body_of(outcome)
    if outcome.error is None:
        await send_json(scope, send, body)
        return
    after = outcome.error.retry_after
    headers = () if after is None else ((b"retry-after", b"%d" % math.ceil(after)),)
    status = _NOT_FOUND if _is_stranger(outcome, call) else face(outcome.error.code).http
    await send_json(scope, send, body, status, headers)


def _is_stranger(outcome: Outcome, call: CallBody) -> bool:
    """Say whether a call named an approval that there is not, or that somebody else has."""
    error = outcome.error
    if call.approval_id is None or error is None or error.code != "mcp_approval_denied":
        return False
    return "approval_id" not in (error.details or {})


def tools_body(
    tools: ToolSet,
    explanations: tuple[Explanation, ...] | UnsetType = UNSET,
    *,
    definitions: bool = False,
) -> ToolsBody:
    """Return a tool set as it is sent, its prose made harmless for a model."""
    return ToolsBody(
        revision=tools.revision,
        tools=tuple(_tool(tool, definitions=definitions) for tool in tools),
        warnings=tools.warnings,
        explanations=explanations,
    )


def _tool(tool: ToolDescriptor, *, definitions: bool) -> ToolBody:
    return ToolBody(
        name=tool.model_name,
        description=neutralise(tool.description).text,
        input_schema=harmless(tool.input_schema),
        server=tool.server_id,
        tool=tool.name,
        output_schema=harmless(tool.output_schema),
        annotations=harmless(tool.annotations),
        digest=tool.digest,
        definition=harmless(tool.definition) if definitions else {},
    )


def _place(request: Request, name: str) -> int | None:
    return number(request, name, digits=_PLACE_DIGITS, wanted="a number of bytes from 0 on")
