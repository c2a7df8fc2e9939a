"""Watchers over gRPC: how soon thousands have a change, over the same bytes to plain sockets.

The server has one core and the clients another one. A change is timed from the call that writes it,
which includes the store's fsync, until the last watcher has its light event; the floor is a plain
asyncio server that sends the same bytes to as many sockets, in turns with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.machine import ROOT, on_cores, one_core
from bench.rounds import Figures
from bench.site import make_site, token_store
from bench.table import Row, at_most
from bench.watcher_clients import CROWDS, DEAF, HELD, PER_CONNECTION, Place

NAME = "watchers"
READY = b"The registry answers over gRPC at "
START_SECONDS, END_SECONDS = 60.0, 900.0
#: Sockets at either end, and what else is open.
DESCRIPTORS = CROWDS[-1] + 1_000


def run() -> list[Row]:
    """Hold streams and sockets, and write."""
    return [*_rows(asyncio.run(_run()))]


async def _run() -> Figures:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(DESCRIPTORS, hard)), hard))
    with TemporaryDirectory() as name:
        site = await make_site(Path(name), ())
        async with token_store()(site.data) as tokens:
            nodes = [
                (await tokens.mint(f"node{n}", "node")).token for n in range(HELD // PER_CONNECTION)
            ]
        data = ("--data-dir", str(site.data), "--log-level", "warning")
        serve = ("-m", "bascule", "registry", "serve", "--port", "0", "--grpc-port", "0", *data)
        with on_cores({one_core()}):
            server = await _started(serve)
            floor = await _started(("-m", "bench.watcher_floor"))
        async with _ended(server), _ended(floor):
            address = (await _line(server, READY)).removeprefix(READY).decode()
            port = int(await _line(floor, b""))
            place = Place(address, port, server.pid, site.admin, nodes)
            with on_cores(os.sched_getaffinity(0) - {one_core()}):
                clients = await _started(("-m", "bench.watcher_clients"))
            async with _ended(clients):
                assert clients.stdin is not None
                clients.stdin.write(json.dumps(asdict(place)).encode() + b"\n")
                return json.loads(await _line(clients, b"{", END_SECONDS))


async def _started(words: Sequence[str]) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, *words, stdin=PIPE, stdout=PIPE, cwd=ROOT
    )


async def _line(process: Process, beginning: bytes, seconds: float = START_SECONDS) -> bytes:
    """Return the next line that begins so."""
    assert process.stdout is not None
    async with asyncio.timeout(seconds):
        while line := await process.stdout.readline():
            if line.startswith(beginning):
                return line.strip()
    raise RuntimeError("a process of the benchmark died; its own words are above")


@asynccontextmanager
async def _ended(process: Process) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


def _rows(figures: Figures) -> list[Row]:
    rows = list[Row]()
    for crowd in CROWDS:
        title = f"{crowd:,} watchers"
        told, floor = figures[f"{crowd} told"], figures[f"{crowd} floor"]
        used = figures[f"{crowd} cpu"] / crowd
        rows += [
            at_most(f"{title}: to the last / the floor", figures[f"{crowd} ratio"], "x", 6),
            Row(f"{title}: from the write to the last, p50", told * 1e3, "ms"),
            Row(f"{title}: the floor, p50", floor * 1e3, "ms"),
            Row(f"{title}: CPU of the server for each", used * 1e6, "us"),
        ]
    title = f"{CROWDS[0]:,} watchers with {DEAF} more that never read / without"
    return [
        *rows,
        at_most(title, figures["deaf"], "x", 1.2),
        at_most(f"{HELD:,} streams: memory for each", figures["each"] / 1024, "KiB", 40),
        Row(f"{HELD:,} streams: from the write to the last", figures["all"] * 1e3, "ms"),
    ]
