"""A server in a thread of its own that ends connections when it likes, and knows what it did."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal, TypeAlias

from tests.waits import DEADLINE_SECONDS

#: When a connection ends: with its n-th answer (and a word about it, or none), instead of it,
#: or while the client takes it to be idle.
Ending: TypeAlias = Literal["told", "untold", "unanswered", "idle", "with the next"]


class Racing(asyncio.Protocol):
    """Answers ``POST /number`` with the number, and ends the connection with every n-th."""

    def __init__(self, server: RacingServer) -> None:
        self._server = server
        self._data = b""
        self._count = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.connections += 1

    def data_received(self, data: bytes) -> None:
        self._data += data
        while b"\r\n\r\n" in self._data:
            head, _, rest = self._data.partition(b"\r\n\r\n")
            length = 2 if head.startswith(b"POST") else 0
            if len(rest) < length:
                return
            self._data = rest[length:]
            self._execute(head.split(b" ", 2)[1].lstrip(b"/"))

    def _execute(self, number: bytes) -> None:
        assert self._transport is not None
        server = self._server
        server.executed[int(number)] += 1
        self._count += 1
        last = self._count == server.each
        if last and server.ending == "unanswered":
            self._transport.close()
            return
        told = b"Connection: close\r\n" if last and server.ending == "told" else b""
        length = b"Content-Length: %d\r\n\r\n%s" % (len(number), number)
        self._transport.write(b"HTTP/1.1 200 OK\r\n" + told + length)
        if not last:
            return
        if server.ending == "idle":
            asyncio.get_running_loop().call_later(server.idle_seconds, self._transport.close)
        elif server.ending == "with the next":
            # In the moment in which the client reads the answer and may send the next request.
            asyncio.get_running_loop().call_soon(self._transport.close)
        else:
            self._transport.close()


class RacingServer:
    """What it was asked, counted by number."""

    def __init__(self, ending: Ending, each: int, idle_seconds: float) -> None:
        self.ending = ending
        self.each = each
        self.idle_seconds = idle_seconds
        self.executed: Counter[int] = Counter()
        self.connections = 0
        self.port = 0

    async def serve(self, ready: threading.Event, over: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Racing(self), "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        async with server:
            await over.wait()


@contextmanager
def racing(ending: Ending, each: int, idle_seconds: float = 0.001) -> Generator[RacingServer]:
    """Serve from another thread while the block runs."""
    made = RacingServer(ending, each, idle_seconds)
    ready, over = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(made.serve(ready, over))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(DEADLINE_SECONDS)
        yield made
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(DEADLINE_SECONDS)
