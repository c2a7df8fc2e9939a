"""A way to a server on which a commit arrives and its answer does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from bascule.lifetime import Tasks
from tests.postgres.cluster import Cluster

_SOCKET = ".s.PGSQL.5432"
_CHUNK = 65_536


class LostAnswers:
    """Passes every word on until it is told to lose the answer of the next commit.

    With that answer everybody is cut off, and nobody let in while it is ``away``.
    """

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.dsn = f"postgresql://postgres@/postgres?host={folder}"
        self.loses = False
        self.away = False
        self._there = cluster.folder / _SOCKET
        self._heard: set[asyncio.StreamWriter] = set()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        if not self.away:
            self._heard.add(writer)
            there, to = await asyncio.open_unix_connection(self._there)
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._ask(reader, to))
                    both.create_task(_answer(there, writer))
            finally:
                self._heard.discard(writer)
                to.close()
        writer.close()

    async def _ask(self, reader: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(_CHUNK):
                if self.loses and b"COMMIT" in chunk:
                    self.loses, self.away = False, True
                    for writer in self._heard:
                        writer.transport.abort()
                to.write(chunk)
                await to.drain()
        to.write_eof()


async def _answer(there: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await there.read(_CHUNK):
            back.write(chunk)
            await back.drain()
    back.close()


@asynccontextmanager
async def lost_answers(cluster: Cluster, folder: Path) -> AsyncGenerator[LostAnswers, None]:
    """Stand before a server, on a socket in a folder."""
    way, tasks = LostAnswers(cluster, folder), Tasks()

    def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.start(way.talk(reader, writer))

    server = await asyncio.start_unix_server(met, folder / _SOCKET)
    try:
        yield way
    finally:
        server.close()
        await tasks.end()
        await server.wait_closed()
