"""The sessions of a guest: each narrows what whoever runs it opened, and none is ever wider.

Opening one starts nothing: no server, no list.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from msgspec import UNSET, to_builtins
from msgspec.structs import replace

from bascule.client.http import ApiError
from bascule.doors.hostcalls.abi import Errno, Fault
from bascule.doors.hostcalls.host import Host
from bascule.errors import BasculeError, InvalidRecord, OutcomeUnknown, SessionRefused
from bascule.model.code import CODES
from bascule.model.explanation import Explanation
from bascule.model.json import JsonObject
from bascule.model.server import SERVER_ID_PATTERN
from bascule.model.session import SessionRequest
from bascule.node.contract import ToolSession
from bascule.node.remote_session import failure_of_answer
from bascule.wire.faults import failure_of

#: Of a session that only looks: its list is empty, so that no server is started for it.
_LOOKING: Final = SessionRequest(enabled=False)
#: What it has against a server by itself, or what naming the server lifts.
_OWN: Final = frozenset({("session", "session_disabled"), ("task", "not_default")})


class GuestSessions:
    """The sessions of one guest. What it leaves open is closed when it ends; all on the loop."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._open: set[ToolSession] = set()
        #: Explains which servers the guest may open, and can do nothing else.
        self._looking: ToolSession | None = None

    async def open(self, request: SessionRequest) -> ToolSession:
        """Open a session that narrows the guest's; -EACCES if it asks for more than it may have."""
        if request.enabled and _is_off(self._host):
            raise Fault(Errno.EACCES)
        with faults():
            if request.server_ids:
                seen = self._look()
                await seen.start()
                refusals = (refusal_of(seen.explain(name)) for name in request.server_ids)
                if Errno.EACCES in refusals:
                    raise Fault(Errno.EACCES)
            session = self._opened(request)
            try:
                await session.budgets()  # a refused session says so now
            except BaseException:
                await self.close(session)
                raise
        return session

    async def open_server(self, server_id: str) -> ToolSession:
        """Open a session of one server; -EACCES outside the task, or with MCP off; or -ENOENT."""
        await self._admitted(server_id)
        with faults():
            return self._opened(SessionRequest(server_ids=(server_id,)))

    async def servers(self) -> list[JsonObject]:
        """Return what a guest is told of the servers that it may open."""
        if _is_off(self._host):
            raise Fault(Errno.EACCES)
        with faults():
            seen = self._look()
            await seen.start()
            found = (one for one in seen.explanations() if refusal_of(one) is None)
            return [_entry(self._host, one) for one in found]

    async def server_entry(self, server_id: str) -> JsonObject:
        """Return what a guest is told of one of them; refuse others as ``open_server`` does."""
        return _entry(self._host, await self._admitted(server_id))

    async def close(self, session: ToolSession) -> None:
        """Close one of them."""
        self._open.discard(session)
        await session.close()

    async def end(self) -> None:
        """Close whatever is open."""
        while self._open:
            await self._open.pop().close()

    async def _admitted(self, server_id: str) -> Explanation:
        if _is_off(self._host):
            raise Fault(Errno.EACCES)
        found = await self._explained(server_id)
        refusal = Errno.ENOENT if found is None else refusal_of(found)
        if refusal == Errno.ENOENT:  # a task without MCP has no servers
            await self.close(await self.open(SessionRequest(enabled=True)))
        if found is None or refusal is not None:
            raise Fault(refusal or Errno.ENOENT)
        return found

    async def _explained(self, server_id: str) -> Explanation | None:
        if re.fullmatch(SERVER_ID_PATTERN, server_id) is None:
            return None
        with faults():
            return await self._look().explanation(server_id)

    def _look(self) -> ToolSession:
        if self._looking is None:
            self._looking = self._opened(_LOOKING)
        return self._looking

    def _opened(self, request: SessionRequest) -> ToolSession:
        host = self._host
        if host.bridge is None:
            raise Fault(Errno.EACCES)
        opening = replace(host.opening, further=(*host.opening.further, request))
        session = host.bridge.open_session(opening)
        self._open.add(session)
        return session


def _entry(host: Host, found: Explanation) -> JsonObject:
    """Return what anybody may know of a server: no command, address, variable or header."""
    assert host.bridge is not None  # noqa: S101 - without one nothing was explained
    states = (one.state for one in host.bridge.statuses() if one.server_id == found.server)
    entry: JsonObject = {"server_id": found.server, "default": not _is_spare(found)}
    if found.about is not UNSET:
        entry |= to_builtins(found.about)
    state = next(states, None)
    return entry if state is None else {**entry, "state": state}


def _is_spare(found: Explanation) -> bool:
    return any(one.reason == "not_default" for one in found.objections)


def refusal_of(found: Explanation) -> Errno | None:
    """Return why a server may not be opened, by a session that looks; None if it may."""
    if found.tool is not None or found.reason == "unknown_server":
        return Errno.ENOENT
    against = {(one.layer, one.reason) for one in found.objections if one.layer != "node"}
    return Errno.EACCES if against - _OWN else None


@contextmanager
def faults() -> Generator[None]:
    """Turn what a bridge raises into the error number of its code."""
    try:
        yield
    except (SessionRefused, InvalidRecord):
        raise Fault(Errno.EACCES) from None
    except ApiError as error:
        raise Fault(CODES[failure_of_answer(error).code].errno) from None
    except OutcomeUnknown:  # no answer; nothing was to be done but to answer
        raise Fault(Errno.ENOTCONN) from None
    except BasculeError as error:
        raise Fault(CODES[failure_of(error).code].errno) from None


def _is_off(host: Host) -> bool:
    """Say whether whoever runs the guest left MCP out."""
    return host.bridge is None or any(one.enabled is False for one in host.opening.requests)
