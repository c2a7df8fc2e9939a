"""What is said in answer to one HTTP request, kept apart from the socket that carries it.

An ``Outlet`` is a log of what a call said so far: lines, and *fates*, things done to the connection
itself. An ``Exchange`` carries an outlet to one client as JSON or as events; a legacy client may
come back and read on where it stopped.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from aiohttp import web

from bascule.clock import Clock

JSON = "application/json"
EVENTS = "text/event-stream"


@dataclass(frozen=True)
class Fate:
    """Something done to the connection; a ``head`` can only be done before anything was said."""

    act: Callable[[Exchange], Awaitable[None]]
    head: bool = False


Item: TypeAlias = bytes | Fate | None  # None: happened, and does not happen again


class Outlet:
    """What one call, or one stream of a session, says: read by whoever is connected."""

    def __init__(self, number: int, *, resumable: bool) -> None:
        self.number = number
        self.resumable = resumable
        self.retry_ms: int | None = None
        self.hang_up = False  # close the connection after the answer, without a word
        self.finished = False
        self.items: list[Item] = []
        self._news = asyncio.Event()
        self._onwards: Outlet | None = None

    def say(self, lines: bytes) -> None:
        """Add lines, one frame each."""
        for line in lines.split(b"\n"):
            if line.strip():
                self.add(line)

    def add(self, item: Item) -> None:
        """Add a line or a fate."""
        if self._onwards is not None:
            self._onwards.add(item)
            return
        self.items.append(item)
        self._news.set()

    def finish(self) -> None:
        """Nothing more will be said."""
        self.finished = True
        self._news.set()

    def move_to(self, other: Outlet) -> None:
        """Say all of it on another stream: what was said, and what is still to come."""
        self._onwards = other
        for item in self.items:
            other.add(item)
        self.items = []

    async def first(self) -> None:
        """Wait until something was said, or never will be."""
        while not self.items and not self.finished:
            await self._more()

    async def read(self, position: int) -> AsyncGenerator[tuple[int, Item], None]:
        """Yield what was said from a position on, and then what comes."""
        while True:
            while position < len(self.items):
                item = self.items[position]
                if not self.resumable or isinstance(item, Fate):
                    self.items[position] = None
                position += 1
                yield position, item
            if self.finished:
                return
            await self._more()

    async def _more(self) -> None:
        self._news.clear()
        await self._news.wait()


@dataclass
class Exchange:
    """One HTTP request and how far its answer has got."""

    request: web.BaseRequest
    outlet: Outlet
    clock: Clock
    headers: dict[str, str] = field(default_factory=dict[str, str])
    answers_in_events: bool = False
    response: web.StreamResponse | None = None
    over: bool = False
    position: int = 0  # in the outlet, from where this client reads
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    @property
    def transport(self) -> asyncio.Transport | None:
        """The connection, while there is one."""
        return self.request.transport

    async def send(self, response: web.Response) -> None:
        """Answer with all of a response."""
        response.headers.update(self.headers)
        await self.open(response)
        await self.finish()

    async def open(self, response: web.StreamResponse) -> web.StreamResponse:
        """Send the head of a response, unless one is open already."""
        if self.response is None:
            self.response = response
            await response.prepare(self.request)
        return self.response

    async def open_json(self, headers: Mapping[str, str] | None = None) -> None:
        """Begin a JSON answer that comes in pieces."""
        own = {"Content-Type": JSON, **(headers or {}), **self.headers}
        await self.open(web.StreamResponse(headers=own))

    async def open_stream(self) -> None:
        """Begin a stream of events; one that can be resumed says so first."""
        if self.response is not None:
            return
        headers = {"Content-Type": EVENTS, "Cache-Control": "no-cache", **self.headers}
        await self.open(web.StreamResponse(headers=headers))
        retry = self.outlet.retry_ms
        hint = b"retry: %d\n" % retry if retry is not None else b""
        if self.outlet.resumable:
            await self.write(b"id: %d.%d\n%bdata: \n\n" % (self.outlet.number, self.position, hint))
        elif hint:
            await self.write(hint + b"\n")

    async def write(self, data: bytes) -> None:
        """Send more of an open response."""
        if self.response is not None:
            await self.response.write(data)

    def later(self, seconds: float, fate: Fate) -> None:
        """Do something to the connection after a while, if it lasts, and go on meanwhile."""

        async def wait() -> None:
            await self.clock.sleep(seconds)
            self.outlet.add(fate)

        task = asyncio.get_running_loop().create_task(wait())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def stream(self) -> None:
        """Carry the outlet as events, to its end."""
        try:
            await self._stream()
        finally:
            for task in self.tasks:
                task.cancel()

    async def _stream(self) -> None:
        async for after, item in self.outlet.read(self.position):
            if item is not None and not isinstance(item, Fate):
                await self.open_stream()
            self.position = after
            if isinstance(item, Fate):
                await item.act(self)
            elif item is not None:
                await self.write(self._event(item))
            if self.over:
                return
        if self.response is None:
            await self.open_stream()
        await self.finish()

    def _event(self, line: bytes) -> bytes:
        place = self.outlet.number, self.position
        name = b"id: %d.%d\n" % place if self.outlet.resumable else b""
        return b"%bevent: message\ndata: %b\n\n" % (name, line)

    async def finish(self) -> None:
        """End the response well; hang up if that was the plan."""
        self.over = True
        if self.response is not None:
            await self.response.write_eof()
        if self.outlet.hang_up and self.transport is not None:
            self.transport.close()

    def hang_up(self) -> None:
        """Close the connection in the middle of whatever is going on."""
        self.over = True
        if self.transport is not None:
            self.transport.close()

    def reset(self) -> None:
        """Have the client's side see a reset."""
        self.over = True
        reset(self.transport)


def reset(transport: asyncio.Transport | None) -> None:
    """Close a connection with RST: what was sent may be lost, and nothing is waited for."""
    if transport is None:
        return
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
