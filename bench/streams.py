"""Two hundred chat streams at once: does the server's loop stall?

The server runs in a process of its own (``python -m bench.streams serve``) and on a core of its own
where there are two: a task on its loop sleeps for a few milliseconds again and again and notes how
late it wakes, and how much of that the process itself worked. Model and clients
(``python -m bench.streams knock``) share the other cores.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
from statistics import median, quantiles
from urllib.parse import urlsplit

import uvloop

from bascule.clock import SYSTEM_CLOCK
from bench.chat_clients import UPSTREAM
from bench.http_clients import running
from bench.inside import served_here
from bench.machine import ROOT, on_cores, one_core
from bench.table import Row, at_most

STREAMS = 200
RUNS = 5
TICK = 0.005
SECONDS = 300
REQUEST = {
    "model": "bench/instant",
    "stream": True,
    "messages": [{"role": "user", "content": "Say it."}],
}

Figures = dict[str, float]


def stalls() -> list[Row]:
    """Serve the streams some times and return how late the loop was."""
    runs = [_run() for _ in range(RUNS)]
    title = f"{STREAMS} streams: stall of the loop"
    worst, p99, cpu = (median(run[key] for run in runs) for key in ("worst", "p99", "worst_cpu"))
    return [
        at_most(f"{title}, worst (p50 of {RUNS} runs)", worst, "ms", 45),
        at_most(f"{title}, p99 (p50 of {RUNS} runs)", p99, "ms", 20),
        Row(f"{title}, worst of all runs", max(run["worst"] for run in runs), "ms"),
        Row(f"{title}, longest by its own CPU (p50 of {RUNS} runs)", cpu, "ms"),
    ]


def _run() -> Figures:
    core = one_core()
    others = os.sched_getaffinity(0) - {core} or {core}
    with on_cores(others), running("-m", UPSTREAM) as (upstream, _), on_cores({core}):
        done = subprocess.run(
            [sys.executable, "-m", "bench.streams", "serve", upstream, *map(str, others)],
            stdout=subprocess.PIPE,
            check=True,
            timeout=SECONDS,
            cwd=ROOT,
        )
    figures: Figures = json.loads(done.stdout)
    if figures["whole"] != STREAMS:
        raise RuntimeError(f"{figures['whole']} of {STREAMS} streams came whole")
    return figures


async def _serve(upstream: str, *others: str) -> Figures:
    late: list[float] = []
    worked: list[float] = []
    async with served_here(upstream) as (url, site):
        ticking = asyncio.create_task(_tick(late, worked))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.streams", "knock", url, site.client, *others),
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        out, _ = await process.communicate()
        ticking.cancel()
    return {
        "whole": int(out),
        "worst": max(late) * 1e3,
        "p99": quantiles(late, n=100)[98] * 1e3,
        "worst_cpu": max(worked) * 1e3,
    }


async def _tick(late: list[float], worked: list[float]) -> None:
    while True:
        began, busy = SYSTEM_CLOCK.monotonic(), _cpu()
        await SYSTEM_CLOCK.sleep(TICK)
        late.append(SYSTEM_CLOCK.monotonic() - began - TICK)
        worked.append(_cpu() - busy)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return used.ru_utime + used.ru_stime


async def _knock(url: str, token: str, *cores: str) -> int:
    """Open all streams at once, from these cores; return how many came whole."""
    os.sched_setaffinity(0, set(map(int, cores)))
    return sum(await asyncio.gather(*(_stream(url, token) for _ in range(STREAMS))))


async def _stream(url: str, token: str) -> bool:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    body = json.dumps(REQUEST).encode()
    writer.write(
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
        + body
    )
    text = await reader.read()
    writer.close()
    return b"data: [DONE]" in text and text.count(b"a few words") > 1


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        print(json.dumps(uvloop.run(_serve(*sys.argv[2:]))))
    else:
        print(uvloop.run(_knock(*sys.argv[2:])))
