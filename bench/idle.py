"""A thousand remote servers, connected and idle: what each costs in memory.

Every one is a record of its own with a connection of its own; one floor server answers for all.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import uvloop

from bascule import Bridge, Server
from bench.http_clients import serving
from bench.soak_calls import open_descriptors, resident
from bench.table import Row

NAME = "idle"
SERVERS = 1_000
AT_ONCE = 50


def run() -> list[Row]:
    """Measure in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.idle"],
        stdout=subprocess.PIPE,
        check=True,
        timeout=300,
        cwd=Path(__file__).parents[1],
    )
    kept = json.loads(done.stdout)
    return [
        Row(f"{SERVERS:,} idle connections: memory for each", kept["bytes"] / 1024, "KiB"),
        Row(f"{SERVERS:,} idle connections: descriptors for each", kept["descriptors"], ""),
    ]


async def measure(url: str) -> dict[str, float]:
    """Connect to all of them, and compare what the process holds before and after."""
    names = [f"s{number}" for number in range(SERVERS)]
    async with Bridge.open([Server.http(name, url) for name in names]) as bridge:
        warm = bridge.session(server_ids=names[:1])
        await warm.tools()
        memory, descriptors = resident(), open_descriptors()
        for start in range(1, SERVERS, AT_ONCE):
            session = bridge.session(server_ids=names[start : start + AT_ONCE])
            tools = await session.tools()
            assert not tools.warnings, tools.warnings
        connected = sum(status.state == "connected" for status in bridge.statuses())
        assert connected == SERVERS
        count = SERVERS - 1
        return {
            "bytes": (resident() - memory) / count,
            "descriptors": (open_descriptors() - descriptors) / count,
        }


if __name__ == "__main__":
    with serving("floor") as place, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(measure(place))))
