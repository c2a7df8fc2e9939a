"""``bascule up``: from the start to the first call, what the tools API adds, a change in force.

A real process with its data directory on disk. A call through the API takes turns with the same
call by ``session.call`` and with a fixed answer of a bare uvicorn, all on one core, each server
before the same bare client. Starts and changes may use any core.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import uvloop

from bascule.clock import SYSTEM_CLOCK
from bench.caller import Caller
from bench.machine import cpu_seconds, proportional, resident
from bench.rounds import Ratio, Rounds, Setting, absolute, alternate, ratios
from bench.site import BASCULE, CALL, CALL_PATH, Site, make_site, served
from bench.table import Row, at_most

NAME = "up"
STARTS = 9
CALLS = 2000
CHANGES = 100
BARE = Ratio("p50, the API / a bare uvicorn answer", "p50", "bascule", "uvicorn")
API = Setting(
    title="tools API",
    module="bench.api_clients",
    clients=("session", "uvicorn", "bascule"),
    ratios=(
        BARE,
        Ratio(
            "CPU of client and server, the API / bare uvicorn", "family_cpu", "bascule", "uvicorn"
        ),
        Ratio("server CPU, the API / a bare uvicorn answer", "server_cpu", "bascule", "uvicorn"),
    ),
    goals={BARE.name: partial(at_most, goal=2.2)},
    server="",
    crowd=320,
)


@dataclass(frozen=True)
class Start:
    """What a process took until it had answered its first call, and holds then."""

    seconds: float
    cpu: float
    rss: float
    pss: float


def run() -> list[Row]:
    """Start it some times; then measure calls, and changes on one that runs."""
    starts = uvloop.run(_starts())
    rounds = alternate(API)
    changes, memory = uvloop.run(_changed())
    return [
        *_start_rows(starts),
        *over(rounds),
        *ratios(API, rounds),
        *absolute(API, rounds),
        at_most("a change in force at the node, p50", median(changes), "ms", 50),
        Row("a change in force at the node, worst", max(changes), "ms"),
        Row(f"resident memory (RSS) after {CALLS:,} calls and {CHANGES} changes", memory, "MB"),
    ]


def over(rounds: Rounds) -> list[Row]:
    """What a call costs more through the API than by ``session.call``."""
    more = rounds.difference("p50", "bascule", "session") / 1e3
    name = "tools API: POST /api/v1/tools/call over session.call, p50"
    quietest = rounds.quietest("bascule", "session") / 1e3
    return [
        at_most(name, more, "ms", 0.2, "on a quiet core"),
        Row("the same, by the fastest rounds", quietest, "ms"),
    ]


def _start_rows(starts: list[Start]) -> list[Row]:
    seconds = median(start.seconds for start in starts)
    rss = median(start.rss for start in starts)
    quiet = "on a quiet machine"
    return [
        at_most("start to first call, bytecode present, p50", seconds, "s", 0.35, quiet),
        Row("the same, fastest", min(start.seconds for start in starts), "s"),
        Row("CPU from the start to the first call", median(start.cpu for start in starts), "s"),
        at_most("resident memory after the first call (RSS)", rss, "MB", 56),
        Row("the same by its share (PSS)", median(start.pss for start in starts), "MB"),
    ]


async def _starts() -> list[Start]:
    with TemporaryDirectory() as folder:
        site = await make_site(Path(folder))
        await start(site)  # the first one makes the registry
        return [await start(site) for _ in range(STARTS)]


async def start(site: Site, *more: str, program: Sequence[str] = BASCULE) -> Start:
    """Start a process, have it answer one call, and say what that took."""
    began = SYSTEM_CLOCK.monotonic()
    async with (
        served(site, *more, program=program) as (url, pid),
        Caller(url, site.client) as client,
    ):
        answer = await client.post(CALL_PATH, CALL)
        took = SYSTEM_CLOCK.monotonic() - began
        assert answer["ok"], answer
        return Start(took, cpu_seconds([pid]), resident(pid) / 1e6, proportional(pid) / 1e6)


async def _changed() -> tuple[list[float], float]:
    """Make calls, then changes; how long each change took, and the memory held then."""
    with TemporaryDirectory() as folder:
        site = await make_site(Path(folder))
        async with (
            served(site) as (url, pid),
            Caller(url, site.client) as client,
            Caller(url, site.admin) as admin,
        ):
            for _ in range(CALLS):
                await client.post(CALL_PATH, CALL)
            changes = [await _change(number, admin, client) for number in range(CHANGES)]
            return changes, resident(pid) / 1e6


async def _change(number: int, admin: Caller, client: Caller) -> float:
    """From sending a change of another server to a list of tools decided by it."""
    record: dict[str, Any] = {
        "server_id": "other",
        "transport": "stdio",
        "display_name": f"change {number}",
        "stdio": {"command": "true"},
    }
    began = SYSTEM_CLOCK.monotonic()
    body = json.dumps(record).encode()
    revision = (await admin.send("PUT", "/admin/api/mcp/servers/other", body))["revision"]
    while (await client.send("GET", "/api/v1/tools"))["revision"] < revision:
        pass
    return (SYSTEM_CLOCK.monotonic() - began) * 1e3
