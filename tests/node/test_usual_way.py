"""A usual request over HTTP takes a shorter way: it ends as by the long one, request by request."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bascule.errors import BasculeError
from bascule.node.pool.transport.channel import Events
from bascule.node.pool.transport.http import HttpChannel
from bascule.node.pool.transport.upstream import Upstream
from bascule.outbound.egress import EgressRules
from bascule.outbound.http import HttpClient, HttpOptions
from bascule.outbound.url import Url
from bascule.wire.era import MODERN, Peer
from tests.node.remote_channels import MODERN_PEER, Keys
from tests.waits import SOON_SECONDS

LEGACY_PEER = Peer("legacy", "2025-11-25", {}, {}, None)
JSON, EVENTS = "application/json", "text/event-stream"
Move = Callable[[int], bytes]


class Unhurried(Keys):
    """Tokens that always have to be asked for: with them no request is a usual one."""

    def at_hand(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None


def http(status: int, body: bytes, kind: str | None = JSON, *more: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *more]
    lines += [] if kind is None else [f"Content-Type: {kind}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def result(number: int) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": {"n": number}}).encode()


def fault(number: int) -> bytes:
    error = {"code": -32000, "message": "no"}
    return json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode()


def chunked(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: {JSON}\r\n\r\n"
    half = len(body) // 2
    parts = (body[:half], body[half:], b"")
    return head.encode() + b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in parts)


MOVES: Mapping[str, Move] = {
    "json": lambda n: http(200, result(n)),
    "json with a charset": lambda n: http(200, result(n), "Application/JSON; charset=utf-8"),
    "chunked": lambda n: chunked(result(n)),
    "gzip": lambda n: http(200, gzip.compress(result(n)), JSON, "Content-Encoding: gzip"),
    "batch": lambda n: http(200, b"[%b]" % result(n)),
    "events": lambda n: http(200, b"data: %b\n\n" % result(n), EVENTS),
    "fault": lambda n: http(200, fault(n)),
    "fault as 400": lambda n: http(400, fault(n)),
    "another's answer": lambda n: http(200, result(n + 1000)),
    "no json": lambda _n: http(200, b"{"),
    "html": lambda _n: http(200, b"<p>", "text/html"),
    "no type": lambda n: http(200, result(n), None),
    "accepted": lambda _n: http(202, b""),
    "401": lambda _n: http(401, b""),
    "403": lambda _n: http(403, b"no"),
    "404": lambda _n: http(404, b""),
    "405": lambda _n: http(405, b""),
    "500": lambda _n: http(500, b"oh"),
    "redirect": lambda _n: http(307, b"", None, "Location: /elsewhere"),
    "redirect that loses": lambda _n: http(302, b"", None, "Location: /elsewhere"),
    "redirect away": lambda _n: http(307, b"", None, "Location: http://evil.example/"),
    "cut": lambda n: http(200, result(n))[:-3],
    "not http": lambda _n: b"220 hello\r\n\r\n",
    "nothing": lambda _n: b"",
    "too large": lambda _n: http(200, b" " * 9_000_000),
    "interim": lambda n: b"HTTP/1.1 103 Early Hints\r\n\r\n" + http(200, result(n)),
}
CLOSING = frozenset({"cut", "not http", "nothing"})


class Server:
    """Answers POSTs one after the other as its moves say; what is left over is answered well."""

    def __init__(self, moves: list[str]) -> None:
        self._moves = list(moves)
        self.seen: list[tuple[str, ...]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._once(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _once(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
        body = await reader.readexactly(int(length[1])) if length else b""
        number = json.loads(body)["id"] if b'"id"' in body else 0
        move = "json"
        if head.startswith("POST") and b'"tools/call"' in body:
            self.seen.append((*sorted(head.lower().splitlines()), body.decode()))
            move = self._moves.pop(0) if self._moves else "json"
        writer.write(MOVES[move](number) if head.startswith("POST") else http(405, b""))
        await writer.drain()
        return move not in CLOSING


@asynccontextmanager
async def served(moves: list[str]):
    made = Server(moves)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    try:
        yield made, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


async def outcomes(keys: Keys, peer: Peer, moves: list[str], calls: int) -> list[object]:
    """Return how each call ended, what the server saw, and how often the credential was renewed."""
    async with served(moves) as (server, port):
        client = HttpClient(HttpOptions(connect_seconds=20, egress=EgressRules(())))
        url = Url.parse(f"http://127.0.0.1:{port}/mcp")
        channel = HttpChannel(Upstream(client, url, headers={}, credentials=keys), Events())
        channel.settle(peer)
        ends = [await _end(channel, number) for number in range(calls)]
        await channel.close()
    return [repr(part).replace(str(port), "PORT") for part in (ends, server.seen, keys.refusals)]


async def _end(channel: HttpChannel, number: int) -> object:
    deadline = asyncio.get_running_loop().time() + 20
    asked: Awaitable[object] = channel.request(
        "tools/call", b'{"name":"echo"}', deadline=deadline, name=f"echo{number % 2}"
    )
    try:
        return await asked
    except BasculeError as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("peer", [MODERN_PEER, LEGACY_PEER], ids=["modern", "legacy"])
@pytest.mark.parametrize("move", MOVES)
async def test_whatever_is_answered_both_ways_end_alike(move: str, peer: Peer):
    assert MODERN_PEER.version == MODERN
    usual = await outcomes(Keys("one", "two"), peer, ["json", move, "json"], 4)
    assert usual == await outcomes(Unhurried("one", "two"), peer, ["json", move, "json"], 4)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    moves=st.lists(st.sampled_from(sorted(MOVES)), max_size=6),
    peer=st.sampled_from([MODERN_PEER, LEGACY_PEER]),
)
def test_both_ways_end_alike_whatever_is_answered_in_turn(moves: list[str], peer: Peer):
    async def both() -> tuple[object, object]:
        return (
            await outcomes(Keys("one", "two"), peer, moves, 3),
            await outcomes(Unhurried("one", "two"), peer, moves, 3),
        )

    usual, patient = asyncio.run(both())
    assert usual == patient


class Forgetful:
    """Gives sessions; forgets the first one, and tells the second caller so only late."""

    def __init__(self) -> None:
        self.greetings = 0
        self.forgets = False
        self._lost = 0
        self._repeated = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(length[1])) if length else b""
                writer.write(await self._answer(head, body))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, head: str, body: bytes) -> bytes:
        if b'"initialize"' in body:
            self.greetings += 1
            greeting = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}}
            reply = {"jsonrpc": "2.0", "id": json.loads(body)["id"], "result": greeting}
            session = f"Mcp-Session-Id: s{self.greetings}"
            return http(200, json.dumps(reply).encode(), JSON, session)
        if b'"tools/call"' not in body:
            return http(202 if head.startswith("POST") else 405, b"")
        if self.forgets and "s1" in head:
            self._lost += 1
            if self._lost == 2:
                await self._repeated.wait()
            return http(404, b"")
        self._repeated.set()
        return http(200, result(json.loads(body)["id"]))


async def test_who_hears_late_that_a_session_was_lost_takes_the_one_that_others_opened():
    made = Forgetful()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    client = HttpClient(HttpOptions(connect_seconds=20, egress=EgressRules(())))
    url = Url.parse(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp")
    upstream = Upstream(client, url, headers={}, credentials=Keys("one"))
    channel = HttpChannel(upstream, Events())
    async with server, asyncio.timeout(SOON_SECONDS):
        deadline = asyncio.get_running_loop().time() + SOON_SECONDS
        await channel.request("initialize", b"{}", deadline=deadline)
        channel.settle(LEGACY_PEER)
        assert await _end(channel, 0) == {"n": 2}
        made.forgets = True
        ends = await asyncio.gather(_end(channel, 1), _end(channel, 2))
        await channel.close()
    assert ends == [{"n": 3}, {"n": 4}]
    assert made.greetings == 2
