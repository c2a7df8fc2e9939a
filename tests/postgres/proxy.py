"""One TCP address before several processes: whoever connects is joined to one that is up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from bascule.lifetime import Tasks

_CHUNK = 65_536
_CONNECT_SECONDS = 5.0


class Proxy:
    """Passes bytes on, as a load balancer in front of replicas does."""

    def __init__(self, *ports: int) -> None:
        self._ports = list(ports)
        self.port = 0

    async def _joined(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Connect to whichever is up, each in turn first."""
        self._ports.append(self._ports.pop(0))
        for port in tuple(self._ports):
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CONNECT_SECONDS):
                    return await asyncio.open_connection("127.0.0.1", port)
        return None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Join one connection to a process until either hangs up."""
        async with _hung_up(writer):
            found = await self._joined()
            if found is None:
                return
            there, to = found
            async with _hung_up(to), asyncio.TaskGroup() as both:
                both.create_task(_pass_on(reader, to))
                both.create_task(_pass_on(there, writer))


@asynccontextmanager
async def _hung_up(writer: asyncio.StreamWriter) -> AsyncGenerator[None]:
    """Hang up when the block ends, however it does."""
    try:
        yield
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await source.read(_CHUNK):
            target.write(chunk)
            await target.drain()
    target.close()


@asynccontextmanager
async def proxy(*urls: str) -> AsyncGenerator[str]:
    """Listen before some addresses, as ``http://HOST:PORT``; yield the one for all of them."""
    front = Proxy(*(int(url.rpartition(":")[2]) for url in urls))
    tasks = Tasks()

    def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.start(front.serve(reader, writer))

    server = await asyncio.start_server(met, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await tasks.end()
        await server.wait_closed()
