"""Passes HTTP/1.1 on to another port, with a credential in every request, which the suite lacks.

Everything else goes through byte for byte as it comes, in both directions.
"""

from __future__ import annotations

import asyncio
import re
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

HERE = "127.0.0.1"
_AT_ONCE = 65_536
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


@asynccontextmanager
async def relaying(url: str, token: str) -> AsyncGenerator[str]:
    """Pass requests on to a server as the owner of a token; give the URL to send them to."""
    line = f"Authorization: Bearer {token}\r\n".encode()
    port = urlsplit(url).port

    async def serve(reading: StreamReader, writing: StreamWriter) -> None:
        answers, requests = await asyncio.open_connection(HERE, port)
        ways = [_pass_requests(reading, requests, line), _pass_bytes(answers, writing)]
        tasks = [asyncio.create_task(way) for way in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            requests.close()
            writing.close()

    async with await asyncio.start_server(serve, HERE, 0) as listening:
        yield f"http://{HERE}:{listening.sockets[0].getsockname()[1]}"


async def _pass_requests(reading: StreamReader, writing: StreamWriter, line: bytes) -> None:
    """Add a line to the head of each request; ends when the client hangs up."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = await reading.readuntil(b"\r\n\r\n")
            assert b"\r\ntransfer-encoding:" not in head.lower(), "the suite sends whole bodies"
            first, _, rest = head.partition(b"\r\n")
            length = _LENGTH.search(head)
            body = await reading.readexactly(int(length[1]) if length else 0)
            writing.write(b"".join((first, b"\r\n", line, rest, body)))
            await writing.drain()


async def _pass_bytes(reading: StreamReader, writing: StreamWriter) -> None:
    with suppress(ConnectionError):
        while some := await reading.read(_AT_ONCE):
            writing.write(some)
            await writing.drain()
