"""A server of the official SDK over streamable HTTP: says its URL, lives until its input closes."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys

import uvicorn
from mcp.server import MCPServer

server = MCPServer("sdk")


@server.tool()
def echo(text: str) -> str:
    """Give back the text."""
    return text


async def main() -> None:
    """Serve on a free port."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        server.streamable_http_app(json_response=True), log_level="error", timeout_keep_alive=300
    )
    running = uvicorn.Server(config)
    serving = asyncio.create_task(running.serve(sockets=[listening]))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    running.should_exit = True
    await serving


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main())
