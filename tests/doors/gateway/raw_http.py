"""Requests to a gateway byte by byte, as no client library would send them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from tests.doors.gateway.stream_site import Peer, Stream
from tests.waits import SOON_SECONDS

Json = dict[str, Any]
Fields = list[tuple[str, str]]
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


@dataclass
class RawAnswer:
    """An answer as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        return json.loads(self.body)


class Line(Stream):
    """One connection, for as many requests as one likes."""

    async def answer(self) -> RawAnswer:
        """Read one answer whose length is told."""
        async with asyncio.timeout(SOON_SECONDS):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = dict(line.split(": ", 1) for line in head[1:] if line)
            length = int(headers.get("content-length", "0"))
            body = await self.reader.readexactly(length)
        return RawAnswer(int(head[0].split(" ")[1]), headers, body)


async def line_of(peer: Peer) -> Line:
    """Open a connection; it ends with the site, if not before."""
    line = Line(*await asyncio.open_connection("127.0.0.1", peer.site.port))
    peer.site.streams.append(line)
    return line


def fields_of(peer: Peer) -> Fields:
    """Return the headers that a peer sends with everything."""
    found = [("Host", f"127.0.0.1:{peer.site.port}"), ("Authorization", f"Bearer {peer.token}")]
    return [*found, ("Mcp-Session-Id", peer.session)] if peer.session else found


def head_of(verb: str, path: str, fields: Fields, version: str = "HTTP/1.1") -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
    return f"{verb} {path} {version}\r\n{lines}\r\n".encode("latin-1")


def posted(
    peer: Peer, body: bytes, fields: Fields | None = None, *, verb: str = "POST", **more: str
) -> bytes:
    """Return a request with a body, as a peer would send it, and these headers besides."""
    own = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    given = [*fields_of(peer), *own, *(fields or [])]
    return head_of(verb, more.get("path", peer.route), given) + body


async def exchanged(peer: Peer, request: bytes) -> RawAnswer:
    """Send bytes; return the first answer."""
    line = await line_of(peer)
    line.writer.write(request)
    try:
        return await line.answer()
    finally:
        line.close()
