"""The ledger on disk beside the one in memory: what a call, a start and a backlog cost.

A session over each takes turns in alternating rounds, over the floor server and over one of the
official SDK. ``BASCULE_BENCH_QUICK=1`` makes everything short: to see that it runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory, gettempdir
from timeit import default_timer

import uvloop

from bascule.clock import SYSTEM_CLOCK
from bench.ledger_clients import opened
from bench.machine import ROOT, disk_under
from bench.rounds import Ratio, Rounds, Setting, absolute, alternate, ratios
from bench.serving import AT_ONCE, crowd
from bench.site import Site, make_site
from bench.soak_calls import record_over, soak
from bench.stdio_clients import bascule
from bench.table import Row, at_least, at_most
from bench.up import Start, start

NAME = "ledger"
QUICK = os.environ.get("BASCULE_BENCH_QUICK") == "1"
SECONDS = 5 if QUICK else 60
CALLS = 10_000 if QUICK else 100_000
STARTS = 3 if QUICK else 9
BATCH = 10 * AT_ONCE
#: The whole of a process, which also has to start and to close its ledger.
LONGEST = 1800

TURNS = Ratio("p50, on disk / in memory", "p50", "ledger", "memory")
AT_64 = Ratio("calls per second at 64, on disk / in memory", "each", "memory", "ledger", "crowd")
CPU = Ratio("CPU of the node for each call, on disk / in memory", "cpu", "ledger", "memory")
CPU_AT_64 = Ratio("the same at 64", "cpu", "ledger", "memory", kind="crowd")

#: Long enough that the database follows within each, as it does under a steady load.
_setting = partial(
    Setting,
    module="bench.ledger_clients",
    clients=("memory", "ledger"),
    ratios=(TURNS, AT_64, CPU, CPU_AT_64),
    rounds=2 if QUICK else 8,
    turns=500 if QUICK else 3_000,
    crowd=1_280 if QUICK else 12_800,
)
FLOOR = _setting("any core", pinned=False, goals={AT_64.name: partial(at_least, goal=0.6)})
ONE_CORE = _setting("one core")
SDK = _setting(
    "SDK server",
    pinned=False,
    server="sdk",
    turns=100 if QUICK else 300,
    crowd=640,
    goals={TURNS.name: partial(at_most, goal=1.2)},
)
BUSY = _setting(
    "every core busy",
    pinned=False,
    goals={name: partial(at_most, goal=1.6) for name in (CPU.name, CPU_AT_64.name)},
)
POWER = _setting(
    f"power, {disk_under(Path(gettempdir()))}",
    pinned=False,
    clients=("memory", "power"),
    ratios=(),
    turns=100 if QUICK else 500,
    crowd=1_280,
)


def run() -> list[Row]:
    """Measure every setting, then what is kept, what is left to do, and a start."""
    floor = alternate(FLOOR)
    with busy_cores():
        busy = rows(BUSY)
    return [
        in_turn(floor),
        *ratios(FLOOR, floor),
        *absolute(FLOOR, floor),
        *rows(ONE_CORE),
        *rows(SDK),
        *busy,
        *rows(POWER),
        *figures("memory"),
        *figures("backlog"),
        *uvloop.run(starts()),
    ]


def rows(setting: Setting) -> list[Row]:
    measured = alternate(setting)
    return [*ratios(setting, measured), *absolute(setting, measured)]


def in_turn(rounds: Rounds) -> Row:
    """One in flight: 1.6 times the time over the ledger in memory, or 25 us more, if that is more.

    Shown as the part of that allowance that is used.
    """
    memory, disk = (rounds.typical("turns", "p50", name) for name in ("memory", "ledger"))
    allowed = max(1.6 * memory, memory + 25)
    name = f"one in flight: p50 of the allowed {allowed:.0f} us (1.6 times, or 25 us more)"
    return at_most(name, disk / allowed, "x", 1)


@contextmanager
def busy_cores() -> Generator[None]:
    """Keep every core busy with something else."""
    command = [sys.executable, "-S", "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def figures(what: str) -> list[Row]:
    """Let a fresh process measure one thing."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.ledger", what],
        stdout=subprocess.PIPE,
        check=True,
        timeout=LONGEST,
        cwd=ROOT,
    )
    found = json.loads(done.stdout)
    if what == "memory":
        title = f"{CALLS:,} calls over stdio: memory kept per call"
        return [at_most(title, found["bytes_per_call"], "bytes", 50)]
    title = f"after {SECONDS} s at {AT_ONCE} in flight"
    return [
        at_most(f"{title}: until the backlog is gone", found["gone"], "s", 60),
        Row(f"{title}: backlog on disk", found["bytes"] / 1e6, "MB"),
        Row(f"{title}: calls", found["calls_per_second"], "calls/s"),
    ]


async def kept_memory() -> dict[str, float]:
    """Make many calls, and see what the process holds then.

    Caches are full before, and what signs is loaded: calls keep neither.
    """
    async with opened() as ledger:
        with record_over("stdio") as record:
            await soak(record, CALLS // 10, ledger)
            await ledger.checkpoint()
            return await soak(record, CALLS, ledger)


async def backlog() -> dict[str, float]:
    """Call for a while, then see how much the database has yet to take in, and for how long."""
    async with opened() as ledger, bascule("floor", ledger) as call:
        began, made = default_timer(), 0
        while default_timer() - began < SECONDS:
            made += len(await crowd(call, BATCH))
        ended = default_timer()
        ledger.settle()
        left = ledger.backlog
        while ledger.backlog:
            await SYSTEM_CLOCK.sleep(0.01)
        return {
            "bytes": left,
            "gone": default_timer() - ended,
            "calls_per_second": made / (ended - began),
        }


async def starts() -> list[Row]:
    """Start ``bascule up`` with and without a ledger, in turn."""
    with TemporaryDirectory() as folder:
        site = await make_site(Path(folder))
        off = Path(folder) / "off.toml"
        off.write_text("[ledger]\nenabled = false\n", encoding="utf-8")
        await start(site)  # the first one makes the registry and the ledger
        pairs = [await _pair(site, off) for _ in range(STARTS)]
    rss = median(on.rss - without.rss for on, without in pairs)
    cpu = median(on.cpu - without.cpu for on, without in pairs) * 1e3
    return [
        at_most("bascule up, more than without a ledger: RSS", rss, "MB", 8),
        at_most("bascule up, more than without a ledger: CPU to the first call", cpu, "ms", 40),
    ]


async def _pair(site: Site, off: Path) -> tuple[Start, Start]:
    return await start(site), await start(site, "--config", str(off))


if __name__ == "__main__":
    work = {"memory": kept_memory, "backlog": backlog}[sys.argv[1]]
    print(json.dumps(uvloop.run(work())))
