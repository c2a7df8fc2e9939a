"""The relay that gives the suite a credential: one line more, and nothing else is touched."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tests.conformance.relay import HERE, relaying

SECONDS = 20
REQUEST = b"POST /mcp HTTP/1.1\r\nHost: evil.example.com\r\nMCP-METHOD:  x \r\n"


class Peer:
    """A server that reads and writes bare bytes; ``queue`` has its connections."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[tuple[StreamReader, StreamWriter]] = asyncio.Queue()

    async def accept(self, reading: StreamReader, writing: StreamWriter) -> None:
        await self.queue.put((reading, writing))


@asynccontextmanager
async def joined() -> AsyncGenerator[tuple[StreamReader, StreamWriter, StreamReader, StreamWriter]]:
    """Give both ends: the client's, and the server's behind the relay."""
    peer = Peer()
    async with (
        asyncio.timeout(SECONDS),
        await asyncio.start_server(peer.accept, HERE, 0) as listening,
        relaying(f"http://{HERE}:{listening.sockets[0].getsockname()[1]}", "secret") as url,
    ):
        near, sending = await asyncio.open_connection(HERE, int(url.rpartition(":")[2]))
        far, answering = await peer.queue.get()
        try:
            yield near, sending, far, answering
        finally:
            sending.close()
            answering.close()


async def test_every_request_of_a_connection_gets_the_credential_and_stays_as_it_is():
    async with joined() as (_, sending, far, _answering):
        for body in (b'{"a": 1}', b""):
            length = b"Content-Length: %d\r\n\r\n" % len(body)
            sending.write(REQUEST + length + body)
            first, _, rest = (REQUEST + length + body).partition(b"\r\n")
            expected = first + b"\r\nAuthorization: Bearer secret\r\n" + rest
            assert await far.readexactly(len(expected)) == expected


async def test_answers_pass_as_they_come_while_a_request_is_under_way():
    async with joined() as (near, sending, far, answering):
        sending.write(REQUEST + b"\r\n")
        await far.readuntil(b"\r\n\r\n")
        for piece in (b"HTTP/1.1 200 OK\r\n\r\n", b"data: 1\n\n", b"data: 2\n\n"):
            answering.write(piece)
            assert await near.readexactly(len(piece)) == piece


async def test_who_hangs_up_is_gone_on_the_other_side_too():
    async with joined() as (_, sending, far, _answering):
        sending.write(REQUEST + b"\r\n")
        await far.readuntil(b"\r\n\r\n")
        sending.close()
        assert await far.read() == b""
    async with joined() as (near, _sending, _far, answering):
        answering.close()
        assert await near.read() == b""
