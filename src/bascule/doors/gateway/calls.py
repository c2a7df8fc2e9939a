"""Calls under way: who may cancel them, and how many there may be.

A legacy call goes on to its deadline when its caller hangs up, so what bounds them is counted here
and not in connections.
"""

from __future__ import annotations

import asyncio

from bascule.doors.gateway.caller import Caller
from bascule.doors.gateway.messages import INVALID_REQUEST, SERVER_ERROR, RequestId, RpcError
from bascule.model.json import JsonValue

#: How many calls of one token may be under way at once.
MAX_PER_TOKEN = 512
_TOO_MANY = 429


class Call:
    """One call under way. ``cancelled`` says that its own caller has cancelled it."""

    __slots__ = ("cancelled", "id", "session_id", "task", "token")

    def __init__(self, caller: Caller, id: RequestId) -> None:
        self.token = caller.principal.token_id
        self.session_id = caller.session_id
        self.id = id
        self.task = asyncio.current_task()
        self.cancelled = False

    def cancel(self) -> None:
        """End it, as its caller wishes."""
        if self.task is not None and not self.cancelled:
            self.cancelled = True
            self.task.cancel()


class Calls:
    """All calls under way at the gateway."""

    def __init__(self, max_per_token: int = MAX_PER_TOKEN) -> None:
        self._max_per_token = max_per_token
        self._numbers: dict[str, int] = {}
        #: Those of legacy sessions, which their callers may cancel by the ids of their requests.
        self._known: dict[str, dict[RequestId, Call]] = {}

    def enter(self, caller: Caller, id: RequestId) -> Call:
        """Count a call from now on; raise RpcError where it may not begin."""
        call = Call(caller, id)
        number = self._numbers.get(call.token, 0)
        if number >= self._max_per_token:
            words = f"{number} calls of this token are under way; wait until one of them ends"
            data = {"code": "mcp_budget_exceeded"}
            raise RpcError(SERVER_ERROR, words, data, status=_TOO_MANY)
        if call.session_id:
            own = self._known.setdefault(call.session_id, {})
            if id in own:
                raise RpcError(INVALID_REQUEST, "id: another request of this session has it now")
            own[id] = call
        self._numbers[call.token] = number + 1
        return call

    def leave(self, call: Call) -> None:
        """Count a call no more."""
        left = self._numbers[call.token] - 1
        if left:
            self._numbers[call.token] = left
        else:
            del self._numbers[call.token]
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
                call.cancel()

    def cancel_all(self, session_id: str) -> None:
        """Cancel all that is under way in a session that ends."""
        for call in list(self._known.get(session_id, {}).values()):
            call.cancel()
