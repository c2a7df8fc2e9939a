"""A registry's API in this process, and short ways to ask it things."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from bascule.asgi.guard import GuardedApp, GuardedRoute
from bascule.auth.tokens import Tokens
from bascule.control.api.node_port import NodeFace
from bascule.control.api.rest import registry_routes
from bascule.control.api.tokens import token_routes
from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.registry.store import Store
from bascule.model.role import ROLES, Role
from bascule.testing.clock import FakeClock
from bascule.wire.sse import SseReader
from tests.asgi.caller import Answer, bearer, http_scope, make_tokens, raw_headers
from tests.control.api.contract import refuse_undescribed
from tests.control.registry.memory_store import MemoryStore
from tests.waits import SOON_SECONDS

SERVERS = "/admin/api/mcp/servers"
ADMIN = "/admin/api/mcp"
PUBLIC = "/api/v1/mcp"
JSON = {"Content-Type": "application/json"}
_NOTHING = object()


class Counter:
    """Asks some routes as a role; every answer must be one that their description promises."""

    def __init__(
        self, routes: Sequence[GuardedRoute], tokens: Tokens, document: Any = None
    ) -> None:
        self.tokens = tokens
        self.app = GuardedApp(routes, tokens)
        self.headers: dict[Role, dict[str, str]] = {}
        self.document = document

    async def ready(self) -> Self:
        self.headers = {role: await bearer(self.tokens, role) for role in ROLES}
        return self

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = _NOTHING,
        *,
        role: Role | None = "admin",
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        content = raw if raw is not None else b"" if body is _NOTHING else json.dumps(body).encode()
        given = {**(self.headers[role] if role else {}), **(headers or {})}
        if content:
            given = {**JSON, "Content-Length": str(len(content)), **given}
        answer, sent = Answer(), False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                await asyncio.Event().wait()
            sent = True
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = [(k.decode(), v.decode("latin-1")) for k, v in message["headers"]]
            else:
                answer.body += message.get("body", b"")

        async with asyncio.timeout(SOON_SECONDS):
            await self.app(scope_of(method, path, given), receive, send)
        refuse_undescribed(self.app.routes, method, path.partition("?")[0], answer, self.document)
        return answer

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        method: str = "GET",
        role: Role = "viewer",
        headers: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[Stream, None]:
        """Open a stream and hang up at the end."""
        stream = Stream()
        scope = scope_of(method, path, {**self.headers[role], **(headers or {})})
        running = asyncio.ensure_future(self.app(scope, stream.receive, stream.send))
        try:
            yield stream
        finally:
            stream.hung_up.set()
            async with asyncio.timeout(SOON_SECONDS):
                await running


class Desk(Counter):
    """Asks the registry's API, and keeps the registry behind it within reach."""

    def __init__(self, service: RegistryService, clock: FakeClock, node: NodeFace | None) -> None:
        self.service = service
        self.clock = clock
        tokens = make_tokens()
        routes = [
            *registry_routes(service, clock=clock, node=node),
            *token_routes(tokens, service),
        ]
        super().__init__(routes, tokens)


class Stream:
    """The reader of a stream: its events, as they come."""

    def __init__(self) -> None:
        self.hung_up = asyncio.Event()
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._waiting: list[Any] = []
        self._reader = SseReader()
        self._asked = False

    async def receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.body":
            self._chunks.put_nowait(message.get("body", b""))

    async def next(self) -> Any:
        """Return the next event."""
        async with asyncio.timeout(SOON_SECONDS):
            while not self._waiting:
                self._waiting += self._reader.feed(await self._chunks.get())
        return self._waiting.pop(0)


def scope_of(method: str, path: str, headers: Mapping[str, str]) -> dict[str, Any]:
    place, _, query = path.partition("?")
    return {
        **http_scope(method, place, raw_headers(dict(headers))),
        "query_string": query.encode(),
    }


@asynccontextmanager
async def open_desk(
    node: NodeFace | None = None, store: Store | None = None
) -> AsyncGenerator[Desk, None]:
    clock = FakeClock()
    async with open_registry(store or MemoryStore(clock=clock), clock=clock) as service:
        yield await Desk(service, clock, node).ready()
