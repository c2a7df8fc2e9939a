"""The clients that are compared over HTTP, each in a process of its own.

``python -m bench.http_clients CLIENT LOOP SERVER CORE``; see ``serving``. Every client has a server
process of its own, on the same core.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import orjson

from bench.serving import ARGUMENTS, AT_ONCE, Call, main

SERVERS = {"floor": "floor_http_server.py", "sdk": "sdk_http_server.py"}
MODERN = "2026-07-28"


@contextmanager
def serving(server: str) -> Generator[str]:
    """Start a server; it says its URL first and ends when its input closes."""
    script = Path(__file__).with_name(SERVERS[server])
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


@asynccontextmanager
async def bare(server: str) -> AsyncGenerator[Call]:
    """A bare aiohttp loop: one session, one POST a call, no check of anything."""
    import aiohttp

    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "echo",
    }
    params = {"name": "echo", "arguments": ARGUMENTS, "_meta": meta}
    connector = aiohttp.TCPConnector(limit=AT_ONCE * 2)
    with serving(server) as url:
        async with aiohttp.ClientSession(connector=connector) as session:
            number = 0

            async def call() -> str:
                nonlocal number
                number += 1
                frame = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
                async with session.post(url, data=orjson.dumps(frame), headers=headers) as response:
                    reply = orjson.loads(_data(await response.read()))
                return reply["result"]["content"][0]["text"]

            yield call


def _data(body: bytes) -> bytes:
    """The JSON of an answer; a server that streams puts it behind ``data:``."""
    return body if body[:1] == b"{" else body.partition(b"data: ")[2]


@asynccontextmanager
async def sdk(server: str) -> AsyncGenerator[Call]:
    """The official SDK's client."""
    from mcp import Client
    from mcp_types import TextContent

    with serving(server) as url:
        async with Client(url) as client:
            await client.list_tools()

            async def call() -> str:
                block = (await client.call_tool("echo", ARGUMENTS)).content[0]
                return block.text if isinstance(block, TextContent) else ""

            yield call


@asynccontextmanager
async def bascule(server: str) -> AsyncGenerator[Call]:
    """A session: policy, validation, budgets, leak scan, hygiene, ledger, all as usual."""
    from bascule import Bridge, Server

    with serving(server) as url:
        record = Server.http("bench", url, budgets={"max_concurrency": AT_ONCE})
        async with (
            Bridge.open([record]) as bridge,
            bridge.session(server_ids=["bench"], caller="bench") as session,
        ):
            (tool,) = await session.tools()

            async def call() -> str:
                return (await session.call(tool.model_name, ARGUMENTS)).text

            yield call


CLIENTS = {"bare": bare, "bascule": bascule, "sdk": sdk}

if __name__ == "__main__":
    main(CLIENTS)
