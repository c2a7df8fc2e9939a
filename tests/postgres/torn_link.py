"""A link to PostgreSQL that breaks while a commit is under way, so that nobody hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal

from tests.postgres.deaf_pooler import connected, through

_CHUNK = 65_536
_COMMIT = b"COMMIT"
#: When the link breaks: before the commit arrives, after it was answered, or at once while the
#: commit arrives later.
Break = Literal["before", "after", "while"]


class TornLink:
    """Stands before a server, and breaks when it is told to."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = through(dsn, folder)
        self._server = dsn
        #: How the commit of the next transaction goes that has the word; None: well.
        self.next: Break | None = None
        self.word = b""
        #: Set: what was held back arrives.
        self.arrives = asyncio.Event()
        self.broken = 0
        #: Whether nobody gets through any more, once a commit broke or from now on.
        self.goes_down = self.down = False
        self.talks: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Let nobody through any more."""
        self.down = True
        for task in self.talks:
            if task is not asyncio.current_task():
                task.cancel()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass words on until either hangs up, or the link breaks."""
        if self.down:
            writer.close()
            return
        there, here = await connected(self._server)
        try:
            back = asyncio.ensure_future(_passed(there, writer))
            try:
                said = b""
                while content := await reader.read(_CHUNK):
                    said += content
                    if _COMMIT not in content:
                        pass
                    elif self.next is None or self.word not in said:
                        said = b""
                    else:
                        back.cancel()
                        await asyncio.wait({back})
                        await self._break(content, there, here, writer)
                        return
                    here.write(content)
                    await here.drain()
            finally:
                back.cancel()
        finally:
            here.close()
            writer.close()

    async def _break(
        self,
        content: bytes,
        there: asyncio.StreamReader,
        here: asyncio.StreamWriter,
        writer: asyncio.StreamWriter,
    ) -> None:
        how, self.next = self.next, None
        self.broken += 1
        if how == "while":
            writer.close()
            await self.arrives.wait()
        if how != "before":
            here.write(content)
            await here.drain()
            await there.read(_CHUNK)
        if self.goes_down:
            self.cut()


async def _passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while content := await reader.read(_CHUNK):
            writer.write(content)
            await writer.drain()


@asynccontextmanager
async def torn_link(dsn: str, folder: Path) -> AsyncGenerator[TornLink, None]:
    """Lead to a server through a socket in a folder."""
    link = TornLink(dsn, folder)

    def began(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.get_running_loop().create_task(link.talk(reader, writer))
        talk.add_done_callback(lambda _: writer.close())  # also of one that was cut before it began
        link.talks.add(talk)

    server = await asyncio.start_unix_server(began, folder / ".s.PGSQL.5432")
    try:
        yield link
    finally:
        server.close()
        link.cut()
        await asyncio.gather(*link.talks, return_exceptions=True)
        await server.wait_closed()
