"""A socket on loopback that counts its connections, and resets them when it stops."""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any, Self

from aiohttp import web

from bascule.clock import SYSTEM_CLOCK
from bascule.testing.http_outlet import reset

HOST = "127.0.0.1"
CLOSE_SECONDS = 1.0
ACCEPT_TURNS = 3  # of the event loop, from a socket to a connection


class Connections(web.Server):
    """Every open connection, numbered from one, and what it is busy with."""

    def __init__(self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> None:
        super().__init__(handler, handler_cancellation=True, access_log=None)
        self.numbers: dict[asyncio.Transport, int] = {}
        self.served: Counter[asyncio.Transport] = Counter()
        self.busy: Counter[asyncio.Transport] = Counter()
        self.made = 0
        self.stopped = False

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        """Number a new connection, and forget those that are gone."""
        super().connection_made(handler, transport)
        if self.stopped:  # it was accepted when that was not yet so
            reset(transport)
            return
        for known in [known for known in self.numbers if known.is_closing()]:
            self.numbers.pop(known)
            self.served.pop(known, None)
            self.busy.pop(known, None)
        self.made += 1
        self.numbers[transport] = self.made

    @property
    def open(self) -> list[asyncio.Transport]:
        """The connections that are not closed."""
        return [transport for transport in self.numbers if not transport.is_closing()]


class HttpListener(ABC):
    """What listens while the ``async with`` block lasts, from the second time at the same port."""

    port: int
    _connections: Connections | None = None
    _listener: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen; from the second time on at the same port."""
        await self._listen()

    async def stop(self) -> None:
        """Stop listening and reset every connection, whatever is going on there."""
        if self._listener is None or self._connections is None:
            return
        await _stop_accepting(self._listener)
        self._listener.close()
        self._connections.stopped = True
        for transport in self._connections.open:
            reset(transport)
        self._forsake()
        await self._connections.shutdown(CLOSE_SECONDS)
        await self._listener.wait_closed()
        self._listener = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def connections_made(self) -> int:
        """How many connections were made since the last start."""
        return self._connections.made if self._connections else 0

    async def _listen(self, tls: ssl.SSLContext | None = None) -> None:
        self._connections = Connections(self._handle)
        self._listener = await asyncio.get_running_loop().create_server(
            self._connections, HOST, self.port, ssl=tls, reuse_address=True
        )
        self.port = self._listener.sockets[0].getsockname()[1]

    @abstractmethod
    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse: ...

    @cached_property
    def _news(self) -> asyncio.Event:
        return asyncio.Event()

    async def _until(self, true: Callable[[], bool]) -> None:
        while not true():
            self._news.clear()
            await self._news.wait()

    def _forsake(self) -> None:  # noqa: B027 - most have nothing behind them
        """End what goes on behind connections that were just reset."""


async def _stop_accepting(listener: asyncio.Server) -> None:
    """Let what is being accepted become a connection; asyncio would lose it in a close."""
    for listening in listener.sockets:
        asyncio.get_running_loop().remove_reader(listening.fileno())
    for _ in range(ACCEPT_TURNS):
        await SYSTEM_CLOCK.sleep(0)
