"""Calls a second of ``bascule up`` with one and with two workers, and what handing over costs.

Real processes, in turns in one run, 64 calls at a time over as many connections. The client needs a
core for itself: with two cores in all, two workers show what is left of the second one, and not
what they can do; what a call costs them in CPU says that. A call that is handed over is one in an
MCP session of the other worker; it takes turns with the same call at its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import uvloop
from aiohttp import ClientSession, TCPConnector

from bascule.clock import SYSTEM_CLOCK
from bascule.wire.era import LEGACY
from bench.caller import callers, connected
from bench.machine import cpu_seconds, descendants
from bench.rounds import rotated
from bench.serving import ARGUMENTS, AT_ONCE, Call, crowd, turns
from bench.site import CALL, CALL_PATH, TOOL, make_site, served
from bench.table import Row

NAME = "workers"
ROUNDS = 8
CALLS = 2560
TURNS = 400
KINDS: dict[str, tuple[str, ...]] = {"one": (), "two": ("--workers", "2")}
#: Calls a second, and seconds of CPU for each.
Figures: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Place:
    """Where a process serves, for whom, and which process it is."""

    url: str
    token: str
    pid: int


def run() -> list[Row]:
    """Serve both, and call them in turns."""
    found, own, handed = uvloop.run(_run())
    one, two = (median(rate for rate, _ in found[kind]) for kind in KINDS)
    alone, shared = (median(cpu for _, cpu in found[kind]) * 1e6 for kind in KINDS)
    cores = os.cpu_count() or 1
    return [
        Row("calls a second, one process", one, "/s"),
        Row(f"calls a second, two workers, {cores} cores with the client's", two, "/s"),
        Row("two workers / one process", two / one, "times"),
        Row("CPU of a call at one process, its server included", alone, "µs"),
        Row("CPU of a call at two workers, their servers included", shared, "µs"),
        Row("a call in an MCP session at its own worker, p50", median(own) * 1e6, "µs"),
        Row("the same handed over by the other worker, p50", median(handed) * 1e6, "µs"),
    ]


async def _run() -> tuple[dict[str, list[Figures]], list[float], list[float]]:
    found: dict[str, list[Figures]] = {kind: [] for kind in KINDS}
    own: list[float] = []
    handed: list[float] = []
    async with AsyncExitStack() as stack:
        places = {
            kind: await stack.enter_async_context(_site(*more)) for kind, more in KINDS.items()
        }
        for number in range(ROUNDS):
            for kind in rotated([*KINDS], number):
                found[kind].append(await _measured(places[kind]))
        here, there = await _in_session(stack, places["two"])
        for _ in range(ROUNDS):
            own += await turns(here, TURNS // ROUNDS)
            handed += await turns(there, TURNS // ROUNDS)
    return found, own, handed


async def _measured(place: Place) -> Figures:
    """Return how many calls there were in a second, and the CPU that each cost the server."""
    async with _calls(place) as call:
        await crowd(call, AT_ONCE)
        pids = descendants(place.pid)
        began, used = SYSTEM_CLOCK.monotonic(), cpu_seconds(pids)
        await crowd(call, CALLS)
        took, spent = SYSTEM_CLOCK.monotonic() - began, cpu_seconds(pids) - used
        return CALLS / took, spent / CALLS


@asynccontextmanager
async def _site(*more: str) -> AsyncGenerator[Place]:
    with TemporaryDirectory() as folder:
        site = await make_site(Path(folder))
        async with served(site, "--log-level", "warning", *more) as (url, pid):
            yield Place(url, site.client, pid)


@asynccontextmanager
async def _calls(place: Place) -> AsyncGenerator[Call]:
    """Connect anew: the system spreads connections over workers, each time otherwise."""
    async with connected(callers(AT_ONCE, place.url, place.token)) as free:

        async def call() -> str:
            caller = free.pop()
            answer = await caller.post(CALL_PATH, CALL)
            free.append(caller)
            return answer["text"]

        yield call


async def _in_session(stack: AsyncExitStack, place: Place) -> tuple[Call, Call]:
    """Open a session of one worker; return a call at that one, and one through the other."""
    found: dict[str, Callable[[str], Awaitable[Any]]] = {}
    sessions: dict[str, str] = {}
    while len(found) < len(KINDS):
        http = await stack.enter_async_context(ClientSession(connector=TCPConnector(limit=1)))
        post = _poster(http, place.url, place.token)
        session = (await post("", "initialize", protocolVersion=LEGACY[0], capabilities={}))[0]
        worker = session.rpartition(".")[2]
        found.setdefault(worker, post)
        sessions.setdefault(worker, session)
    (here, session), (there, _) = ((found[one], sessions[one]) for one in sorted(found))
    return _caller(here, session), _caller(there, session)


def _poster(http: ClientSession, url: str, token: str) -> Any:
    async def post(session: str, method: str, **params: Any) -> tuple[str, Any]:
        headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Accept": "application/json",
            **({"Mcp-Session-Id": session} if session else {}),
        }
        client = {} if session else {"clientInfo": {"name": "bench", "version": "1"}}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, **client}}
        async with http.post(f"{url}/mcp", data=json.dumps(body), headers=headers) as answer:
            return answer.headers.get("Mcp-Session-Id", ""), await answer.json()

    return post


def _caller(post: Any, session: str) -> Call:
    async def call() -> str:
        _, answer = await post(session, "tools/call", name=TOOL, arguments=ARGUMENTS)
        return answer["result"]["content"][0]["text"]

    return call
