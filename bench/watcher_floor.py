"""The leanest fan-out in asyncio: what one connection sends goes to all the others, as it came.

It prints its port, and ends when its input does.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

#: As many as connect at once.
BACKLOG = 1_024


class FanOut(asyncio.Protocol):
    """One connection of all."""

    def __init__(self, everyone: set[asyncio.WriteTransport]) -> None:
        self._everyone = everyone

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._own = transport
        self._everyone.add(transport)

    def data_received(self, data: bytes) -> None:
        self._everyone.discard(self._own)
        for transport in self._everyone:
            transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._everyone.discard(self._own)


async def serve() -> None:
    """Serve on loopback until nobody needs it any more."""
    loop, everyone = asyncio.get_running_loop(), set[asyncio.WriteTransport]()
    server = await loop.create_server(lambda: FanOut(everyone), "127.0.0.1", 0, backlog=BACKLOG)
    async with server:
        print(server.sockets[0].getsockname()[1], flush=True)
        over: asyncio.Future[Any] = loop.create_future()
        loop.add_reader(sys.stdin.fileno(), over.set_result, None)
        await over
        loop.remove_reader(sys.stdin.fileno())


if __name__ == "__main__":
    asyncio.run(serve())
