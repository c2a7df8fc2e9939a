"""The scripted server of ``peer`` on many wires at once: one for each HTTP request.

The same protocol and the same behaviours as over stdio; only what reaches the wire is replaced.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from bascule.testing.http_faults import HTTP_FAULTS
from bascule.testing.http_outlet import Outlet
from bascule.testing.http_rules import params_of
from bascule.testing.peer.behaviours import BEHAVIOURS
from bascule.testing.peer.faults import FAULTS
from bascule.testing.peer.frames import TICK_SECONDS, Call, Server
from bascule.testing.peer.protocol import METHODS

if TYPE_CHECKING:
    from bascule.testing.peer.frames import Json


class Session:
    """What a legacy server remembers of one client."""

    def __init__(self, stream: Outlet) -> None:
        self.id = secrets.token_hex(8)
        self.stream = stream  # what belongs to no call
        self.outlets: dict[int, Outlet] = {stream.number: stream}
        self.position = 0


class HttpCall(Call):
    """A request with a wire of its own, and the session it came in, if any."""

    __slots__ = ("outlet", "session")

    def __init__(self, message: Json, outlet: Outlet, session: Session | None = None) -> None:
        super().__init__(message)
        self.outlet = outlet
        self.session = session

    @property
    def key(self) -> object:
        """Ids are unique within a session, or not at all."""
        return call_key(self.session or self.outlet, self.id)


def call_key(scope: Session | Outlet, id: object) -> tuple[int, str]:
    """Return what tells a call from all others."""
    return hash(scope), repr(id)


class HttpPeer(Server):
    """The state of one scripted server between its start and its end."""

    def __init__(self, script: Json) -> None:
        super().__init__(script, METHODS, {**BEHAVIOURS, **FAULTS, **HTTP_FAULTS})
        self.initialised = True  # sessions are the business of HTTP
        self.sessions: dict[str, Session] = {}
        self.outlets = 0
        self._ticking: asyncio.TimerHandle | None = None

    def outlet(self, *, resumable: bool) -> Outlet:
        """Make a wire for one request or one stream."""
        self.outlets += 1
        return Outlet(self.outlets, resumable=resumable)

    def open_session(self, *, resumable: bool) -> Session:
        """Remember a client."""
        session = Session(self.outlet(resumable=resumable))
        self.sessions[session.id] = session
        return session

    def forget_sessions(self) -> None:
        """Forget every client; their streams end."""
        sessions, self.sessions = self.sessions, {}
        for session in sessions.values():
            session.stream.finish()

    def close_session(self, session: Session) -> None:
        """Forget one client."""
        self.sessions.pop(session.id, None)
        session.stream.finish()

    def told(self, message: Json, session: Session | None) -> None:
        """Take a notification, or the answer to a question of ours."""
        method, params = message.get("method"), params_of(message)
        if method is None:
            self.handle(message)
        elif method == "notifications/cancelled" and session is not None:
            self.seen.add(method)
            self.forget(call_key(session, params.get("requestId")))
        else:
            self.seen.add(method)

    def emit(self, call: Call, lines: bytes) -> None:
        """Put lines on the wire of this call."""
        if isinstance(call, HttpCall):
            call.outlet.say(lines)

    def settled(self, call: Call) -> None:
        """End the wire of this call."""
        if isinstance(call, HttpCall):
            call.outlet.finish()

    def way(self, call: Call, spec: Json) -> Call:
        """Return the call's own stream, or with ``on="get"`` that of the session."""
        if spec.get("on") == "get" and isinstance(call, HttpCall) and call.session is not None:
            return HttpCall({}, call.session.stream)
        return call

    def initialised_calls(self) -> list[Call]:
        """Return a call on the stream of each session."""
        return [HttpCall({}, session.stream) for session in self.sessions.values()]

    def wait_until(self, call: Call, ready: Callable[[], bool]) -> None:
        """Keep the call open; the event loop does the asking."""
        super().wait_until(call, ready)
        self._keep_ticking()

    def stop(self) -> None:
        """End what waits and what listens."""
        self.tickers.clear()
        self.forget_sessions()

    def _keep_ticking(self) -> None:
        if self._ticking is None and self.tickers:
            loop = asyncio.get_running_loop()
            self._ticking = loop.call_later(TICK_SECONDS, self._tick_again)

    def _tick_again(self) -> None:
        self._ticking = None
        self.tick()
        self._keep_ticking()
