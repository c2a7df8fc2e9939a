"""Streamable HTTP for the gateway: raw ASGI, one parse and one write for each usual request.

``POST`` carries a message, ``GET`` listens in a legacy session, ``DELETE`` ends one. No request or
response object is made, and no task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from starlette.types import Receive, Scope, Send

from bascule.asgi.cors import preflight_route
from bascule.asgi.errors import ClientGone, Refused
from bascule.asgi.guard import BodyRule, GuardedRoute, direct_route
from bascule.asgi.head import Head, head_of
from bascule.asgi.json import read_body
from bascule.asgi.narrowing import narrowing_in
from bascule.asgi.presence import while_connected
from bascule.asgi.speaker import speaker
from bascule.doors.gateway.caller import Caller
from bascule.doors.gateway.calls import Call
from bascule.doors.gateway.errors import cut_off, rpc_error, told
from bascule.doors.gateway.gateway import Gateway, no_server
from bascule.doors.gateway.generation import (
    capabilities_of,
    check_legacy_version,
    check_notice,
    is_modern,
)
from bascule.doors.gateway.listening import LISTEN
from bascule.doors.gateway.messages import (
    Message,
    RpcError,
    error_frame,
    read_message,
)
from bascule.doors.gateway.reply import Http, Reply, send_frame
from bascule.doors.gateway.session_ids import UnknownSession
from bascule.doors.gateway.views import ALL_SERVERS, View, is_server_id, one_server
from bascule.doors.gateway.wishes import wants_news
from bascule.model.json import JsonObject
from bascule.wire.api.addresses import GATEWAY
from bascule.wire.era import LEGACY, MODERN
from bascule.wire.frames import RequestId, response
from bascule.wire.rpc_codes import INVALID_REQUEST, SERVER_ERROR

MAX_BODY_BYTES = 4 * 1024 * 1024
_METHODS = ("POST", "GET", "DELETE")
#: What clients send; a browser lets them send nothing else.
_HEADERS = (
    *("Authorization", "Content-Type", "Accept", "Last-Event-ID", "Mcp-Session-Id"),
    *("MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Param-*", "X-Bascule-*"),
)
_SESSION = b"mcp-session-id"
_STREAM = b"text/event-stream"
_JSON_TYPES = (b"application/json", b"*/*", b"application/*")
_STREAM_TYPES = (_STREAM, b"*/*", b"text/*")
#: What SDKs answer with where a session is gone; clients go by the status.
_NO_SESSION = -32001
_ACCEPTED, _NO_CONTENT = 202, 204
_BAD_REQUEST, _NOT_FOUND, _NOT_ALLOWED, _NOT_ACCEPTABLE = 400, 404, 405, 406
_ONE_SERVER = f"{GATEWAY}/servers/{{id}}"
#: Clients take a 404 for a lost session, so an address with a slash at its end is as good.
_PATHS = (GATEWAY, f"{GATEWAY}/", _ONE_SERVER, f"{_ONE_SERVER}/")


def gateway_routes(gateway: Gateway, origins: Collection[str] = ()) -> list[GuardedRoute]:
    """Return the routes: for client tokens alone, and in browsers for pages of these origins."""
    door, body = GatewayDoor(gateway), BodyRule(max_bytes=MAX_BODY_BYTES)
    routes: list[GuardedRoute] = []
    for path in _PATHS:
        served = direct_route(
            path, door, _METHODS, permission="tools:use", body=body, errors=rpc_error
        )
        asked = preflight_route(path, _METHODS, _HEADERS, origins=origins, errors=rpc_error)
        routes += [served.shared_with(origins), asked]
    return routes


class GatewayDoor:
    """The endpoint of both routes."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._verbs = {"POST": self._post, "GET": self._get, "DELETE": self._delete}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; what is refused is refused as JSON-RPC says it."""
        verb = self._verbs.get(scope["method"])
        if verb is None:  # HEAD, which routes take along with GET
            allow = ", ".join(_METHODS)
            raise Refused("method_not_allowed", f"use one of: {allow}", headers={"Allow": allow})
        try:
            await verb(scope, receive, send)
        except RpcError as error:
            await _send_error(scope, send, error, modern=True)

    async def _post(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = head_of(scope)
        _check_accept(head, _JSON_TYPES)
        message = await read_message(await read_body(receive))
        id, modern = message.id, is_modern(head, message)
        try:
            caller = self._caller(scope, head, message, modern=modern)
            if id is None:
                self._gateway.hear(caller, message)
                await send_frame(scope, send, b"", _ACCEPTED)
            elif message.method == "tools/call":
                await self._call(caller, id, message.params, (scope, receive, send))
            elif message.method == LISTEN and modern:
                _check_accept(head, _STREAM_TYPES)
                await self._gateway.listen(caller, id, message.params, (scope, receive, send))
            elif message.method == "initialize" and not modern:
                session_id, result = await self._gateway.open(caller, message.params)
                own = ((_SESSION, session_id.encode("ascii")),)
                await send_frame(scope, send, response(id, result), headers=own)
            else:
                result = await self._gateway.answer(caller, message)
                await send_frame(scope, send, response(id, result))
        except RpcError as error:
            await _send_error(scope, send, error, id, modern=modern)

    async def _get(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = self._in_session(scope)
        _check_accept(caller.head, _STREAM_TYPES)
        await self._gateway.follow(caller, (scope, receive, send))

    async def _delete(self, scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        self._gateway.close(self._in_session(scope))
        await send_frame(scope, send, b"", _NO_CONTENT)

    async def _call(self, caller: Caller, id: RequestId, params: JsonObject, http: Http) -> None:
        """Make a call. Who hangs up ends a modern one; a legacy one goes on to its deadline."""
        scope, receive, send = http
        wanted = wants_news(params.get("_meta"))
        reply = Reply(scope, send, streams=caller.streams, wanted=wanted)
        call, status = self._gateway.calls.enter(caller, id), 200
        reply.watch()
        try:
            work = self._gateway.call(caller, params, reply)
            result = await (while_connected(scope, receive, work) if caller.modern else work)
            frame = response(id, result)
        except BaseException as error:
            refusal = _refusal(error, call, reply, scope)
            if refusal is None:
                reply.abandon()
                raise
            frame, status = error_frame(refusal, id), refusal.status_for(modern=caller.modern)
        finally:
            self._gateway.calls.leave(call)
        await reply.finish(frame, status)

    def _caller(self, scope: Scope, head: Head, message: Message, *, modern: bool) -> Caller:
        """Return who speaks; raise RpcError where a request does not say it rightly."""
        if not modern and message.method != "initialize":
            return self._legacy(scope, head)
        principal, view = speaker(scope), _view(scope)
        capabilities: frozenset[str] = frozenset()
        if modern and message.id is not None:
            capabilities = capabilities_of(head, message)
        elif modern:
            check_notice(head, message)
        return Caller(
            principal=principal,
            view=view,
            requests=(*view.requests, *narrowing_in(scope)),
            version=MODERN if modern else LEGACY[0],
            modern=modern,
            capabilities=capabilities,
            streams=head.accepts(_STREAM),
            head=head,
            scheme=scope["scheme"],
        )

    def _in_session(self, scope: Scope) -> Caller:
        head = head_of(scope)
        if not head.fields.get(_SESSION):
            raise _no_stream()
        return self._legacy(scope, head)

    def _legacy(self, scope: Scope, head: Head) -> Caller:
        """Return who speaks in a session; raise RpcError where there is none of theirs."""
        principal, view = speaker(scope), _view(scope)
        text = head.fields.get(_SESSION, b"").decode("latin-1")
        if _SESSION not in head.fields or _SESSION in head.repeated:
            words = (
                "Mcp-Session-Id: one is needed; initialize gives it "
                f"(or speak {MODERN}, which has no sessions)"
            )
            raise RpcError(INVALID_REQUEST, words, status=_BAD_REQUEST)
        check_legacy_version(head)
        try:
            birth = self._gateway.ids.open(text, view.route, principal)
        except UnknownSession:
            words = "the session is not known here, or has ended: initialize again"
            raise RpcError(_NO_SESSION, words, status=_NOT_FOUND) from None
        narrowed = narrowing_in(scope)
        again = () if narrowed == birth.narrowing else narrowed
        return Caller(
            principal=principal,
            view=view,
            requests=(*view.requests, *birth.narrowing, *again),
            version=birth.version,
            modern=False,
            capabilities=frozenset(birth.capabilities),
            streams=head.accepts(_STREAM),
            head=head,
            scheme=scope["scheme"],
            session_id=text,
            born=birth.born if birth.process == self._gateway.ids.process else 0,
        )


def _refusal(error: BaseException, call: Call, reply: Reply, scope: Scope) -> RpcError | None:
    """Return what is told of a call that ended so; None where it is not for the call to tell."""
    if isinstance(error, RpcError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return call.reason_of(error) or cut_off(scope)
    if not reply.begun or not isinstance(error, Exception) or isinstance(error, ClientGone):
        return None
    return told(error, scope)


def _view(scope: Scope) -> View:
    named = scope.get("path_params")
    if not named:
        return ALL_SERVERS
    if not is_server_id(named["id"]):
        raise no_server()
    return one_server(named["id"])


def _check_accept(head: Head, types: Sequence[bytes]) -> None:
    accepted = head.fields.get(b"accept", types[0])
    if types[0] not in accepted and not any(one in accepted.lower() for one in types):
        wanted = types[0].decode()
        words = f"Accept: must name {wanted} (name application/json, text/event-stream always)"
        raise RpcError(SERVER_ERROR, words, status=_NOT_ACCEPTABLE)


def _no_stream() -> RpcError:
    words = (
        "there is no stream without a session (Mcp-Session-Id): POST initialize first. The older "
        "transport of two endpoints (HTTP+SSE of 2024) is not served"
    )
    return RpcError(SERVER_ERROR, words, status=_NOT_ALLOWED)


async def _send_error(
    scope: Scope, send: Send, error: RpcError, id: RequestId | None = None, *, modern: bool
) -> None:
    """Answer with an error, and with a header that says when to try again if the error does."""
    after = (error.data or {}).get("retry_after")
    own = ((b"retry-after", b"%d" % after),) if isinstance(after, int) else ()
    status = error.status_for(modern=modern)
    await send_frame(scope, send, error_frame(error, id), status, own)
