"""Many calls through one session with a bounded ledger: what stays behind after each.

Measured in a process of its own, after the ledger has filled up, so that what is counted is what
calls leave, not what they use.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from timeit import default_timer

import uvloop

from bascule import Bridge, MemoryLedger, Server, ServerRecord
from bascule.audit.ledger import Ledger
from bench.http_clients import serving
from bench.machine import ROOT, open_descriptors, resident
from bench.serving import ARGUMENTS, AT_ONCE, TEXT, crowd
from bench.stdio_clients import command
from bench.table import Row, at_most

NAME = "soak_calls"
LEDGER_EVENTS = 1_000
BATCH = 10 * AT_ONCE
WARM_UP = 10 * BATCH
CALLS = 100_000
SECONDS = 1800


def run() -> list[Row]:
    """Measure in a fresh process."""
    return [row for transport in ("stdio", "HTTP") for row in figures(transport)]


def figures(transport: str) -> list[Row]:
    """Let a fresh process make the calls over one transport."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.soak_calls", transport],
        stdout=subprocess.PIPE,
        check=True,
        timeout=SECONDS,
        cwd=ROOT,
    )
    kept = json.loads(done.stdout)
    title = f"{CALLS:,} calls over {transport}"
    return [
        at_most(f"{title}: memory kept per call", kept["bytes_per_call"], "bytes", 50),
        at_most(f"{title}: descriptors kept", kept["descriptors"], "", 0),
        Row(f"{title}: memory in all", kept["memory"] / 1e6, "MB"),
        Row(f"{title}: 64 at once", kept["calls_per_second"], "calls/s"),
    ]


@contextmanager
def record_over(transport: str) -> Generator[ServerRecord]:
    """Say where the floor server is; over HTTP it runs beside us."""
    budgets = {"max_concurrency": AT_ONCE}
    if transport == "stdio":
        yield Server.stdio("bench", *command("floor"), budgets=budgets)
        return
    with serving("floor") as url:
        yield Server.http("bench", url, budgets=budgets)


async def soak(record: ServerRecord, calls: int, ledger: Ledger | None = None) -> dict[str, float]:
    """Make the calls, and compare what the process holds before and after them."""
    async with (
        Bridge.open([record], ledger=ledger or MemoryLedger(LEDGER_EVENTS)) as bridge,
        bridge.session(server_ids=["bench"], caller="bench") as session,
    ):
        (tool,) = await session.tools()

        async def call() -> str:
            return (await session.call(tool.model_name, ARGUMENTS)).text

        assert await call() == TEXT
        await crowd(call, WARM_UP)
        gc.collect()
        memory, descriptors, began = resident(), open_descriptors(), default_timer()
        made = 0
        while made < calls:
            made += len(await crowd(call, BATCH))
        passed = default_timer() - began
        gc.collect()
        return {
            "bytes_per_call": max(0, resident() - memory) / made,
            "descriptors": open_descriptors() - descriptors,
            "memory": resident(),
            "calls_per_second": made / passed,
        }


if __name__ == "__main__":
    with (
        record_over(sys.argv[1]) as place,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        print(json.dumps(runner.run(soak(place, CALLS))))
