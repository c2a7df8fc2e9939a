"""The clients that are compared over stdio, each in a process of its own.

``python -m bench.stdio_clients CLIENT LOOP SERVER CORE``; see ``serving``.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from bench.serving import ARGUMENTS, AT_ONCE, Call, main

if TYPE_CHECKING:
    from bascule.audit.ledger import Ledger

SERVERS = {name: Path(__file__).with_name(f"{name}_server.py") for name in ("floor", "sdk")}


def command(server: str) -> tuple[str, str]:
    """How a server is started: the same for every client."""
    return sys.executable, str(SERVERS[server])


class Raw:
    """As little as a client can do: an id, a future, one write, one parse.

    No deadline, no cap, no cancellation, no check of anything: a floor, not a product.
    """

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._write = write
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last = 0
        self._rest = b""

    async def greet(self) -> None:
        """Make the handshake."""
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}}
        await self.request("initialize", {**hello, "clientInfo": {"name": "raw", "version": "1"}})
        self._write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')

    def request(self, method: str, params: Any) -> asyncio.Future[Any]:
        """Send a request; the future is its result."""
        self._last = key = self._last + 1
        future = self._waiting[key] = self._loop.create_future()
        frame = {"jsonrpc": "2.0", "id": key, "method": method, "params": params}
        self._write(orjson.dumps(frame) + b"\n")
        return future

    async def call(self) -> str:
        """Call the tool."""
        result = await self.request("tools/call", {"name": "echo", "arguments": ARGUMENTS})
        return result["content"][0]["text"]

    def feed(self, data: bytes) -> None:
        """Take what was read."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            message = orjson.loads(line)
            self._waiting.pop(message["id"]).set_result(message["result"])


@asynccontextmanager
async def bare(server: str) -> AsyncGenerator[Call]:
    """Connect the floor by plain reads and writes on two pipes: nothing can be less."""
    with subprocess.Popen(  # noqa: ASYNC220 - before anything is measured
        command(server), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        loop, output = asyncio.get_running_loop(), process.stdout.fileno()
        client = Raw(partial(os.write, process.stdin.fileno()))
        loop.add_reader(output, lambda: client.feed(os.read(output, 1 << 16)))
        await client.greet()
        yield client.call
        loop.remove_reader(output)


class _Subprocess(asyncio.SubprocessProtocol):
    """Hands what a process writes to a client."""

    client: Raw

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.client.feed(data)


@asynccontextmanager
async def lean(server: str) -> AsyncGenerator[Call]:
    """Connect the same client by the event loop's own subprocesses, as one would write it."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(_Subprocess, *command(server), stderr=None)
    stdin: Any = transport.get_pipe_transport(0)  # uvloop's is no asyncio.WriteTransport
    protocol.client = client = Raw(stdin.write)
    await client.greet()
    yield client.call
    transport.close()


@asynccontextmanager
async def sdk(server: str) -> AsyncGenerator[Call]:
    """Connect the official SDK's client."""
    from mcp import ClientSession
    from mcp.client.stdio import StdioServerParameters, stdio_client
    from mcp_types import TextContent

    executable, script = command(server)
    parameters = StdioServerParameters(command=executable, args=[script])
    async with (
        stdio_client(parameters) as (reader, writer),
        ClientSession(reader, writer) as session,
    ):
        await session.initialize()
        await session.list_tools()

        async def call() -> str:
            block = (await session.call_tool("echo", ARGUMENTS)).content[0]
            return block.text if isinstance(block, TextContent) else ""

        yield call


@asynccontextmanager
async def bascule(server: str, ledger: Ledger | None = None) -> AsyncGenerator[Call]:
    """Connect a session: policy, validation, budgets, leak scan, hygiene, ledger, all as usual."""
    from bascule import Bridge, Server

    budgets = {"max_concurrency": AT_ONCE}
    record = Server.stdio("bench", *command(server), budgets=budgets)
    async with (
        Bridge.open([record], ledger=ledger) as bridge,
        bridge.session(server_ids=["bench"], caller="bench") as session,
    ):
        (tool,) = await session.tools()

        async def call() -> str:
            return (await session.call(tool.model_name, ARGUMENTS)).text

        yield call


CLIENTS = {"bare": bare, "lean": lean, "bascule": bascule, "sdk": sdk}


if __name__ == "__main__":
    main(CLIENTS)
