"""Making a connection: names resolved, addresses judged, the first that answers taken."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from itertools import chain, zip_longest
from typing import TypeAlias

from msgspec import Struct

from bascule.model.whole_words import beginning
from bascule.outbound.egress import EgressRules
from bascule.outbound.failures import Unconnected, Why
from bascule.outbound.http1.line import Line
from bascule.outbound.tls import tls_context
from bascule.outbound.url import Url

#: Returns the addresses of a host and port.
Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]
#: Makes what speaks over a socket.
MakeLine: TypeAlias = Callable[[socket.socket], Line]

NEXT_ADDRESS_SECONDS = 0.25
_PROXY_ANSWER_BYTES = 16_384
_SHOWN = 200


class Proxy(Struct, frozen=True):
    """A proxy that requests go through; ``authorization`` is for it alone."""

    url: Url
    authorization: str | None = None

    def __repr__(self) -> str:
        return f"Proxy({self.url!r})"


class Dialling(Struct, frozen=True, kw_only=True):
    """How connections are made; ``HttpOptions`` explains the fields."""

    egress: EgressRules | None
    insecure: bool = False
    tls: ssl.SSLContext | None = None
    resolve: Resolve | None = None
    proxy: Proxy | None = None

    async def connect(self, url: Url, make: MakeLine) -> Line:
        """Return a new connection to the origin of a URL, or raise Unconnected or LaunchDenied."""
        try:
            sock = await self.reach(url, await self.judge(url))
            return await self._speak(url, sock, make)
        except OSError as error:  # TLS errors and timeouts are among them
            raise Unconnected(url.origin, _why(error), _words(error)) from None

    async def judge(self, url: Url) -> list[str]:
        """Return the addresses of a server, or raise LaunchDenied or OSError.

        Behind a proxy, which asks for itself, they are those that were judged, perhaps none.
        """
        if self.egress is not None:
            self.egress.check_url(url, insecure=self.insecure)
        return await (self._addresses(url) if self.proxy is None else self._judged(url))

    async def reach(self, url: Url, addresses: Sequence[str]) -> socket.socket:
        """Return a socket that leads to the server, or raise OSError.

        For plain http behind a proxy it leads to the proxy, which is told the whole URL.
        """
        if self.proxy is None:
            return await _first(addresses, url.port)
        at = self.proxy.url  # the operator's own word: the rules are for what records name
        sock = await _first(await self._resolved(at), at.port)
        if url.scheme == "http":
            return sock
        try:
            await _tunnel(sock, url, self.proxy)
        except BaseException:
            sock.close()
            raise
        return sock

    async def _judged(self, url: Url) -> list[str]:
        """Judge what a name means here, although the proxy will ask for itself.

        Where only the proxy can resolve names, there is nothing to judge but the name.
        """
        try:
            return await self._addresses(url)
        except OSError:
            if self.egress is not None:
                self.egress.check_name(url.host)
            return []

    async def _addresses(self, url: Url) -> list[str]:
        found = await self._resolved(url)
        if self.egress is not None:
            self.egress.check_addresses(url.host, found)
        return found

    async def _resolved(self, url: Url) -> list[str]:
        try:
            found = await (self.resolve or _looked_up)(url.host, url.port)
        except UnicodeError:  # a part of the name is too long to be asked for
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, f"{url.host} has no address")
        return found

    async def _speak(self, url: Url, sock: socket.socket, make: MakeLine) -> Line:
        context, name = None, None
        if url.scheme == "https":
            context, name = self.tls or _machine_trust(), url.host.rstrip(".")
        try:
            _, line = await asyncio.get_running_loop().create_connection(
                lambda: make(sock), sock=sock, ssl=context, server_hostname=name
            )
        except BaseException:
            sock.close()
            raise
        return line


@cache
def _machine_trust() -> ssl.SSLContext:
    return tls_context(None)


async def _looked_up(host: str, port: int) -> list[str]:
    """Ask the machine's own resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
    )
    return [str(address[0]) for *_, address in found]


async def _first(addresses: Sequence[str], port: int) -> socket.socket:
    """Connect to the first address that answers: each gets a head start before the next."""
    left = deque(_alternating(addresses))
    trying: set[asyncio.Task[socket.socket]] = set()
    errors: list[OSError] = []
    try:
        while left or trying:
            if left:
                trying.add(asyncio.create_task(_connected(left.popleft(), port)))
            pause = NEXT_ADDRESS_SECONDS if left else None
            done, trying = await asyncio.wait(
                trying, timeout=pause, return_when=asyncio.FIRST_COMPLETED
            )
            won = [task for task in done if _outcome(task, errors)]
            if won:
                trying.update(won[1:])
                return won[0].result()
    finally:
        for task in trying:
            task.add_done_callback(_let_go)
            task.cancel()
    raise errors[0]


def _outcome(task: asyncio.Task[socket.socket], errors: list[OSError]) -> bool:
    error = task.exception()
    if isinstance(error, OSError):
        errors.append(error)
    elif error is not None:
        raise error
    return error is None


def _let_go(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


def _alternating(addresses: Sequence[str]) -> list[str]:
    """Put the two families in turns, each in its order, starting with the first one's."""
    first = ":" in addresses[0]
    same = [address for address in addresses if (":" in address) == first]
    other = [address for address in addresses if (":" in address) != first]
    return [one for one in chain(*zip_longest(same, other)) if one is not None]


async def _connected(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(0)
        _watch_peer(sock)
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock


def _watch_peer(sock: socket.socket) -> None:
    """Have the kernel notice, within a minute, when the other machine is gone."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


async def _tunnel(sock: socket.socket, url: Url, proxy: Proxy) -> None:
    """Have a proxy lead on to the server: what is said from then on is not for the proxy."""
    shown = f"[{url.host}]" if ":" in url.host else url.host
    asked = f"CONNECT {shown}:{url.port} HTTP/1.1\r\nHost: {shown}:{url.port}\r\n"
    if proxy.authorization is not None:
        asked += f"Proxy-Authorization: {proxy.authorization}\r\n"
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, f"{asked}\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        piece = await loop.sock_recv(sock, 4096)
        head += piece
        if not piece or len(head) > _PROXY_ANSWER_BYTES:
            raise ConnectionError(f"the proxy {proxy.url.origin} did not answer as one")
    if head.index(b"\r\n\r\n") != len(head) - 4:
        raise ConnectionError(f"the proxy {proxy.url.origin} says more than it was asked")
    words = head.split(b"\r\n", 1)[0].split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or words[1] != b"200":
        said = beginning(b" ".join(words[1:]).decode("latin-1"), _SHOWN)
        raise ConnectionError(f"the proxy {proxy.url.origin} refuses: {said}")


def _why(error: OSError) -> Why:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "certificate"
    if isinstance(error, ssl.SSLError):
        return "tls"
    if isinstance(error, socket.gaierror):
        return "name"
    if isinstance(error, TimeoutError):
        return "late"
    return "refused" if isinstance(error, ConnectionRefusedError) else "network"


def _words(error: OSError) -> str:
    """Return what an error says, or at least what it is."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    plain = not isinstance(error, ssl.SSLError | socket.gaierror)
    if plain and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return (error.strerror or str(error))[:_SHOWN] or type(error).__name__
