"""Sixty servers that work for two seconds each before they answer, opened at once.

Each takes two seconds of a processor at its start, as a large server's imports do; one session
wants them all, and then a second one wants one more. ``python -m bench.starts COUNT SECONDS`` is a
shorter run.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile

import uvloop

from bascule import Bridge, Server
from bascule.clock import SYSTEM_CLOCK
from bascule.model.server import ServerRecord
from bascule.testing import ScriptedServer
from bench.table import Row, at_least

NAME = "starts"
SERVERS = 60
CPU_SECONDS = 2.0
_SPIN = """\
import os, sys, time
while time.process_time() < float(sys.argv[1]): pass
os.execv(sys.argv[2], sys.argv[2:])
"""


def run() -> list[Row]:
    """Measure with the full count."""
    return rows(SERVERS, CPU_SECONDS)


def rows(count: int, seconds: float) -> list[Row]:
    """Start so many servers, each with so much work, and see how many came up and when."""
    up, took, late = uvloop.run(measure(count, seconds))
    what = f"{count} servers with {seconds:g} s of work at their start, opened at once"
    return [
        at_least(f"{what}: listed by the first list", up, "servers", count),
        Row(f"{what}: until all have listed", took, "s"),
        Row(
            "one server of a second session, asked for meanwhile: until its call is answered",
            late,
            "s",
        ),
    ]


async def measure(count: int, seconds: float) -> tuple[int, float, float]:
    """Return how many listed, how long that took, and how long a newcomer waited."""
    names = [f"s{number}" for number in range(count)]
    records = [_busy(name, seconds) for name in (*names, "other")]
    with tempfile.TemporaryDirectory() as homes:
        async with Bridge.open(records, homes=homes) as bridge:
            began = SYSTEM_CLOCK.monotonic()
            session = bridge.session(server_ids=names)
            listing = asyncio.create_task(session.tools())
            await asyncio.wait({listing}, timeout=seconds)
            late = await _newcomer(bridge)
            tools = await listing
            took = SYSTEM_CLOCK.monotonic() - began
    return len({tool.server_id for tool in tools}), took, late


async def _newcomer(bridge: Bridge) -> float:
    """Return how long a session of its own waits for one server more."""
    began = SYSTEM_CLOCK.monotonic()
    session = bridge.session(server_ids=["other"])
    outcome = await session.call("mcp__other__echo", {"text": "hello"})
    assert outcome.ok, outcome.error
    return SYSTEM_CLOCK.monotonic() - began


def _busy(name: str, seconds: float) -> ServerRecord:
    program, args = ScriptedServer().command
    spin = ("-I", "-S", "-c", _SPIN, str(seconds), program, *args)
    return Server.stdio(name, sys.executable, *spin, budgets={"tool_timeout_ms": 600_000})


if __name__ == "__main__":
    for row in rows(int(sys.argv[1]), float(sys.argv[2])):
        print(row)
