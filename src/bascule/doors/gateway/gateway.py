"""The gateway: the methods of both generations of MCP, over the bridge's sessions.

It knows nothing of HTTP: ``api.py`` says who speaks and where an answer goes. It decides nothing
either: what a caller sees and may call is the bridge's word, as at every other door.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

from bascule.auth.keys import KeyLabel
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.doors.gateway.caller import Caller
from bascule.doors.gateway.calls import Calls
from bascule.doors.gateway.generation import (
    SERVER_INFO,
    SERVER_META,
    ArgumentHeaders,
    capability_names,
    negotiated,
)
from bascule.doors.gateway.kept_outputs import NAME as READ_OUTPUT_NAME
from bascule.doors.gateway.kept_outputs import read_output
from bascule.doors.gateway.listening import Listening
from bascule.doors.gateway.lists import NOTHING, Lists
from bascule.doors.gateway.log_levels import LogLevels, level_of
from bascule.doors.gateway.messages import Message, RpcError
from bascule.doors.gateway.outcomes import result_of, unknown_tool
from bascule.doors.gateway.reply import Http, Reply
from bascule.doors.gateway.session_ids import MAX_NAME, Birth, SessionIds, TooMuchToSeal
from bascule.doors.gateway.wishes import Wishes, wishes_of
from bascule.doors.sessions import Sessions
from bascule.errors import BasculeError, DeadlineExceeded, SessionRefused
from bascule.model.json import JsonObject, JsonValue, is_object
from bascule.model.outcome import Failed, Failure, Outcome, failure
from bascule.node.bridge.session import Session
from bascule.node.bridge.table import Target
from bascule.wire.era import MODERN
from bascule.wire.faults import failure_of
from bascule.wire.frames import RequestId
from bascule.wire.rpc_codes import INVALID_PARAMS, METHOD_NOT_FOUND
from bascule.wire.strict_json import dumps

T = TypeVar("T")
Method: TypeAlias = Callable[[Caller, JsonObject], Awaitable[bytes]]
#: For how long a client may keep what it was told, if nothing is said to have changed.
TTL_MS = 60_000
_CAPABILITIES: JsonObject = {"tools": {"listChanged": True}, "logging": {}}
_CACHED: JsonObject = {"ttlMs": TTL_MS, "cacheScope": "private", "resultType": "complete"}
_EMPTY, _MODERN_EMPTY = b"{}", dumps({"resultType": "complete", "_meta": SERVER_META})
_LIST_TAIL = b",%b}" % dumps({**_CACHED, "_meta": SERVER_META})[1:-1]
_UNLISTED = frozenset({"mcp_policy_denied", "mcp_invalid_arguments"})
_NOT_FOUND = 404
#: Other doors take other spellings; a client has a list, and calls what is on it.
_MISSPELT = failure("mcp_invalid_arguments", "not a name that the tool is listed under")


class Gateway:
    """What MCP clients speak to."""

    def __init__(
        self,
        sessions: Sessions,
        key_for: Callable[[KeyLabel], bytes],
        *,
        clock: Clock = SYSTEM_CLOCK,
        mark: str = "",
    ) -> None:
        """Speak for sessions; ``mark`` is that of this process among workers."""
        self.sessions = sessions
        self.clock = clock
        self.ids = SessionIds(key_for("mcp-session"), clock, mark)
        self.lists = Lists(key_for("cursor"))
        self.calls = Calls()
        sessions.on_gone = self.calls.end_token
        self.levels = LogLevels()
        self.listening = Listening(sessions, self.lists, clock, good_seconds=TTL_MS / 1000)
        self._argument_headers = ArgumentHeaders()
        self._legacy: dict[str, Method] = {
            "ping": self._ping,
            "tools/list": self._tools,
            "logging/setLevel": self._set_level,
        }
        self._modern: dict[str, Method] = {
            "server/discover": self._discover,
            "tools/list": self._tools,
        }

    @property
    def open_streams(self) -> int:
        """Say how many clients listen."""
        return len(self.listening)

    @property
    def open_calls(self) -> int:
        """Say how many calls are under way."""
        return len(self.calls)

    async def answer(self, caller: Caller, message: Message) -> bytes:
        """Answer a request that is no call; raise RpcError."""
        method = (self._modern if caller.modern else self._legacy).get(message.method)
        if method is None:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {message.method[:128]}")
        return await method(caller, message.params)

    async def open(self, caller: Caller, params: JsonObject) -> tuple[str, bytes]:
        """Open a legacy session: return its id, and what its client is told."""
        version = negotiated(params.get("protocolVersion"))
        client = params.get("clientInfo")
        name = client.get("name") if is_object(client) else None
        birth = Birth(
            version=version,
            client=name[:MAX_NAME] if isinstance(name, str) else "",
            capabilities=capability_names(params.get("capabilities")),
            task=caller.principal.task_id or "",
            narrowing=caller.requests[len(caller.view.requests) :],
            born=int(self.clock.now()),
            token=caller.principal.token_id,
            person=caller.principal.person,
            process=self.ids.process,
        )
        try:
            id = self.ids.seal(birth, caller.view.route, caller.principal)
        except TooMuchToSeal as error:
            raise RpcError(INVALID_PARAMS, str(error)) from None
        told: dict[str, JsonValue] = {
            "protocolVersion": version,
            "capabilities": _CAPABILITIES,
            "serverInfo": SERVER_INFO,
            **await self._instructions(caller),
        }
        return id, dumps(told)

    def hear(self, caller: Caller, message: Message) -> None:
        """Take a notification; one that means nothing here is no matter."""
        if message.method == "notifications/cancelled" and not caller.modern:
            self.calls.cancel(caller.session_id, message.params.get("requestId"))

    def close(self, caller: Caller) -> None:
        """End a legacy session, as its client wishes."""
        self.ids.delete(caller.session_id, caller.principal)
        self.calls.end_session(caller.session_id)
        self.listening.end(caller)
        self.levels.drop(caller.principal.token_id, caller.session_id)

    async def follow(self, caller: Caller, http: Http) -> None:
        """Answer with the stream of a legacy session; raise RpcError before it begins."""
        await self._use(caller, _nothing)
        await self.listening.follow(caller, http)

    async def listen(self, caller: Caller, id: RequestId, params: JsonObject, http: Http) -> None:
        """Answer with the stream that a modern client asks for; raise RpcError before it begins."""
        await self._use(caller, _nothing)
        await self.listening.listen(caller, id, params, http)

    async def call(self, caller: Caller, params: JsonObject, reply: Reply) -> bytes:
        """Carry a call across; return its result, or raise RpcError."""
        name, arguments = params.get("name"), params.get("arguments")
        if type(name) is not str:
            raise RpcError(INVALID_PARAMS, "params.name: must be a string")
        if arguments is not None and not is_object(arguments):
            raise RpcError(INVALID_PARAMS, "params.arguments: must be an object")
        if caller.modern and "inputResponses" in params:
            _check_answers(params["inputResponses"])
        try:
            async with self.sessions.of(caller.principal, *caller.requests) as session:
                wishes = wishes_of(caller, params.get("_meta"), reply, self.levels, session)
                outcome = await self._carried(session, caller, name, arguments, wishes)
        except SessionRefused as refusal:
            _refuse_forbidden(refusal, caller)
            outcome = _refused(refusal)
        return result_of(outcome, caller)

    async def _carried(
        self,
        session: Session,
        caller: Caller,
        name: str,
        arguments: JsonObject | None,
        wishes: Wishes,
    ) -> Outcome:
        _refuse_absent(session, caller)
        if name == READ_OUTPUT_NAME:  # ours alone, whatever a server calls its own
            if not session.outputs:
                raise unknown_tool(name)
            return await read_output(session, arguments or {})
        meant = caller.view.meant(name, session)
        target = session.lookup(meant) or await _found(session, meant)
        if isinstance(target, Failure):
            return session.decline(meant, arguments, target)
        if target is not None and target.grant.tool.model_name != meant:
            session.decline(meant, arguments, _MISSPELT)
            raise unknown_tool(name)
        if target is not None and caller.modern:
            self._argument_headers.check(caller.head, target.grant.tool, arguments)
        outcome = await session.call_beside(meant, arguments, wishes.beside, wishes.asking)
        if not outcome.ok and _is_unlisted(outcome, session, meant):
            raise unknown_tool(name)
        return outcome

    async def _use(self, caller: Caller, work: Callable[[Session], Awaitable[T]]) -> T | None:
        """Do some work with a caller's session; None where that is refused.

        A route whose server is not there for its caller raises RpcError.
        """
        try:
            async with self.sessions.of(caller.principal, *caller.requests) as session:
                _refuse_absent(session, caller)
                return await work(session)
        except SessionRefused as refusal:
            _refuse_forbidden(refusal, caller)
            return None

    async def _ping(self, caller: Caller, params: JsonObject) -> bytes:
        del caller, params
        return _EMPTY

    async def _set_level(self, caller: Caller, params: JsonObject) -> bytes:
        level = level_of(params.get("level"), "params.level")
        self.levels.keep(caller.principal.token_id, caller.session_id, level)
        return _EMPTY

    async def _discover(self, caller: Caller, params: JsonObject) -> bytes:
        del params
        told: dict[str, JsonValue] = {
            "supportedVersions": [MODERN],
            "capabilities": _CAPABILITIES,
            **await self._instructions(caller),
            **_CACHED,
            "_meta": SERVER_META,
        }
        return dumps(told)

    async def _tools(self, caller: Caller, params: JsonObject) -> bytes:
        found = await self._use(caller, lambda session: self.lists.current(session, caller))
        if found is None:
            self.listening.saw(caller, NOTHING)
            return _listed(b"[]", None, caller)
        self.listening.saw(caller, found.version)
        page, cursor = self.lists.page(found, params.get("cursor"), caller)
        return _listed(page, cursor, caller)

    async def _instructions(self, caller: Caller) -> JsonObject:
        """Return what servers want a model to know, as a member of what a client is told."""
        words = await self._use(caller, caller.view.instructions)
        return {} if words is None else {"instructions": words}


def _listed(page: bytes, cursor: str | None, caller: Caller) -> bytes:
    more = b"" if cursor is None else b',"nextCursor":%b' % dumps(cursor)
    return b'{"tools":%b%b%b' % (page, more, _LIST_TAIL if caller.modern else b"}")


def _check_answers(answers: JsonValue) -> None:
    """Refuse what cannot be answers to questions; those that nobody asked do no harm."""
    if not is_object(answers) or not all(map(is_object, answers.values())):
        raise RpcError(INVALID_PARAMS, "params.inputResponses: must be an object of objects")


async def _found(session: Session, meant: str) -> Target | Failure | None:
    """Find the tool of a name that is not known yet; where there is none, the call says why."""
    try:
        return await session.resolve(meant)
    except DeadlineExceeded as error:  # the call need not wait for the same server again
        return failure_of(error)
    except BasculeError:
        return None


async def _nothing(session: Session) -> None:
    del session


def _refuse_absent(session: Session, caller: Caller) -> None:
    """Refuse a server that is not there; where nothing is, for the task is off, calls say so."""
    if not caller.view.is_there(session) and _is_on(session):
        raise no_server()


def _is_on(session: Session) -> bool:
    try:
        return session.is_enabled()
    except SessionRefused:
        return False


def _refuse_forbidden(refusal: SessionRefused, caller: Caller) -> None:
    """Refuse a route whose server the task does not allow, as one that there is not."""
    if refusal.server is not None and caller.view.is_for(refusal.server):
        raise no_server()


def no_server() -> RpcError:
    """Return the refusal of an address whose server is not there for its caller."""
    words = "there is no such server, or your task does not allow it"
    return RpcError(METHOD_NOT_FOUND, words, {"code": "not_found"}, status=_NOT_FOUND)


def _refused(refusal: SessionRefused) -> Failed:
    error = failure("mcp_policy_denied", str(refusal), details={"reason": refusal.reason})
    return Failed(error=error, request_id="", revision=0)


def _is_unlisted(outcome: Outcome, session: Session, meant: str) -> bool:
    """Say whether a call failed because its name means nothing to this caller."""
    error = outcome.error
    if error is None or error.code not in _UNLISTED or "decision" not in (error.details or {}):
        return False
    return _is_on(session) and not session.explain(meant).decision.allowed
