"""Servers that misbehave below HTTP, and the address of none at all."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

Conduct = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


class Peer:
    """A server that reads one request of each connection and does what it was told."""

    def __init__(self, conduct: Conduct) -> None:
        self._conduct = conduct
        self._writers: set[asyncio.StreamWriter] = set()
        self.heads: list[bytes] = []
        self.arrived = asyncio.Event()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            self.arrived.set()
            await self._conduct(head, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    def drop(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def peer(conduct: Conduct, port: int = 0) -> AsyncGenerator[Peer]:
    """Serve while the block runs; at a port that another had before, if one is given."""
    made = Peer(conduct)
    server = await asyncio.start_server(made.serve, "127.0.0.1", port)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        made.drop()
        await server.wait_closed()


def answers(head: str, body: bytes) -> Conduct:
    """Answer every request with this, and hang up."""

    async def conduct(_: bytes, writer: asyncio.StreamWriter) -> None:
        lines = f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(lines.encode() + body)
        await writer.drain()

    return conduct


async def hangs_up(_: bytes, writer: asyncio.StreamWriter) -> None:
    """Read a request and hang up without a word."""
    writer.transport.abort()


async def is_silent(_: bytes, writer: asyncio.StreamWriter) -> None:
    """Read a request and say nothing until the other side has had enough."""
    del writer
    await asyncio.Event().wait()


def nobody() -> str:
    """Return the address of a port on which nobody listens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{closed.getsockname()[1]}"
