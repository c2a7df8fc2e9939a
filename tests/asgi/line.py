"""A connection without a socket: what a protocol writes, piece by piece."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from bascule.asgi.bounded_http import BoundedHttp
from bascule.asgi.connections import Caps, Connections


class Line(asyncio.Transport):
    """The transport of one connection."""

    def __init__(self) -> None:
        super().__init__({"sockname": ("127.0.0.1", 1), "peername": ("127.0.0.1", 2)})
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        if not self.closed:
            self.writes.append(bytes(data))

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """Nothing comes by itself."""

    def resume_reading(self) -> None:
        """Nothing comes by itself."""


def connected(app: Any, kind: type[HttpToolsProtocol]) -> tuple[HttpToolsProtocol, Line]:
    """Return a protocol that has just been connected, and its line."""
    config = Config(
        app,
        interface="asgi3",
        ws="none",
        lifespan="off",
        log_config=None,
        proxy_headers=False,
        server_header=False,
    )
    protocol = kind(config=config, server_state=ServerState(), app_state={})
    line = Line()
    protocol.connection_made(line)
    return protocol, line


def bounded() -> type[BoundedHttp]:
    """Return the protocol as a server of its own would have it."""
    own = {"connections_held": Connections(Caps()), "draining": asyncio.Event()}
    return type("Http", (BoundedHttp,), own)


async def settled(protocol: HttpToolsProtocol) -> None:
    """Wait until every request that came is answered."""
    async with asyncio.timeout(20):
        while protocol.tasks:
            await asyncio.wait(set(protocol.tasks))
            await asyncio.sleep(0)  # noqa: TID251 - lets the callbacks of the tasks run
