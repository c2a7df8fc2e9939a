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
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.machine import on_cores, one_core
from bench.processes import ended, line, started
from bench.rounds import Figures
from bench.site import make_site, token_store
from bench.table import Row, at_most
from bench.watcher_clients import CROWDS, DEAF, HELD, PER_CONNECTION, Place

NAME = "watchers"
READY = b"The registry answers over gRPC at "
END_SECONDS = 900.0
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
            server = await started(serve)
            floor = await started(("-m", "bench.watcher_floor"))
        async with ended(server), ended(floor):
            address = (await line(server, READY)).removeprefix(READY).decode()
            port = int(await line(floor, b""))
            place = Place(address, port, server.pid, site.admin, nodes)
            with on_cores(os.sched_getaffinity(0) - {one_core()}):
                clients = await started(("-m", "bench.watcher_clients"))
            async with ended(clients):
                assert clients.stdin is not None
                clients.stdin.write(json.dumps(asdict(place)).encode() + b"\n")
                return json.loads(await line(clients, b"{", END_SECONDS))


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
