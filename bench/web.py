"""The web admin: what it costs those who call and the start, and how it bears much.

Live readers: one ``bascule up`` and 64 callers, with and without twenty readers of the live stream,
in turns; server, callers and readers share one core. The rest may use any core.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TypeAlias
from urllib.parse import urlsplit

import uvloop

from bascule.clock import SYSTEM_CLOCK
from bench.caller import Caller, callers, connected
from bench.machine import cpu_seconds, family, on_cores, one_core
from bench.page_screens import screens
from bench.page_starts import starts
from bench.serving import AT_ONCE
from bench.site import CALL, CALL_PATH, make_site, served
from bench.table import Row, at_least

NAME = "web"
READERS = 20
ROUNDS = 24
SECONDS = 2.0
#: By the clock, and by the CPU that was used.
Rate: TypeAlias = tuple[float, float]


def run() -> list[Row]:
    """Measure readers, starts and screens."""
    with on_cores({one_core()}):
        readers = uvloop.run(live_readers())
    return [*uvloop.run(screens()), *readers, *uvloop.run(starts())]


async def live_readers() -> list[Row]:
    """Compare calls a second with and without readers, round by round."""
    alone: list[Rate] = []
    watched: list[Rate] = []
    with TemporaryDirectory() as folder:
        site = await make_site(Path(folder))
        async with (
            served(site) as (url, _),
            connected(callers(AT_ONCE, url, site.client)) as clients,
        ):
            await rate(clients)
            for number in range(ROUNDS):
                if number % 2:
                    alone.append(await rate(clients))
                async with reading(url, site.admin) as read:
                    watched.append(await rate(clients))
                assert all(read), "a reader was told nothing"
                if not number % 2:
                    alone.append(await rate(clients))
    name = f"live readers: calls a second, {READERS} / none"
    return [
        at_least(name, ratio(alone, watched, 0), "x", 0.95, "on a quiet core"),
        Row("the same, by the second of CPU", ratio(alone, watched, 1), "x"),
        Row("live readers: none", median(one[0] for one in alone), "calls/s"),
        Row(f"live readers: {READERS}", median(one[0] for one in watched), "calls/s"),
    ]


def ratio(below: list[Rate], above: list[Rate], place: int) -> float:
    return median(one[place] / other[place] for one, other in zip(above, below, strict=True))


async def rate(clients: list[Caller]) -> Rate:
    """Return how many calls all of them make in a second, and in a second of everybody's CPU."""
    everybody = family()
    began, used, count = SYSTEM_CLOCK.monotonic(), cpu_seconds(everybody), 0

    async def work(client: Caller) -> None:
        nonlocal count
        while SYSTEM_CLOCK.monotonic() - began < SECONDS:
            assert (await client.post(CALL_PATH, CALL))["ok"]
            count += 1

    await asyncio.gather(*map(work, clients))
    passed = SYSTEM_CLOCK.monotonic() - began
    return count / passed, count / (cpu_seconds(everybody) - used)


@asynccontextmanager
async def reading(url: str, token: str) -> AsyncGenerator[list[int]]:
    """Have bare readers of the live stream; how much each has read."""
    parts, read = urlsplit(url), [0] * READERS

    async def work(place: int) -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        head = f"Host: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n"
        writer.write(f"GET /admin/api/live HTTP/1.1\r\n{head}".encode())
        try:
            while text := await reader.read(65_536):
                read[place] += text.count(b"event: figures")
            raise AssertionError("the stream ended under its reader")
        finally:
            writer.close()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work(place)) for place in range(READERS)]
        yield read
        for task in tasks:
            task.cancel()
