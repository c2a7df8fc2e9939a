"""What the gateway holds and what it has at hand: lists, open streams, sessions that nobody uses.

Each is measured on a ``bascule up`` of its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from timeit import default_timer
from urllib.parse import urlsplit

import orjson

from bench.caller import Bare, connected
from bench.gateway_clients import GREETING, HELLO, IN_MEMORY, ROUTE, Headers, greet
from bench.http_clients import HEADERS, META, frame
from bench.machine import on_cores, one_core, resident
from bench.serving import AT_ONCE
from bench.site import Site, make_site, served
from bench.table import Row, at_most

TOOLS = 1_000
#: A server lists at most 512 tools.
LISTING = 2
LISTS = 200
STREAMS = 1_000
#: One token may not have them all.
PER_CLIENT = 50
SESSIONS = 100_000
WARM_UP = 5_000
LIST_RECORD = """\
server_id = "listing{number}"
transport = "stdio"
allowed_tools = ["*"]
[stdio]
command = {command}
args = {args}
"""
LIST_TASK = """\
task_id = "bench"
[mcp]
enabled = true
default_server_ids = ["listing0", "listing1"]
max_tools = 1000
"""
MANY = IN_MEMORY + b"[server]\nmax_connections = 4096\n"
SECONDS = 60.0


@asynccontextmanager
async def gateway(site: Site) -> AsyncGenerator[tuple[str, int]]:
    """Serve; the URL and the process."""
    config = site.records.parent / "bascule.toml"
    config.write_bytes(MANY)
    async with served(site, "--config", str(config)) as (url, pid):
        yield url + ROUTE, pid


def bearing(token: str) -> Headers:
    return {"Authorization": f"Bearer {token}"}


async def lists() -> list[Row]:
    """List a thousand tools in both generations, and count what the servers were asked."""
    with TemporaryDirectory() as name, on_cores({one_core()}):
        folder = Path(name)
        files = [folder / f"requests{number}" for number in range(LISTING)]
        records = [_listing(number, file) for number, file in enumerate(files)]
        site = await make_site(folder, records, LIST_TASK)
        async with gateway(site) as (url, _):
            token = bearing(site.client)
            modern = {**HEADERS, **token, "Mcp-Method": "tools/list"}
            del modern["Mcp-Name"]
            legacy = await greet(url, token)
            await _listed(url, modern, {"_meta": META}, 1)
            before = _lines(files)
            taken = {
                "modern": await _listed(url, modern, {"_meta": META}, LISTS),
                "legacy": await _listed(url, legacy, {}, LISTS),
            }
            asked = _lines(files) - before
    title = f"tools/list of {TOOLS:,} tools"
    rows = [
        at_most(f"{title}, {name}, p50", median(times) * 1e3, "ms", 2)
        for name, (times, _) in taken.items()
    ]
    size = taken["modern"][1] / 1e3
    return [
        *rows,
        at_most(f"{title}: requests upstream", asked, "", 0),
        Row(f"{title}: size of the answer", size, "kB"),
    ]


def _listing(number: int, file: Path) -> str:
    script = Path(__file__).with_name("listing_server.py")
    args = [str(script), str(TOOLS // LISTING), str(file)]
    command = json.dumps(sys.executable)
    return LIST_RECORD.format(number=number, command=command, args=json.dumps(args))


def _lines(files: Sequence[Path]) -> int:
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


async def _listed(
    url: str, headers: Headers, params: object, times: int
) -> tuple[list[float], int]:
    """List so often; the seconds of each, and the bytes of one."""
    body, taken, sizes = frame(1, params, "tools/list"), list[float](), set[int]()
    async with Bare(url, headers) as caller:
        answer = orjson.loads(await caller.post(body))
        assert len(answer["result"]["tools"]) == TOOLS, len(answer["result"]["tools"])
        for _ in range(times):
            began = default_timer()
            sizes.add(len(await caller.post(body)))
            taken.append(default_timer() - began)
    (size,) = sizes
    return taken, size


async def sessions() -> list[Row]:
    """Open a hundred thousand sessions and forget them."""
    with TemporaryDirectory() as name:
        site = await make_site(Path(name))
        async with gateway(site) as (url, pid):
            headers = {**GREETING, **bearing(site.client)}
            async with connected([Bare(url, headers) for _ in range(AT_ONCE)]) as callers:
                await _opened(callers, WARM_UP)
                before = resident(pid)
                await _opened(callers, SESSIONS)
                held = resident(pid) - before
    return [at_most(f"{SESSIONS:,} sessions opened and abandoned", held / 1e6, "MB", 5)]


async def _opened(callers: Sequence[Bare], sessions: int) -> None:
    numbers = iter(range(sessions))

    async def work(caller: Bare) -> None:
        for number in numbers:
            body = await caller.post(frame(number, HELLO, "initialize"))
            assert b'"serverInfo"' in body, body

    await asyncio.gather(*map(work, callers))


async def streams() -> list[Row]:
    """Hold a thousand streams open: half of them of legacy sessions, half subscriptions."""
    with TemporaryDirectory() as name:
        site = await make_site(Path(name))
        clients = await site.more_clients(STREAMS // PER_CLIENT)
        async with gateway(site) as (url, pid):
            held = await _held(url, bearing(site.client), PER_CLIENT // 2)
            before = resident(pid)
            for client in clients:
                held += await _held(url, bearing(client), PER_CLIENT // 2)
            more = resident(pid) - before
            for writer in held:
                writer.close()
    return [at_most(f"{STREAMS:,} open streams", more / 1e6, "MB", 40)]


async def _held(url: str, token: Headers, each: int) -> list[asyncio.StreamWriter]:
    """Open so many of each kind, one after the other; every one has begun when this returns."""
    listening = {**HEADERS, **token, "Mcp-Method": "subscriptions/listen"}
    del listening["Mcp-Name"]
    asked = {"notifications": {"toolsListChanged": True}, "_meta": META}
    held: list[asyncio.StreamWriter] = []
    for number in range(each):
        body = frame(number, asked, "subscriptions/listen")
        held.append(await _stream("POST", url, listening, body))
        session = {**await greet(url, token), "Accept": "text/event-stream"}
        del session["Content-Type"]
        held.append(await _stream("GET", url, session))
    return held


async def _stream(
    method: str, url: str, headers: Headers, body: bytes = b""
) -> asyncio.StreamWriter:
    """Open a stream, and see that it is one."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    lines = {
        "Host": parts.netloc,
        **headers,
        **({"Content-Length": str(len(body))} if body else {}),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    writer.write(f"{method} {parts.path} HTTP/1.1\r\n{head}\r\n".encode() + body)
    async with asyncio.timeout(SECONDS):
        answer = await reader.readuntil(b"\r\n\r\n")
    assert b"text/event-stream" in answer.lower(), answer
    return writer
