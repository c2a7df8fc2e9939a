"""One server that a guest has opened: its tools, its calls, and a result that did not fit yet."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import ClassVar, Final

import msgspec
from msgspec import Struct

from bascule.client.approval_times import body_of
from bascule.doors.hostcalls.abi import Errno, Fault
from bascule.doors.hostcalls.guest import Guest
from bascule.doors.hostcalls.handles import EPOLLIN, EPOLLOUT, Handle, Kind
from bascule.doors.hostcalls.memory import MOST_JSON
from bascule.doors.hostcalls.parameters import ChatParameters
from bascule.doors.hostcalls.sessions import faults
from bascule.errors import BasculeError, SessionRefused
from bascule.model.approval import RETURN, Asking, waiting_of
from bascule.model.call import NO_LIMITS, CallLimits
from bascule.model.code import CODES
from bascule.model.json import JsonObject, JsonValue
from bascule.model.outcome import Failure, Outcome, failure
from bascule.model.session import SessionRequest
from bascule.node.bridge.toolset import ToolSet, harmless
from bascule.node.contract import ToolSession
from bascule.policy.characters import neutralise
from bascule.policy.merging import merged
from bascule.wire.arguments import read_arguments
from bascule.wire.faults import failure_of
from bascule.wire.strict_json import StrictJsonError
from bascule.wire.task_config import means_mcp

#: What it takes besides the ``mcp.*`` keys.
_LIMITS: Final = frozenset(
    {"timeout_ms", "max_tool_output_bytes", "max_total_tool_calls", "max_tool_calls"}
)
#: Of how many calls it remembers the question that they wait for.
_MOST_QUESTIONS: Final = 64


class Call(Struct, frozen=True):
    """A call as a guest makes it: the tool by its own name, and the bytes of the arguments."""

    tool: str
    arguments: bytes

    @property
    def digest(self) -> bytes:
        """Return what tells it from others, without keeping its arguments."""
        return hashlib.sha256(self.tool.encode() + b"\0" + self.arguments).digest()


class Parked(Struct, frozen=True):
    """An answer that the guest had no room for, and the call that it is the answer to."""

    digest: bytes
    answer: bytes


class McpSession(Handle):
    """A server that a guest has opened, in a session of its own."""

    kind: ClassVar[Kind] = "McpSession"

    def __init__(self, guest: Guest, server_id: str, session: ToolSession) -> None:
        super().__init__()
        self.server_id = server_id
        self._guest = guest
        self._session = session
        self._parameters = ChatParameters()
        self._calls = 0
        self._parked: Parked | None = None
        #: The approval that a call waits for, by the call.
        self._questions: OrderedDict[bytes, str] = OrderedDict()

    def poll_mask(self) -> int:
        return EPOLLOUT if self._parked is None else EPOLLIN | EPOLLOUT

    def set_param(self, key: str, value: JsonValue) -> None:
        """Narrow it: what it is called with next goes through a session that is narrower."""
        if not means_mcp(key) and key not in _LIMITS:
            raise Fault(Errno.EINVAL)
        known = self._parameters
        asked = known.having(key, value)
        if set(asked.request.server_ids or ()) - {self.server_id}:
            raise Fault(Errno.EACCES)
        request = merged((SessionRequest(server_ids=(self.server_id,)), asked.narrowing))
        crossing, sessions = self._guest.crossing, self._guest.sessions
        narrower = crossing.wait(lambda: sessions.open(request))
        if self.is_closed:
            raise Fault(Errno.EBADF)
        if self._parameters is not known:  # by a tool of the guest's, meanwhile
            return self.set_param(key, value)
        left, self._session, self._parameters = self._session, narrower, asked
        self.drop()
        return crossing.finish(lambda: sessions.close(left))

    def close(self) -> None:
        self.drop()
        self._guest.crossing.finish(lambda: self._guest.sessions.close(self._session))

    # --- what it has for the guest

    def tools(self) -> bytes:
        """Return the list of its tools, or the error number of why it has none."""
        found = self._guest.crossing.wait(self._list)
        tools: list[JsonObject] = [
            {
                "name": tool.name,
                "description": neutralise(tool.description).text,
                "inputSchema": harmless(tool.input_schema),
            }
            for tool in found
            if tool.server_id == self.server_id
        ]
        return msgspec.json.encode({"server_id": self.server_id, "tools": tools})

    def answer(self, call: Call) -> bytes:
        """Return what came of a call: of one whose answer is parked that, else by making it."""
        parked, wait = self._parked, self._guest.crossing.wait
        if parked is not None and parked.digest == call.digest:
            refused = wait(lambda: self._refused(call))
            return parked.answer if refused is None else msgspec.json.encode(_told(refused))
        self.drop()
        self._guest.keep(0)
        return msgspec.json.encode(_told(wait(lambda: self._made(call))))

    def park(self, call: Call, answer: bytes) -> None:
        """Keep an answer for when the guest makes the same call again."""
        self.drop()
        if not self.is_closed:
            self._parked = Parked(call.digest, answer)
            self._guest.usage.kept_bytes += len(answer)
            self.changed()

    def drop(self) -> None:
        """Keep no answer any more."""
        if self._parked is not None:
            self._guest.let_go(len(self._parked.answer))
            self._parked = None
            self.changed()

    # --- on the loop

    async def _list(self) -> ToolSet:
        with faults():
            found = await self._session.tools()
        missing = found.missing(self.server_id)
        if missing is not None:
            raise Fault(CODES[missing.code].errno)
        return found

    async def _made(self, call: Call) -> Outcome:
        """Make a call. ``server/tool`` is looked up as it stands: no name is taken apart."""
        name, session = f"{self.server_id}/{call.tool}", self._session
        try:
            arguments = _read(call.arguments)
        except StrictJsonError as error:
            wrong = failure("mcp_invalid_arguments", f"arguments: {error}")
            return session.decline(name, None, wrong)
        spent = self._spent()
        if spent is not None:
            return session.decline(name, arguments, spent)
        try:
            outcome = await session.call(
                name, arguments, limits=self._limits, approval=self._asking(call)
            )
        except BasculeError as error:
            return session.decline(name, arguments, _failure(error))
        self._count(call, outcome)
        return outcome

    async def _refused(self, call: Call) -> Outcome | None:
        """Return why an answer may be given no more; None if it may.

        A guest may leave it parked for as long as it likes, and lose the tool meanwhile. Where
        that cannot be told just now it stays parked: to make the call again is no way out.
        """
        name, session = f"{self.server_id}/{call.tool}", self._session
        with faults():
            found = await session.explanation(name)
        if found.allowed or found.layer == "node":  # whether its server is up is all the same
            return None
        return session.decline(name, None, failure("mcp_policy_denied", found.meaning))

    def _asking(self, call: Call) -> Asking:
        """Return what is to happen where a call needs approval: the second time it waits."""
        id = self._questions.pop(call.digest, None)
        return (
            RETURN if id is None else Asking(wait=0.0 if self.nonblocking else None, approval_id=id)
        )

    def _count(self, call: Call, outcome: Outcome) -> None:
        waiting = waiting_of(outcome)
        if waiting is not None:
            self._questions[call.digest] = waiting.approval_id
            if len(self._questions) > _MOST_QUESTIONS:
                self._questions.popitem(last=False)
        if outcome.error is None or CODES[outcome.error.code].reached:
            self._calls += 1
            self._guest.usage.calls += 1

    @property
    def _limits(self) -> CallLimits:
        own = self._parameters.timeout_ms
        return NO_LIMITS if own is None else CallLimits(timeout=own / 1000)

    def _spent(self) -> Failure | None:
        """Return which limit is used up: of this handle, or of the guest over all of its own."""
        own = self._parameters
        most = own.max_tool_calls if own.max_total_tool_calls is None else own.max_total_tool_calls
        of_guest = self._guest.host.opening.limits.max_total_tool_calls
        for used, limit in ((self._calls, most), (self._guest.usage.calls, of_guest)):
            if limit is not None and used >= limit:
                return failure("mcp_budget_exceeded", f"max_total_tool_calls of {limit} is used up")
        return None


def _read(arguments: bytes) -> JsonObject:
    if len(arguments) > MOST_JSON:
        raise StrictJsonError(f"{len(arguments)} bytes, more than {MOST_JSON}")
    return read_arguments(arguments)


def _failure(error: BasculeError) -> Failure:
    if isinstance(error, SessionRefused):
        return failure("mcp_policy_denied", str(error), details={"reason": error.reason})
    return failure_of(error)


def _told(outcome: Outcome) -> dict[str, object]:
    """Return an outcome as a guest reads it: what the tool said, and what went wrong."""
    body = body_of(outcome)
    said: dict[str, object] = {}
    if body.ok or body.content:
        said["content"] = body.content
        said["structured"] = body.structured
        said["truncated"] = body.truncated
    if body.error is not None:
        said["error"] = body.error
    return said
