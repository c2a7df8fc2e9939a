"""The gateway on a real HTTP server over a bridge with fakes, and readers of its streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeAlias

from bascule.asgi.bounded_http import Limits
from bascule.asgi.connections import Caps
from bascule.asgi.guard import GuardedApp
from bascule.asgi.serve import Serving
from bascule.auth.memory_token_store import MemoryTokenStore
from bascule.auth.tokens import Tokens
from bascule.doors.gateway.api import gateway_routes
from bascule.doors.gateway.gateway import Gateway
from bascule.doors.sessions import Sessions
from bascule.errors import ServerUnavailable
from bascule.model.server import ServerRecord
from bascule.model.status import Change
from bascule.node.bridge.core import BridgeCore
from bascule.testing.clock import FakeClock
from bascule.wire.era import LEGACY, META, MODERN
from tests.asgi.caller import KEY
from tests.doors.door import ANYBODY
from tests.doors.gateway.mcp_caller import envelope
from tests.doors.gateway.schemas import check
from tests.node.fakes import World
from tests.policy.build import server
from tests.waits import SOON_SECONDS

Json = dict[str, Any]
Checked: TypeAlias = Callable[[Json], Json]
CHANGED = "notifications/tools/list_changed"
LISTEN = "subscriptions/listen"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
SUBSCRIPTION = META + "subscriptionId"
TASKS: dict[str, Json] = {
    "writer": {"enabled": True, "default_server_ids": ["fs"]},
    "reader": {"enabled": True, "default_server_ids": ["fs"], "tool_allowlist": ["fs/read"]},
    "open": {"enabled": True, "default_server_ids": ["fs", "git"], **ANYBODY},
}
# Client and server share a loop here: one busy second, and whoever waits to be read is a stranger.
LIMITS = Limits(connections=Caps(total=4096, strangers=4096))
_BOTH = "application/json, text/event-stream"


def as_it_is(message: Json) -> Json:
    """Check nothing: of what is sent byte by byte nobody knows the version."""
    return message


class Stream:
    """One open stream: its head, and its events as they come, each checked for its version."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        checked: Checked = as_it_is,
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.checked = checked
        self.status = 0
        self.headers: dict[str, str] = {}
        self.comments = 0

    async def begin(self) -> Stream:
        lines = (await self._soon(self.reader.readuntil(b"\r\n\r\n"))).decode().split("\r\n")
        self.status = int(lines[0].split(" ")[1])
        self.headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        return self

    async def _soon(self, work: Any) -> Any:
        async with asyncio.timeout(SOON_SECONDS):
            return await work

    async def _chunk(self) -> bytes:
        length = int(await self._soon(self.reader.readline()) or b"0", 16)
        return (await self._soon(self.reader.readexactly(length + 2)))[:-2]

    async def next(self) -> Json | None:
        """Return the next message; None once the stream is over. Comments are counted."""
        while chunk := await self._chunk():
            if chunk.startswith(b":"):
                self.comments += 1
                continue
            kind, data, *rest = chunk.decode().split("\n")
            assert (kind, rest) == ("event: message", ["", ""])
            return self.checked(json.loads(data.removeprefix("data: ")))
        return None

    async def comment(self) -> None:
        """Wait for a comment; a message instead is a failure."""
        assert (await self._chunk()).startswith(b":")

    async def body(self) -> Json:
        """Return the body of an answer that is no stream."""
        length = int(self.headers["content-length"])
        return self.checked(json.loads(await self._soon(self.reader.readexactly(length))))

    async def result(self) -> Json:
        """Return how a call ends, whether its answer is a stream or not."""
        if self.headers["content-type"] != "text/event-stream":
            return await self.body()
        found: Json = {}
        while (message := await self.next()) is not None:
            found = message
        return found

    async def lost(self) -> None:
        """Wait until the connection is closed."""
        await self._soon(self.reader.read())

    def close(self) -> None:
        self.writer.transport.abort()


class Address(Protocol):
    """Where a gateway is served, and the streams that its clients have opened."""

    port: int
    streams: list[Stream]


@dataclass
class Peer:
    """A client: its token, its route, and its session if it is a legacy one."""

    site: Address
    token: str
    route: str = "/mcp"
    headers: dict[str, str] = field(default_factory=dict[str, str])
    session: str = ""
    modern: bool = False
    version: str = LEGACY[0]
    number: int = 0

    async def send(self, verb: str, body: Json | None, *, also: Json | None = None) -> Stream:
        """Send a request; return its answer as far as its head."""
        sent = b"" if body is None else json.dumps(body).encode()
        head = {
            "Host": f"127.0.0.1:{self.site.port}",
            "Authorization": f"Bearer {self.token}",
            "Accept": _BOTH,
            **({"Mcp-Session-Id": self.session} if self.session else {}),
            **({"Content-Type": "application/json"} if body is not None else {}),
            "Content-Length": str(len(sent)),
            **self.headers,
            **(also or {}),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        reader, writer = await asyncio.open_connection("127.0.0.1", self.site.port)
        writer.write(f"{verb} {self.route} HTTP/1.1\r\n{lines}\r\n".encode() + sent)
        stream = Stream(reader, writer, partial(self.checked, body or {}))
        self.site.streams.append(stream)
        return await stream.begin()

    def checked(self, asked: Json, answer: Json) -> Json:
        """Return what the server says, which has to be valid in this client's version."""
        version = MODERN if self.modern else self.version
        check(answer, version, sender="server", answers=asked.get("method"))
        if "result" in answer and asked["method"] == "tools/call":
            check(asked, version, sender="client")
        return answer

    async def request(self, method: str, **params: Any) -> Stream:
        self.number += 1
        return await self.post(method, params, id=self.number)

    async def post(
        self,
        method: str,
        params: Json,
        meta: Json | None = None,
        *,
        id: int | str = 1,
        also: Json | None = None,
    ) -> Stream:
        """Send a request as a client of its generation does; with further headers, if given."""
        body, own = envelope(method, params, meta, modern=self.modern, id=id)
        return await self.send("POST", body, also={**own, **(also or {})})

    async def initialized(self) -> Peer:
        answer = await self.request(
            "initialize",
            protocolVersion=self.version,
            capabilities={},
            clientInfo={"name": "t", "version": "1"},
        )
        self.session = answer.headers["mcp-session-id"]
        return self

    async def tools(self) -> list[str]:
        answer = await self.request("tools/list")
        return [tool["name"] for tool in (await answer.body())["result"]["tools"]]

    async def call(self, name: str) -> Json:
        return await (await self.request("tools/call", name=name, arguments={})).body()

    async def opened(self, **wishes: Any) -> Stream:
        """Open a stream, whatever becomes of it."""
        if self.modern:
            return await self.request(LISTEN, notifications=wishes or {"toolsListChanged": True})
        return await self.send("GET", None)

    async def listening(self, **wishes: Any) -> Stream:
        """Open a stream, and read how it begins."""
        stream = await self.opened(**wishes)
        assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream")
        if self.modern:
            first = await stream.next()
            assert first is not None
            assert first["method"] == ACKNOWLEDGED
        else:
            await stream.comment()
        return stream


class Site:
    """What a test needs of the gateway."""

    failure = ServerUnavailable("not there")

    def __init__(
        self,
        core: BridgeCore | None = None,
        *,
        clock: FakeClock | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        self.clock = clock or FakeClock()
        self.records: tuple[ServerRecord, ...] = (server("fs"), server("git"))
        self.world = World(*self.records, tasks=TASKS)
        self.tokens = tokens or Tokens(MemoryTokenStore(), KEY, self.clock)
        self.core = core or self.world.core
        self.sessions = Sessions(self.core, self.tokens, clock=self.clock)
        self.gateway = Gateway(self.sessions, self.tokens.key_for, clock=self.clock)
        self.app = GuardedApp(gateway_routes(self.gateway), self.tokens)
        self.streams: list[Stream] = []
        self.port = 0

    @property
    def open(self) -> int:
        """Say how many streams are open."""
        return len(self.gateway.listening)

    async def peer(self, task: str = "writer", *, modern: bool, **more: Any) -> Peer:
        """Return a client with a token of its own, ready to speak."""
        token = (await self.tokens.mint("alice", "client", task_id=task)).token
        return await self.joined(Peer(self, token, modern=modern, **more))

    async def joined(self, peer: Peer) -> Peer:
        return peer if peer.modern else await peer.initialized()

    def offer(self, *tools: str, of: str = "fs") -> None:
        """Let a server have other tools, and say so."""
        [record] = [one for one in self.records if one.server_id == of]
        self.world.caller.offers(record, *tools)
        self.announce(Change(kind="tools", server_id=of))

    def announce(self, change: Change) -> None:
        self.core.changes.announce(change)

    def apply(self, *records: ServerRecord, **snapshot: Any) -> None:
        """Let the registry move on, and say so."""
        self.world.apply(*records, **{"tasks": TASKS, **snapshot})
        self.announce(Change(kind="records"))


@asynccontextmanager
async def serving(site: Site, limits: Limits = LIMITS) -> AsyncGenerator[Site, None]:
    """Serve a site; its streams end with it, and its clients hang up after that."""
    try:
        async with Serving(site.app, limits=limits) as server:
            site.port = server.port
            yield site
    finally:
        for stream in site.streams:
            stream.close()
        await site.sessions.close()
