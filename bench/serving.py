"""The working end of a benchmark's client: it connects, then does as it is told line by line.

``turns N`` is N calls one after the other, ``crowd N`` N calls, 64 at a time, ``count N`` counts
the Python functions that N calls enter, ``profile N FILE`` profiles N calls into a file. Each is
answered with one line of figures. Between two lines it does nothing at all, so that rounds of
several clients may alternate.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import os
import resource
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from statistics import median
from timeit import default_timer
from types import FrameType

import uvloop

from bench.machine import cpu_seconds, family

Call = Callable[[], Awaitable[str]]
Clients = Mapping[str, Callable[[str], AbstractAsyncContextManager[Call]]]

AT_ONCE = 64
TEXT = ("The bridge is down until somebody who may cross asks for it. " * 4)[:200]
ARGUMENTS = {"text": TEXT}

_watched: list[int] = []
_settled: list[Callable[[], Awaitable[object]]] = []


def watch(pid: int) -> None:
    """Show what this process uses beside what the client uses: the server that is measured."""
    _watched.append(pid)


def settle(work: Callable[[], Awaitable[object]]) -> None:
    """Do this after each order: what calls leave to be done later is counted as theirs."""
    _settled.append(work)


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
    kind, count, *file = order.split()
    if kind == "count":
        return {"functions": await functions(call, int(count))}
    if kind == "profile":
        await profiled(call, int(count), *file)
        return {}
    work = {"turns": turns, "crowd": crowd}[kind]
    # Uncounted, because a server may have closed what was idle between the rounds.
    await work(call, AT_ONCE if kind == "crowd" else 1)
    everybody = family()
    all_busy, server, busy = cpu_seconds(everybody), cpu_seconds(_watched), _cpu()
    began = default_timer()
    taken = await work(call, int(count))
    each = default_timer() - began
    for later in _settled:
        await later()
    passed = {
        "each": each,
        "cpu": _cpu() - busy,
        "server_cpu": cpu_seconds(_watched) - server,
        "family_cpu": cpu_seconds(everybody) - all_busy,
    }
    figures = {key: value / len(taken) for key, value in passed.items()}
    figures |= {"p50": median(taken), "min": min(taken)}
    return {key: value * 1e6 for key, value in figures.items()}


async def profiled(call: Call, count: int, file: str) -> None:
    """Write what cProfile sees of calls one after the other."""
    profile = cProfile.Profile()
    with profile:
        await turns(call, count)
    profile.dump_stats(file)


async def functions(call: Call, count: int) -> float:
    """Count the Python functions entered for one call, exactly, over many calls."""
    entered = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal entered
        entered += event == "call"

    sys.setprofile(note)
    try:
        await turns(call, count)
    finally:
        sys.setprofile(None)
    return entered / count


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def serve(clients: Clients, client: str, server: str) -> None:
    """Connect, say so, and follow orders until there are no more."""
    async with clients[client](server) as call:
        await turns(call, 1)
        print("{}", flush=True)
        for order in sys.stdin:
            print(json.dumps(await measured(call, order)), flush=True)


def main(clients: Clients) -> None:
    """Stand where told, on one core or on any, and serve."""
    client, loop, server, core = sys.argv[1:]
    if core != "any":
        os.sched_setaffinity(0, {int(core)})
    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(clients, client, server))
