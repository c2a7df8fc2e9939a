"""``bascule up``: from the start to the first call, what the tools API adds, a change in force.

A real process with its data directory on disk. A call through the API alternates with the same
call by ``session.call`` in this process, both over the same stdio server; the client is a bare
socket, so that the figure is the server's and not a client library's.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from bascule import Bridge
from bascule.auth.token_store import open_tokens
from bascule.clock import SYSTEM_CLOCK
from bench.table import Row, at_most

NAME = "up"
STARTS = 5
ROUNDS = 20
CALLS = 100
CHANGES = 100
READY = b"Bascule serves at "
FLOOR = Path(__file__).with_name("floor_server.py")
RECORD = f"""\
server_id = "floor"
transport = "stdio"
allowed_tools = ["echo"]
[stdio]
command = {json.dumps(sys.executable)}
args = [{json.dumps(str(FLOOR))}]
"""
TASK = """\
task_id = "bench"
[mcp]
enabled = true
default_server_ids = ["floor"]
"""
TOOL, ARGUMENTS = "mcp__floor__echo", {"text": "hello"}
CALL = {"name": TOOL, "arguments": ARGUMENTS}


def run() -> list[Row]:
    """Start it some times; then measure on one that runs."""
    return asyncio.run(_run())


async def _run() -> list[Row]:
    with TemporaryDirectory() as folder:
        site = await make_site(Path(folder))
        starts = [await _start_to_first_call(site) for _ in range(STARTS)]
        async with served(site) as (url, pid), Caller(url, site.client) as client:
            await client.post("/api/v1/tools/call", CALL)
            over = await _overhead(client, site)
            memory = _rss(pid)
            async with Caller(url, site.admin) as admin:
                changes = await _changes(admin, client)
    return [
        at_most("start to first served call, p50", median(s for s, _ in starts), "s", 1.5),
        at_most("POST /api/v1/tools/call over session.call, p50", over["over"], "ms", 0.6),
        Row("POST /api/v1/tools/call, p50", over["api"], "ms"),
        Row("session.call on the same server, p50", over["session"], "ms"),
        at_most("a change in force at the node, p50", median(changes), "ms", 50),
        Row("a change in force at the node, worst", max(changes), "ms"),
        Row("resident memory after the first call", median(m for _, m in starts), "MB"),
        Row(f"resident memory after {ROUNDS * CALLS} calls", memory, "MB"),
    ]


class Site:
    """A data directory, its records, and a token for each of two roles."""

    def __init__(self, folder: Path, client: str, admin: str) -> None:
        self.data = folder / "data"
        self.records = folder / "records"
        self.client = client
        self.admin = admin


async def make_site(folder: Path) -> Site:
    records = folder / "records"
    (records / "tasks").mkdir(parents=True)
    (records / "floor.toml").write_text(RECORD, encoding="utf-8")
    (records / "tasks" / "bench.toml").write_text(TASK, encoding="utf-8")
    async with open_tokens(folder / "data") as tokens:
        client = await tokens.mint("bench", "client", task_id="bench")
        admin = await tokens.mint("bench", "admin")
    # As the command does that makes tokens before the first start.
    (folder / "data" / "unstarted").touch(0o600)
    return Site(folder, client.token, admin.token)


async def _start_to_first_call(site: Site) -> tuple[float, float]:
    began = SYSTEM_CLOCK.monotonic()
    async with served(site) as (url, pid), Caller(url, site.client) as client:
        answer = await client.post("/api/v1/tools/call", CALL)
        took = SYSTEM_CLOCK.monotonic() - began
        assert answer["ok"], answer
        return took, _rss(pid)


@asynccontextmanager
async def served(site: Site, *more: str) -> AsyncGenerator[tuple[str, int]]:
    words = ["--data-dir", str(site.data), "--registry-dir", str(site.records), "--empty", *more]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bascule", "up", "--port", "0", *words),
        stdout=subprocess.PIPE,
        cwd=site.records.parent,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            line = b""
            while not line.startswith(READY):
                line = await process.stdout.readline()
                assert line, "bascule up ended before it served"
        yield line.removeprefix(READY).decode().strip(), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        await process.communicate()


class Caller:
    """HTTP/1.1 on one socket, as little of it as will do."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._where = parts.hostname or "", parts.port or 0
        self._head = f"Host: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n"

    async def __aenter__(self) -> Caller:
        self._reader, self._writer = await asyncio.open_connection(*self._where)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def post(self, path: str, body: Any) -> Any:
        return await self.send("POST", path, json.dumps(body).encode())

    async def send(self, method: str, path: str, body: bytes = b"") -> Any:
        kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        self._writer.write(f"{method} {path} HTTP/1.1\r\n{self._head}{kind}\r\n".encode() + body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return json.loads(await self._reader.readexactly(length))


async def _overhead(client: Caller, site: Site) -> dict[str, float]:
    """Alternate rounds of calls; the cost is the median of the rounds' differences."""
    bridge = Bridge.open(site.records)
    async with bridge, bridge.session(server_ids=["floor"]) as session:
        api: list[float] = []
        own: list[float] = []

        async def by_session() -> object:
            return await session.call(TOOL, ARGUMENTS)

        for number in range(ROUNDS + 1):
            one = await _p50(lambda: client.post("/api/v1/tools/call", CALL))
            other = await _p50(by_session)
            if number:  # the first round is for warming up
                api.append(one)
                own.append(other)
    over = median(a - b for a, b in zip(api, own, strict=True))
    return {"over": over, "api": median(api), "session": median(own)}


async def _p50(work: Callable[[], Awaitable[object]]) -> float:
    times: list[float] = []
    for _ in range(CALLS):
        began = SYSTEM_CLOCK.monotonic()
        await work()
        times.append(SYSTEM_CLOCK.monotonic() - began)
    return median(times) * 1e3


async def _changes(admin: Caller, client: Caller) -> list[float]:
    """From sending a change of another server to a list of tools decided by it."""
    times: list[float] = []
    for number in range(CHANGES):
        record = {
            "server_id": "other",
            "transport": "stdio",
            "display_name": f"change {number}",
            "stdio": {"command": "true"},
        }
        began = SYSTEM_CLOCK.monotonic()
        body = json.dumps(record).encode()
        revision = (await admin.send("PUT", "/admin/api/mcp/servers/other", body))["revision"]
        while (await client.send("GET", "/api/v1/tools"))["revision"] < revision:
            pass
        times.append((SYSTEM_CLOCK.monotonic() - began) * 1e3)
    return times


def _rss(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
