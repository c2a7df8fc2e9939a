"""What a pooler of transactions does to those who listen: every word passes, but no NOTIFY."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

_PORT = 5432
_NOTIFICATION = b"A"
_LENGTH_BYTES = 4
_WORDS = b"SFATAL\0C08P01\0Munsupported startup parameter: statement_timeout\0\0"
_REFUSAL = b"E" + (len(_WORDS) + _LENGTH_BYTES).to_bytes(_LENGTH_BYTES) + _WORDS


@asynccontextmanager
async def deaf_pooler(dsn: str, folder: Path, *, strict: bool = False) -> AsyncGenerator[str, None]:
    """Stand before a server, on a socket in a folder; yield the DSN that leads through here.

    A ``strict`` one takes no connection that brings settings of its own, as PgBouncer does.
    """
    talks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await _message(reader)
        if strict and b"statement_timeout" in first:
            writer.write(_REFUSAL)
            writer.close()
            return
        there, here = await connected(dsn)
        here.write(first)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_passed(reader, here))
                both.create_task(_passed_but_for_words(there, writer))
        finally:
            here.close()
            writer.close()

    def began(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(talk(reader, writer))
        talks.add(task)

    server = await asyncio.start_unix_server(began, folder / f".s.PGSQL.{_PORT}")
    try:
        yield through(dsn, folder)
    finally:
        server.close()
        for task in talks:
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)
        await server.wait_closed()


async def _message(reader: asyncio.StreamReader) -> bytes:
    """Return the first message of a connection, which has no kind."""
    head = await reader.readexactly(_LENGTH_BYTES)
    return head + await reader.readexactly(int.from_bytes(head) - _LENGTH_BYTES)


async def connected(dsn: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the server of a DSN."""
    parts = urlsplit(dsn)
    [host] = parse_qs(parts.query).get("host", [parts.hostname or ""])
    if host.startswith("/"):
        return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{parts.port or _PORT}")
    return await asyncio.open_connection(host, parts.port or _PORT)


def through(dsn: str, folder: Path) -> str:
    """Return a DSN that leads to a socket in a folder instead."""
    parts = urlsplit(dsn)
    who, at, _ = parts.netloc.rpartition("@")
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    more = urlencode({**query, "host": str(folder), "sslmode": "disable"})
    return parts._replace(netloc=f"{who}{at}", query=more).geturl()


async def _passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while content := await reader.read(65_536):
            writer.write(content)
            await writer.drain()
    writer.close()


async def _passed_but_for_words(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = await reader.readexactly(1 + _LENGTH_BYTES)
            body = await reader.readexactly(int.from_bytes(head[1:]) - _LENGTH_BYTES)
            if head[:1] != _NOTIFICATION:
                writer.write(head + body)
                await writer.drain()
    writer.close()
