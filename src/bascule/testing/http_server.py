"""The scripted server over HTTP: real sockets in this process, one script, several dialects.

    async with ScriptedHttpServer(ScriptedServer(behaviours={"t": "echo"})) as http:
        http.url                                    # http://127.0.0.1:PORT/mcp
        http.requests[-1].headers["Mcp-Name"]       # what came in
        await http.saw("tools/call")                # wait until it came
        http.inject("reset", method="tools/call")   # the next call meets a reset
        await http.restart()                        # same port, nothing remembered

It serves the script of ``ScriptedServer`` with the same behaviours, and those of ``http_faults``.
Dialects: ``modern`` (2026-07-28, stateless), ``legacy`` (streamable HTTP, with sessions unless
``stateful=False``), ``sse`` (HTTP+SSE of 2024-11-05); one endpoint may speak them all. What makes
no sense without a process (``at_start``, signals, stderr) has no effect or is refused.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from bascule.testing.http_dialects import Dialect, Endpoint, HttpSettings, SeenRequest
from bascule.testing.http_listener import HOST, Connections, HttpListener
from bascule.testing.peer.frames import append
from bascule.testing.server import ScriptedServer, Step, check_step

KEPT_REQUESTS = 10_000
DIALECTS: dict[str, tuple[Dialect, ...]] = {
    "modern": ("modern",),
    "legacy": ("legacy",),
    "dual": ("modern", "legacy"),
}


@dataclass
class _Injection:
    """A step that takes the place of an answer."""

    step: Step
    verb: str
    method: str | None
    times: int

    def takes(self, seen: SeenRequest) -> bool:
        return self.times > 0 and self.verb == seen.verb and self.method in (None, seen.method)


@dataclass
class ScriptedHttpServer(HttpListener, HttpSettings):
    """A script served over HTTP while the ``async with`` block lasts."""

    server: ScriptedServer = field(default_factory=ScriptedServer)
    requests: list[SeenRequest] = field(default_factory=list[SeenRequest], init=False)
    choose: Callable[[SeenRequest], Step | None] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.server.at_start:
            raise ValueError("a server over HTTP has no start of its own: at_start")
        self.dialects = self.dialects or DIALECTS[self.server.era]
        self._injections: list[_Injection] = []
        self._endpoint: Endpoint | None = None

    @property
    def url(self) -> str:
        """Where the server is, while it is anywhere."""
        return f"{'http' if self.tls is None else 'https'}://{HOST}:{self.port}{self.path}"

    @property
    def sessions(self) -> list[str]:
        """The ids of the sessions that are remembered."""
        return list(self._endpoint.peer.sessions) if self._endpoint else []

    @property
    def connections(self) -> int:
        return len(self._connections.open) if self._connections else 0

    def count(self, method: str) -> int:
        """How many requests of this JSON-RPC method came in."""
        return sum(seen.method == method for seen in self.requests)

    async def saw(self, method: str, times: int = 1) -> None:
        """Wait until so many requests of this JSON-RPC method came in."""
        await self._until(lambda: self.count(method) >= times)

    async def saw_verb(self, verb: str, times: int = 1) -> None:
        """Wait until so many requests with this HTTP verb came in."""
        await self._until(lambda: sum(seen.verb == verb for seen in self.requests) >= times)

    def inject(
        self, step: Step, *, verb: str = "POST", method: str | None = None, times: int = 1
    ) -> None:
        """Do this in place of an answer to the next requests of the kind."""
        check_step(step)
        self._injections.append(_Injection(step, verb, method, times))

    def forget_sessions(self) -> None:
        """Lose every session: who shows one gets 404."""
        if self._endpoint is not None:
            self._endpoint.peer.forget_sessions()

    def close_idle(self) -> None:
        """Close the connections that are kept alive and carry nothing, as servers do in time."""
        if self._connections is not None:
            for transport in self._connections.open:
                if not self._connections.busy[transport]:
                    transport.close()

    async def start(self) -> None:
        """Listen; from the second time on at the same port, with nothing remembered."""
        self._endpoint = Endpoint(self, json.loads(self.server.script))
        await self._listen(self.tls)
        starts = self.server.starts
        append(None if starts is None else str(starts), str(os.getpid()).encode())

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def _forsake(self) -> None:
        if self._endpoint is not None:
            self._endpoint.peer.stop()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Note the request and have it answered; a client that leaves is no news."""
        connections, endpoint, transport = self._connections, self._endpoint, request.transport
        if connections is None or endpoint is None or transport is None:
            raise ConnectionError
        connections.busy[transport] += 1
        connections.served[transport] += 1
        try:
            seen = await self._seen(request, connections, transport)
            return await endpoint.answer(request, seen, self._chosen(seen))
        except ConnectionError:
            return web.Response()
        finally:
            connections.busy[transport] -= 1

    async def _seen(
        self, request: web.BaseRequest, connections: Connections, transport: asyncio.Transport
    ) -> SeenRequest:
        nth = connections.served[transport]
        number = connections.numbers.get(transport, 0)
        body = await request.content.read()
        seen = SeenRequest(request.method, request.path, request.headers.copy(), body, number, nth)
        if len(self.requests) >= KEPT_REQUESTS:
            del self.requests[: KEPT_REQUESTS // 2]
        self.requests.append(seen)
        self._news.set()
        return seen

    def _chosen(self, seen: SeenRequest) -> Step | None:
        for injection in self._injections:
            if injection.takes(seen):
                injection.times -= 1
                return injection.step
        return self.choose(seen) if self.choose is not None else None
