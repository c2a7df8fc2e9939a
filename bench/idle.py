"""A thousand remote servers, connected and idle: what each costs in memory.

Every one is a record of its own with a connection of its own; one floor server answers for all.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys

import uvloop

from bascule import Bridge, Server
from bench.http_clients import serving
from bench.machine import ROOT, open_descriptors, resident
from bench.table import Row, at_most

NAME = "idle"
SERVERS = 1_000
AT_ONCE = 50
SECONDS = 900


def run() -> list[Row]:
    """Measure in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.idle"],
        stdout=subprocess.PIPE,
        check=True,
        timeout=SECONDS,
        cwd=ROOT,
    )
    kept = json.loads(done.stdout)
    return [
        at_most(f"{SERVERS:,} idle connections: memory for each", kept["bytes"] / 1024, "KiB", 20),
        Row(f"{SERVERS:,} idle connections: descriptors for each", kept["descriptors"], ""),
    ]


async def measure(url: str) -> dict[str, float]:
    """Connect to all of them, and compare what the process holds before and after."""
    names = [f"s{number}" for number in range(SERVERS)]
    async with Bridge.open([Server.http(name, url) for name in names]) as bridge:
        warm = bridge.session(server_ids=names[:1])
        await warm.tools()
        gc.collect()
        memory, descriptors = resident(), open_descriptors()
        for start in range(1, SERVERS, AT_ONCE):
            session = bridge.session(server_ids=names[start : start + AT_ONCE])
            tools = await session.tools()
            assert not tools.warnings, tools.warnings
        connected = sum(status.state == "connected" for status in bridge.statuses())
        assert connected == SERVERS
        count = SERVERS - 1
        gc.collect()
        return {
            "bytes": (resident() - memory) / count,
            "descriptors": (open_descriptors() - descriptors) / count,
        }


if __name__ == "__main__":
    with serving("floor") as place, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(measure(place))))
