"""The clients that are compared over stdio, each in a process of its own.

``python -m bench.stdio_clients CLIENT LOOP SERVER CORE`` connects, then does as it is told line by
line: ``turns N`` (N calls one after the other) or ``crowd N`` (N calls, 64 at a time), each
answered with one line of figures. Between two lines it does nothing at all, so that rounds of
several clients may alternate. ``bench.stdio`` tells, and reads.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from timeit import default_timer
from typing import Any

import orjson
import uvloop

Call = Callable[[], Awaitable[str]]

AT_ONCE = 64
TEXT = ("The bridge is down until somebody who may cross asks for it. " * 4)[:200]
ARGUMENTS = {"text": TEXT}
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
async def bascule(server: str) -> AsyncGenerator[Call]:
    """Connect a session: policy, validation, budgets, leak scan, hygiene, ledger, all as usual."""
    from bascule import Bridge, Server

    budgets = {"max_concurrency": AT_ONCE}
    record = Server.stdio("bench", *command(server), budgets=budgets)
    async with (
        Bridge.open([record]) as bridge,
        bridge.session(server_ids=["bench"], caller="bench") as session,
    ):
        (tool,) = await session.tools()

        async def call() -> str:
            return (await session.call(tool.model_name, ARGUMENTS)).text

        yield call


CLIENTS = {"bare": bare, "lean": lean, "bascule": bascule, "sdk": sdk}


async def turns(call: Call, count: int) -> list[float]:
    """Make calls one after the other, and say how long each took."""
    taken: list[float] = []
    for _ in range(count):
        began = default_timer()
        text = await call()
        taken.append(default_timer() - began)
        assert text == TEXT
    return taken


async def crowd(call: Call, count: int) -> list[float]:
    """Make calls from many tasks at once."""
    shares = await asyncio.gather(*(turns(call, count // AT_ONCE) for _ in range(AT_ONCE)))
    return [taken for share in shares for taken in share]


async def measured(call: Call, order: str) -> dict[str, float]:
    """Do as told; microseconds per call, of time and of this process."""
    kind, count = order.split()
    began, busy = default_timer(), _cpu()
    taken = await {"turns": turns, "crowd": crowd}[kind](call, int(count))
    passed, used = default_timer() - began, _cpu() - busy
    figures = {"p50": median(taken), "min": min(taken), "each": passed / len(taken)}
    return {key: value * 1e6 for key, value in {**figures, "cpu": used / len(taken)}.items()}


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def serve(client: str, server: str) -> None:
    """Connect, say so, and follow orders until there are no more."""
    async with CLIENTS[client](server) as call:
        await turns(call, 1)
        print("{}", flush=True)
        for order in sys.stdin:
            print(json.dumps(await measured(call, order)), flush=True)


def main() -> None:
    """Stand where told, on one core or on any, and serve."""
    client, loop, server, core = sys.argv[1:]
    if core != "any":
        os.sched_setaffinity(0, {int(core)})
    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(client, server))


if __name__ == "__main__":
    main()
