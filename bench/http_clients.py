"""The clients that are compared over HTTP, each in a process of its own.

``python -m bench.http_clients CLIENT LOOP SERVER CORE``; see ``serving``. Every client has a server
process of its own, on the same core.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path

import orjson

from bench.caller import Bare, connected
from bench.machine import ROOT
from bench.serving import ARGUMENTS, AT_ONCE, Call, main

SERVERS = {"floor": "floor_http_server.py", "sdk": "sdk_http_server.py"}
MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}
PARAMS = {"name": "echo", "arguments": ARGUMENTS, "_meta": META}
HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": MODERN,
    "Mcp-Method": "tools/call",
    "Mcp-Name": "echo",
}


@contextmanager
def serving(server: str) -> Generator[str]:
    """Start an MCP server."""
    with running(str(Path(__file__).with_name(SERVERS[server]))) as (url, _):
        yield url


@contextmanager
def running(*words: str) -> Generator[tuple[str, int]]:
    """Start a server: its URL, which it says first, and its process; it ends with its input."""
    with subprocess.Popen(
        [sys.executable, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process.pid
        process.stdin.close()


def frame(number: int, params: object = PARAMS, method: str = "tools/call") -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def text_of(body: bytes) -> str:
    """The text of an answer; a server that streams puts its JSON behind ``data:``."""
    data = body if body[:1] == b"{" else body.partition(b"data: ")[2]
    return orjson.loads(data)["result"]["content"][0]["text"]


@asynccontextmanager
async def on_httptools(server: str) -> AsyncGenerator[Call]:
    """A protocol of our own: one POST, its answer, no check of anything."""
    with serving(server) as url:
        async with posting(url, HEADERS, PARAMS) as call:
            yield call


@asynccontextmanager
async def posting(
    url: str,
    headers: Mapping[str, str],
    params: object,
    method: str = "tools/call",
    read: Callable[[bytes], str] = text_of,
) -> AsyncGenerator[Call]:
    """Make a request by bare connections, again and again."""
    numbers = count(1)
    async with connected([Bare(url, headers) for _ in range(AT_ONCE)]) as free:

        async def call() -> str:
            caller = free.pop()
            answer = await caller.send(frame(next(numbers), params, method))
            free.append(caller)
            return read(answer)

        yield call


@asynccontextmanager
async def on_aiohttp(server: str) -> AsyncGenerator[Call]:
    """A bare aiohttp loop: one session, one POST a call, no check of anything."""
    import aiohttp

    connector = aiohttp.TCPConnector(limit=AT_ONCE * 2)
    with serving(server) as url:
        async with aiohttp.ClientSession(connector=connector) as session:
            numbers = count()

            async def call() -> str:
                async with session.post(
                    url, data=frame(next(numbers)), headers=HEADERS
                ) as response:
                    return text_of(await response.read())

            yield call


@asynccontextmanager
async def on_pyreqwest(server: str) -> AsyncGenerator[Call]:
    """The same on a client in Rust."""
    from pyreqwest.client import ClientBuilder  # pyright: ignore[reportMissingImports]

    with serving(server) as url:
        async with ClientBuilder().build() as client:
            numbers = count()

            async def call() -> str:
                request = client.post(url).headers(HEADERS).body_bytes(frame(next(numbers)))
                response = await request.build().send()
                return text_of(bytes(await response.bytes()))

            yield call


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


CLIENTS = {
    "httptools": on_httptools,
    "aiohttp": on_aiohttp,
    "pyreqwest": on_pyreqwest,
    "bascule": bascule,
    "sdk": sdk,
}

if __name__ == "__main__":
    main(CLIENTS)
