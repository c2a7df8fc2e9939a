"""A server that does what a script says, byte for byte: it splits, stalls, resets and lies."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import pairwise

from bascule.clock import SYSTEM_CLOCK
from tests.waits import DEADLINE_SECONDS

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)\r\n")
#: Enough turns of the event loop for the other side to read what was written before.
_TURNS = 4


async def turns(count: int = _TURNS) -> None:
    """Let the event loop go round: what is ready happens."""
    for _ in range(count):
        await SYSTEM_CLOCK.sleep(0)


class Line:
    """One connection, as the script sees it."""

    def __init__(
        self, peer: ScriptedPeer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._peer = peer
        self.reader = reader
        self.writer = writer
        #: Set when the client has ended the connection, as far as the script waits for it.
        self.over = asyncio.Event()
        #: The number of this connection, from one.
        self.number = len(peer.lines) + 1

    @property
    def descriptor(self) -> int:
        """Return what bytes can be written to without a turn of the event loop."""
        return self.writer.get_extra_info("socket").fileno()

    async def request(self) -> bytes:
        """Read one request, count it and return all of it."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await self.reader.readexactly(int(length[1])) if length else b""
        self._peer.requests.append(head + body)
        return head + body

    async def say(self, *pieces: bytes) -> None:
        """Send pieces that the client reads one by one."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await turns()

    def drop(self) -> None:
        """End the connection at once; under TLS without a word."""
        self.writer.transport.abort()

    def reset(self) -> None:
        """End the connection so that the client sees a reset."""
        made = self.writer.get_extra_info("socket")
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def left(self) -> bytes:
        """Wait until the client ends the connection, and return what it sent until then."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""
        finally:
            self.over.set()


Script = Callable[[Line], Awaitable[None]]
#: Makes a script of the pieces that are sent before something happens.
Ending = Callable[..., Script]


class ScriptedPeer:
    """Runs its script for every connection, and keeps what was asked."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._tasks: set[asyncio.Task[None]] = set()
        self.lines: list[Line] = []
        self.requests: list[bytes] = []
        self.faults: list[Exception] = []
        self.port = 0

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(self, reader, writer)
        self.lines.append(line)
        task = asyncio.get_running_loop().create_task(self._run(line))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def closed(self) -> None:
        """Wait until the client has ended every connection whose script waits for that."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            for line in self.lines:
                await line.over.wait()

    async def stop(self) -> None:
        for line in self.lines:
            line.drop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, line: Line) -> None:
        try:
            await self._script(line)
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass  # the client had enough
        except Exception as error:  # noqa: BLE001 - told when the server ends
            self.faults.append(error)
        finally:
            line.over.set()
            line.writer.close()


@asynccontextmanager
async def scripted(
    script: Script, *, tls: ssl.SSLContext | None = None, limit: int = 2**20
) -> AsyncGenerator[ScriptedPeer]:
    """Serve on loopback while the block runs; a script that fails fails the test."""
    peer = ScriptedPeer(script)
    server = await asyncio.start_server(peer.connected, "127.0.0.1", 0, ssl=tls, limit=limit)
    peer.port = server.sockets[0].getsockname()[1]
    try:
        yield peer
    finally:
        server.close()
        await peer.stop()
        await server.wait_closed()
    if peer.faults:
        raise peer.faults[0]


# Scripts


def answering(*pieces: bytes) -> Script:
    """Answer every request of a connection with these pieces."""

    async def script(line: Line) -> None:
        try:
            while True:
                await line.request()
                await line.say(*pieces)
        finally:
            line.over.set()

    return script


def answering_once(*pieces: bytes) -> Script:
    """Answer the first request of a connection, and wait until the client ends it."""

    async def script(line: Line) -> None:
        await line.request()
        await line.say(*pieces)
        await line.left()

    return script


def closing(*pieces: bytes) -> Script:
    """Answer the first request of a connection, and end it properly."""

    async def script(line: Line) -> None:
        await line.request()
        await line.say(*pieces)

    return script


def dropping(*pieces: bytes) -> Script:
    """Answer the first request of a connection, and end it without a word of TLS."""

    async def script(line: Line) -> None:
        await line.request()
        await line.say(*pieces)
        line.drop()

    return script


def resetting(*pieces: bytes) -> Script:
    """Answer the first request of a connection, and reset it."""

    async def script(line: Line) -> None:
        await line.request()
        await line.say(*pieces)
        line.reset()

    return script


def stalling(*pieces: bytes) -> Script:
    """Answer the first request of a connection so far, and say no more."""
    return answering_once(*pieces)


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """Cut at the places, whatever their order; empty pieces are left out."""
    ends = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    pieces = [data[start:end] for start, end in pairwise(ends)]
    return [piece for piece in pieces if piece]
