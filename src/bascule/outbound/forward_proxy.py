"""A proxy for one server that has no other way out: the hosts of its record, and no more.

It speaks CONNECT and plain HTTP on a socket in a file. Names are resolved here, and the address
that was judged is the one that is used; private addresses are refused as everywhere. ``hosts``
limits where data may go, not what.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from bascule.errors import LaunchDenied
from bascule.outbound.egress import EgressRules

Verdict = Literal["allowed", "refused", "ended"]

HTTPS_PORT: Final = 443
_HTTP_PORT = 80
_HEAD_BYTES = 32_768
_HEAD_SECONDS = 15.0
_CONNECT_SECONDS = 15.0
_IDLE_SECONDS = 600.0
_MOST_CONNECTIONS = 128
_CHUNK = 65_536
_BAD_REQUEST, _FORBIDDEN, _BAD_GATEWAY = "400 Bad Request", "403 Forbidden", "502 Bad Gateway"


class Passage(Struct, frozen=True, kw_only=True):
    """What was decided about one connection, and when it has ended what went through."""

    verdict: Verdict
    host: str
    port: int
    reason: str = ""
    bytes_sent: int = 0
    bytes_received: int = 0


class _Refused(Exception):
    """A request that is answered with a status, and goes nowhere."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Wish(Struct, frozen=True):
    """Where a request wants to go, and what is said there first."""

    host: str
    port: int
    opening: bytes | None  # None: the client opens a tunnel, and is told when it is there


class ForwardProxy:
    """Listens for one server. ``tell`` gets every decision, and what each connection carried."""

    def __init__(
        self,
        hosts: Iterable[str],
        egress: EgressRules,
        tell: Callable[[Passage], None],
    ) -> None:
        self._hosts = [_entry(host) for host in hosts]
        self._egress = egress
        self._tell = tell
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
        except _Refused as refusal:
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
                wish = _wish(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError as fault:
            raise _Refused(_BAD_REQUEST, "the request's head is too long") from fault
        address = await self._judged(wish)
        there, back = await self._connected(wish, address)
        sent, received = _Count(len(wish.opening or b"")), _Count()
        try:
            if wish.opening is None:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                there.write(wish.opening)
            async with asyncio.TaskGroup() as both:
                both.create_task(_relay(reader, there, sent))
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

    async def _judged(self, wish: _Wish) -> str:
        """Return the address to use, or refuse; either is told."""
        try:
            self._refuse_unlisted(wish)
            addresses = await _resolved(wish)
            self._egress.check_addresses(wish.host, addresses)
        except LaunchDenied as refusal:
            self._say("refused", wish, str(refusal))
            raise _Refused(_FORBIDDEN, str(refusal)) from refusal
        except (OSError, UnicodeError, TimeoutError) as fault:
            self._say("refused", wish, f"{wish.host} is not known")
            raise _Refused(_BAD_GATEWAY, f"{wish.host} is not known: {fault}") from fault
        self._say("allowed", wish, "")
        return addresses[0]

    def _refuse_unlisted(self, wish: _Wish) -> None:
        if not any(_covers(entry, wish) for entry in self._hosts):
            raise LaunchDenied(f"{wish.host}:{wish.port} is not among this server's sandbox.hosts")

    async def _connected(
        self, wish: _Wish, address: str
    ) -> tuple[asyncio.StreamWriter, asyncio.StreamReader]:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                back, there = await asyncio.open_connection(address, wish.port)
        except (OSError, TimeoutError) as fault:
            message = f"{wish.host}:{wish.port} cannot be reached"
            raise _Refused(_BAD_GATEWAY, message) from fault
        return there, back

    def _say(self, verdict: Verdict, wish: _Wish, reason: str) -> None:
        self._tell(Passage(verdict=verdict, host=wish.host, port=wish.port, reason=reason))


def _open_to_all(path: Path) -> None:
    path.chmod(0o666)


class _Count:
    """How much went one way."""

    def __init__(self, count: int = 0) -> None:
        self.bytes = count


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: _Count) -> None:
    """Pass bytes one way until there are no more, or none for long."""
    with contextlib.suppress(OSError, TimeoutError):
        while True:
            async with asyncio.timeout(_IDLE_SECONDS):
                data = await reader.read(_CHUNK)
                if not data:
                    break
                writer.write(data)
                await writer.drain()
            count.bytes += len(data)
    with contextlib.suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(1.0):
            await writer.wait_closed()


async def _resolved(wish: _Wish) -> list[str]:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(_CONNECT_SECONDS):
        found = await loop.getaddrinfo(wish.host, wish.port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def _entry(host: str) -> tuple[str, int]:
    name, colon, port = host.rpartition(":")
    return (name.lower(), int(port)) if colon else (host.lower(), HTTPS_PORT)


def _covers(entry: tuple[str, int], wish: _Wish) -> bool:
    name, port = entry
    if port != wish.port:
        return False
    return wish.host.endswith(name[1:]) if name.startswith("*.") else wish.host == name


def _wish(head: bytes) -> _Wish:
    """Return where a request wants to go."""
    try:
        first, *lines = head.decode("ascii").split("\r\n")
        method, target, version = first.split(" ")
    except ValueError as fault:
        raise _Refused(_BAD_REQUEST, "this is no request of HTTP/1") from fault
    if method == "CONNECT":
        host, port = _place(f"//{target}", None)
        return _Wish(host, port, None)
    if not target.lower().startswith("http://"):
        raise _Refused(_BAD_REQUEST, "a proxy is asked with CONNECT, or for an http:// URL")
    host, port = _place(target, _HTTP_PORT)
    parts = urlsplit(target)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kept = [line for line in lines if line and not _of_the_hop(line)]
    opening = "\r\n".join([f"{method} {path} {version}", *kept, "Connection: close", "", ""])
    return _Wish(host, port, opening.encode("ascii"))


def _of_the_hop(line: str) -> bool:
    """Say whether a header is for the proxy: one connection carries one request."""
    name = line.partition(":")[0].strip().lower()
    return name in ("connection", "keep-alive", "proxy-connection", "proxy-authorization")


def _place(target: str, default: int | None) -> tuple[str, int]:
    try:
        parts = urlsplit(target)
        host, port = parts.hostname, parts.port or default
    except ValueError as fault:
        raise _Refused(_BAD_REQUEST, "the host or port is malformed") from fault
    if not host or port is None:
        raise _Refused(_BAD_REQUEST, "a host and a port are needed")
    return host.rstrip(".").lower(), port
