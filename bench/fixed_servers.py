"""Servers that give every request one fixed answer: what the wire of each kind costs.

``python -m bench.fixed_servers KIND`` prints its URL and lives until its input closes.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import httptools
import orjson
import uvloop

from bench.serving import TEXT

HOST = "127.0.0.1"
BODY = orjson.dumps({"ok": True, "text": TEXT})
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
ANSWER = HEAD % len(BODY) + BODY
START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))],
}
END = {"type": "http.response.body", "body": BODY}


class Connection(asyncio.Protocol):
    """A protocol of our own on httptools."""

    def connection_made(self, transport: Any) -> None:  # uvloop's is no asyncio.Transport
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._transport.write(ANSWER)


async def application(scope: Any, receive: Any, send: Any) -> None:
    """A bare ASGI application: it reads the body and answers."""
    del scope
    while (await receive()).get("more_body"):
        pass
    await send(START)
    await send(END)


async def own_protocol(listening: socket.socket, ended: asyncio.Event) -> None:
    server = await asyncio.get_running_loop().create_server(Connection, sock=listening)
    await ended.wait()
    server.close()


async def on_uvicorn(listening: socket.socket, ended: asyncio.Event) -> None:
    await _uvicorn(application, listening, ended)


async def starlette_route(listening: socket.socket, ended: asyncio.Event) -> None:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def answer(request: Request) -> Response:
        await request.body()
        return Response(BODY, media_type="application/json")

    app = Starlette(routes=[Route("/{rest:path}", answer, methods=["POST", "GET"])])
    await _uvicorn(app, listening, ended)


async def _uvicorn(app: Any, listening: socket.socket, ended: asyncio.Event) -> None:
    import uvicorn

    config = uvicorn.Config(
        app, http="httptools", lifespan="off", log_level="error", timeout_keep_alive=300
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    await ended.wait()
    server.should_exit = True
    await serving


KINDS: dict[str, Callable[[socket.socket, asyncio.Event], Awaitable[None]]] = {
    "own protocol": own_protocol,
    "uvicorn": on_uvicorn,
    "starlette": starlette_route,
}


async def main(kind: str) -> None:
    """Listen, say where, and end with the input."""
    listening = socket.create_server((HOST, 0), backlog=1024)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, lambda: os.read(0, 4096) or ended.set())
    print(f"http://{HOST}:{listening.getsockname()[1]}", flush=True)
    await KINDS[kind](listening, ended)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
