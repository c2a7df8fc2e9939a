"""Calls under way: who may cancel them, and how many there may be.

A legacy call goes on to its deadline when its caller hangs up, so what bounds them is counted here
and not in connections.
"""

from __future__ import annotations

import asyncio

from bascule.doors.gateway.caller import Caller
from bascule.doors.gateway.messages import RpcError
from bascule.model.json import JsonObject, JsonValue
from bascule.wire.frames import RequestId
from bascule.wire.rpc_codes import CANCELLED, INVALID_REQUEST, SERVER_ERROR

#: How many calls of one token may be under way at once.
MAX_PER_TOKEN = 512
_UNAUTHENTICATED, _TOO_MANY = 401, 429


class Call:
    """One call under way. ``ended_by`` says why it was ended from outside, if it was."""

    __slots__ = ("ended_by", "id", "session_id", "task", "token")

    def __init__(self, caller: Caller, id: RequestId) -> None:
        self.token = caller.principal.token_id
        self.session_id = caller.session_id
        self.id = id
        self.task = asyncio.current_task()
        self.ended_by: RpcError | None = None

    def end(self, reason: RpcError) -> None:
        """End it; its caller gets the reason for an answer."""
        if self.task is not None and self.ended_by is None:
            self.ended_by = reason
            self.task.cancel()

    def reason_of(self, error: BaseException) -> RpcError | None:
        """Return why it was ended from outside, if that alone is what raised this in its task."""
        if self.ended_by is None or not isinstance(error, asyncio.CancelledError):
            return None
        others = 0 if self.task is None else self.task.uncancel()
        return None if others else self.ended_by


class Calls:
    """All calls under way at the gateway."""

    def __init__(self, max_per_token: int = MAX_PER_TOKEN) -> None:
        self._max_per_token = max_per_token
        self._under_way: dict[str, set[Call]] = {}
        #: Those of legacy sessions, which their callers may cancel by the ids of their requests.
        self._known: dict[str, dict[RequestId, Call]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._under_way.values()))

    def enter(self, caller: Caller, id: RequestId) -> Call:
        """Count a call from now on; raise RpcError where it may not begin."""
        call = Call(caller, id)
        of_token = self._under_way.get(call.token)
        if of_token is not None and len(of_token) >= self._max_per_token:
            words = (
                f"{len(of_token)} calls of this token are under way; wait until one of them ends"
            )
            data: JsonObject = {"code": "mcp_budget_exceeded", "retry_after": 1}
            raise RpcError(SERVER_ERROR, words, data, status=_TOO_MANY)
        if call.session_id:
            own = self._known.setdefault(call.session_id, {})
            if id in own:
                raise RpcError(INVALID_REQUEST, "id: another request of this session has it now")
            own[id] = call
        if of_token is None:
            of_token = self._under_way[call.token] = set()
        of_token.add(call)
        return call

    def leave(self, call: Call) -> None:
        """Count a call no more."""
        of_token = self._under_way[call.token]
        of_token.discard(call)
        if not of_token:
            del self._under_way[call.token]
        if call.session_id:
            own = self._known[call.session_id]
            del own[call.id]
            if not own:
                del self._known[call.session_id]

    def cancel(self, session_id: str, id: JsonValue) -> None:
        """Cancel one call of a session; what is not there, or has ended, needs none."""
        if type(id) is int or type(id) is str:
            call = self._known.get(session_id, {}).get(id)
            if call is not None:
                call.end(_cancelled())

    def end_session(self, session_id: str) -> None:
        """End all that is under way in a session that its client ends."""
        for call in list(self._known.get(session_id, {}).values()):
            call.end(_cancelled())

    def end_token(self, token: str) -> None:
        """End all calls of a token that was revoked or has expired."""
        for call in list(self._under_way.get(token, ())):
            words = "the token was revoked or has expired"
            data = {"code": "unauthenticated"}
            call.end(RpcError(SERVER_ERROR, words, data, status=_UNAUTHENTICATED))


def _cancelled() -> RpcError:
    return RpcError(CANCELLED, "cancelled, as its caller wished")
