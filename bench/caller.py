"""Bare HTTP/1.1 clients: one connection, one request at a time, next to nothing checked.

``Caller`` is the client before every server that is measured, on asyncio's streams, as one would
write it by hand. ``Bare`` is a protocol on httptools: what a client cannot do without.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import httptools


class Caller:
    """HTTP/1.1 on asyncio's streams; a token goes with every request."""

    def __init__(self, url: str, token: str = "") -> None:
        parts = urlsplit(url)
        self._where = parts.hostname or "", parts.port or 0
        self._head = f"Host: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n"

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(*self._where)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def post(self, path: str, body: object) -> Any:
        return await self.send("POST", path, json.dumps(body).encode())

    async def send(self, method: str, path: str, body: bytes = b"") -> Any:
        """Return the JSON of the answer."""
        return json.loads(await self.fetch(method, path, body))

    async def fetch(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Return the answer as it is; a connection that was closed meanwhile is made again."""
        try:
            return await self._exchanged(method, path, body)
        except (EOFError, ConnectionError):
            await self.__aenter__()
            return await self._exchanged(method, path, body)

    async def _exchanged(self, method: str, path: str, body: bytes) -> bytes:
        kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        self._writer.write(f"{method} {path} HTTP/1.1\r\n{self._head}{kind}\r\n".encode() + body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return await self._reader.readexactly(length)


class Bare(asyncio.Protocol):
    """A POST and its answer, on httptools; one parser for the life of the connection."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        self._where = parts.hostname or "", parts.port or 0
        lines = {"Host": parts.netloc, **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._head = f"POST {parts.path} HTTP/1.1\r\n{head}Content-Length: %d\r\n\r\n".encode()
        self._body = b""
        self._transport: Any = None  # uvloop's is no asyncio.Transport

    async def __aenter__(self) -> Self:
        self._parser = httptools.HttpResponseParser(self)
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[bytes] = self._loop.create_future()
        self._answer.cancel()  # nothing was asked yet
        self._transport, _ = await self._loop.create_connection(lambda: self, *self._where)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._answer.cancel()
        self._transport.close()

    async def send(self, body: bytes) -> bytes:
        """Return the body of the answer; a connection that was closed meanwhile is made again."""
        if not self._transport.is_closing():
            with suppress(ConnectionError):
                return await self.post(body)
        await self.__aenter__()
        return await self.post(body)

    def post(self, body: bytes) -> asyncio.Future[bytes]:
        """Send a request; the future is the body of its answer."""
        self._body = b""
        self._answer = answer = self._loop.create_future()
        self._transport.write(self._head % len(body) + body)
        return answer

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body = self._body + body if self._body else body

    def on_message_complete(self) -> None:
        self._answer.set_result(self._body)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._answer.done():
            self._answer.set_exception(ConnectionError(f"the server closed the connection: {exc}"))


Client = TypeVar("Client", Caller, Bare)


@asynccontextmanager
async def connected(clients: Sequence[Client]) -> AsyncGenerator[list[Client]]:
    """Connect them all; whoever sends takes one off the list and puts it back."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(client) for client in clients]


def callers(count: int, url: str, token: str = "") -> list[Caller]:
    return [Caller(url, token) for _ in range(count)]
