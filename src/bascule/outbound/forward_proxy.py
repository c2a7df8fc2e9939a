"""A proxy for one server that has no other way out: the hosts of its record, and no more.

It speaks CONNECT and plain HTTP on a socket in a file. Names are resolved here, and the address
that was judged is the one that is used; private addresses are refused as everywhere. Where the
node itself goes through a proxy, so does this. ``hosts`` limits where data may go, not what.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import LaunchDenied, ServerUnavailable
from bascule.outbound.egress import EgressRules
from bascule.outbound.http import Dialling, Resolve
from bascule.outbound.proxies import proxy_for
from bascule.outbound.proxy_request import BAD_REQUEST, Refused, Wish, read_wish
from bascule.outbound.rules import NodeRules

logger = logging.getLogger(__name__)

Verdict = Literal["allowed", "refused", "ended"]

HTTPS_PORT: Final = 443
MOST_REFUSALS: Final = 100  # a minute: each is written down, and no server writes without end
_MINUTE = 60.0
_HEAD_BYTES = 32_768
_HEAD_SECONDS = 15.0
_CONNECT_SECONDS = 15.0
_IDLE_SECONDS = 600.0
_MOST_CONNECTIONS = 128
_CHUNK = 65_536
_FORBIDDEN, _BAD_GATEWAY = "403 Forbidden", "502 Bad Gateway"


class Passage(Struct, frozen=True, kw_only=True):
    """What was decided about one connection, and when it has ended what went through."""

    verdict: Verdict
    host: str
    port: int
    reason: str = ""
    bytes_sent: int = 0
    bytes_received: int = 0


class ForwardProxy:
    """Listens for one server. ``tell`` gets every decision, and what each connection carried."""

    def __init__(
        self,
        hosts: Iterable[str],
        rules: NodeRules,
        environ: Mapping[str, str],
        tell: Callable[[Passage], None],
        *,
        clock: Clock = SYSTEM_CLOCK,
        resolve: Resolve | None = None,
    ) -> None:
        self._hosts = [_entry(host) for host in hosts]
        self._rules = rules
        self._egress = EgressRules.under(rules)
        self._environ = environ
        self._tell = tell
        self._clock = clock
        self._resolve = resolve
        self._refusals: deque[float] = deque(maxlen=MOST_REFUSALS)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def listen(self, path: Path) -> None:
        """Listen on a socket that whoever gets at the path may use."""
        self._server = await asyncio.start_unix_server(self._accepted, path, limit=_HEAD_BYTES)
        _open_to_all(path)  # the folder around it is private; the server may be another user

    async def close(self) -> None:
        """End every connection; the socket's file goes with its folder."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= _MOST_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._pass_on(reader, writer)
        except Refused as refusal:
            text = f"{refusal}\n".encode()
            head = f"HTTP/1.1 {refusal.status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            head += f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n"
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_HEAD_SECONDS):
                    writer.write(head.encode() + text)
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # one side went away
        finally:
            await _closed(writer)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                wish = read_wish(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError as fault:
            raise Refused(BAD_REQUEST, "the request's head is too long") from fault
        way, opening, addresses = await self._judged(wish)
        there, back = await self._connected(wish, way, addresses)
        sent, received = _Count(len(opening)), _Count()
        # To another proxy goes this one request: what came behind it could name any host.
        most = None if wish.tunnel or way.proxy is None else wish.length
        try:
            if wish.tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                there.write(opening)
            async with asyncio.TaskGroup() as both:
                both.create_task(_relay(reader, there, sent, most))
                both.create_task(_relay(back, writer, received))
        finally:
            ended = Passage(
                verdict="ended",
                host=wish.host,
                port=wish.port,
                bytes_sent=sent.bytes,
                bytes_received=received.bytes,
            )
            self._tell(ended)
            await _closed(there)

    async def _judged(self, wish: Wish) -> tuple[Dialling, bytes, list[str]]:
        """Return the way there, what is said first and the addresses, or refuse; all is told."""
        try:
            self._refuse_unlisted(wish)
            way = self._way(wish)
            opening = _opening(wish, way)
            async with asyncio.timeout(_CONNECT_SECONDS):
                addresses = await way.judge(wish.url)
        except Refused as refusal:
            await self._refused(wish, str(refusal))
            raise
        except LaunchDenied as refusal:
            await self._refused(wish, str(refusal))
            raise Refused(_FORBIDDEN, str(refusal)) from refusal
        except ServerUnavailable as fault:  # the setting of the node's own proxy is at fault
            await self._refused(wish, str(fault))
            raise Refused(_BAD_GATEWAY, "the node's own proxy cannot be used") from fault
        except (OSError, TimeoutError) as fault:
            await self._refused(wish, f"{wish.host} is not known")
            raise Refused(_BAD_GATEWAY, f"{wish.host} is not known: {fault}") from fault
        self._say("allowed", wish, "")
        return way, opening, addresses

    def _refuse_unlisted(self, wish: Wish) -> None:
        if not any(_covers(entry, wish) for entry in self._hosts):
            raise LaunchDenied(f"{wish.host}:{wish.port} is not among this server's sandbox.hosts")

    def _way(self, wish: Wish) -> Dialling:
        """Return how the node reaches a host, as it does for its remote servers."""
        proxy = proxy_for(wish.url, self._rules, self._environ)
        return Dialling(egress=self._egress, insecure=True, proxy=proxy, resolve=self._resolve)

    async def _connected(
        self, wish: Wish, way: Dialling, addresses: list[str]
    ) -> tuple[asyncio.StreamWriter, asyncio.StreamReader]:
        sock: socket.socket | None = None
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                sock = await way.reach(wish.url, addresses)
                back, there = await asyncio.open_connection(sock=sock)
        except (OSError, TimeoutError) as fault:
            if sock is not None:
                sock.close()
            logger.info("egress: %s:%d cannot be reached: %s", wish.host, wish.port, fault)
            message = f"{wish.host}:{wish.port} cannot be reached"
            raise Refused(_BAD_GATEWAY, message) from fault
        return there, back

    async def _refused(self, wish: Wish, reason: str) -> None:
        """Tell of a refusal, in its turn: a server that asks without end waits."""
        now = self._clock.monotonic()
        turn = now
        if len(self._refusals) == MOST_REFUSALS:
            turn = max(now, self._refusals[0] + _MINUTE)
        self._refusals.append(turn)
        if turn > now:
            await self._clock.sleep(turn - now)
        self._say("refused", wish, reason)

    def _say(self, verdict: Verdict, wish: Wish, reason: str) -> None:
        self._tell(Passage(verdict=verdict, host=wish.host, port=wish.port, reason=reason))


def _open_to_all(path: Path) -> None:
    path.chmod(0o666)


class _Count:
    """How much went one way: what was said first, and what was passed on."""

    def __init__(self, said: int = 0) -> None:
        self.said = said
        self.passed = 0

    @property
    def bytes(self) -> int:
        """All of it."""
        return self.said + self.passed


def _opening(wish: Wish, way: Dialling) -> bytes:
    """Return what is said first at the other end, which may be the node's own proxy."""
    if wish.tunnel:
        return b""
    return wish.head() if way.proxy is None else wish.head_for_proxy(way.proxy.authorization)


async def _relay(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    count: _Count,
    most: int | None = None,
) -> None:
    """Pass bytes one way until there are no more, or none for long; at most so many."""
    with contextlib.suppress(OSError, TimeoutError):
        while True:
            async with asyncio.timeout(_IDLE_SECONDS):
                data = await reader.read(_CHUNK)
                if not data:
                    break
                passed = data if most is None else data[: most - count.passed]
                writer.write(passed)
                await writer.drain()
            count.passed += len(passed)
    with contextlib.suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(1.0):
            await writer.wait_closed()


def _entry(host: str) -> tuple[str, int]:
    name, colon, port = host.rpartition(":")
    return (name.lower(), int(port)) if colon else (host.lower(), HTTPS_PORT)


def _covers(entry: tuple[str, int], wish: Wish) -> bool:
    name, port = entry
    if port != wish.port:
        return False
    return wish.host.endswith(name[1:]) if name.startswith("*.") else wish.host == name
