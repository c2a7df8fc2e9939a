"""Two hundred chat streams at once: does the server's loop stall?

The server runs in this process, so that its event loop can be watched from inside: a task sleeps
for a few milliseconds again and again and notes how late it wakes. The clients are another
process (``python -m bench.streams URL TOKEN``).
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import uvloop

from bascule.app.settings import load_settings
from bascule.app.up import Demo, Orders, up
from bascule.clock import SYSTEM_CLOCK
from bascule.model.task import TaskRecord
from bench.table import Row, at_most
from bench.up import Site, make_site

STREAMS = 200
TICK = 0.005
REQUEST = {
    "model": "bench/instant",
    "stream": True,
    "messages": [{"role": "user", "content": "Say it."}],
}


def stalls(upstream: str) -> list[Row]:
    """Serve the streams and return how late the loop was."""
    late, whole = uvloop.run(_measure(upstream))
    if whole != STREAMS:
        raise RuntimeError(f"{whole} of {STREAMS} streams came whole")
    return [
        at_most(
            f"{STREAMS} streams: event-loop stall, p99", quantiles(late, n=100)[98] * 1e3, "ms", 50
        ),
        Row(f"{STREAMS} streams: event-loop stall, worst", max(late) * 1e3, "ms"),
    ]


class _Serving:
    """Waits for the address."""

    def __init__(self) -> None:
        self.url: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def serving(self, url: str, setup_token: str | None, setup_file: Path) -> None:
        del setup_token, setup_file
        self.url.set_result(url)

    def problems(self, problems: Sequence[str]) -> None:
        assert not problems, problems


async def _measure(upstream: str) -> tuple[list[float], int]:
    with TemporaryDirectory() as folder:
        site = await make_site(Path(folder))
        flags = {
            "data_dir": str(site.data),
            "registry_dir": str(site.records),
            "port": 0,
            "backend": [f"bench={upstream}"],
        }
        settings, _ = load_settings(flags, {})
        orders = Orders(stop=asyncio.Event(), reload=asyncio.Event(), hurry=asyncio.Event())
        announced = _Serving()
        without_demo = Demo(TaskRecord(task_id="none"), lambda _: None, empty=True)
        serving = asyncio.create_task(up(settings, announced, orders, without_demo))
        try:
            async with asyncio.timeout(60):
                return await _watched(await announced.url, site)
        finally:
            orders.stop.set()
            await serving


async def _watched(url: str, site: Site) -> tuple[list[float], int]:
    late: list[float] = []
    ticking = asyncio.create_task(_tick(late))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.streams", url, site.client),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[1],
    )
    out, _ = await process.communicate()
    ticking.cancel()
    return late, int(out)


async def _tick(late: list[float]) -> None:
    while True:
        began = SYSTEM_CLOCK.monotonic()
        await SYSTEM_CLOCK.sleep(TICK)
        late.append(SYSTEM_CLOCK.monotonic() - began - TICK)


async def _clients(url: str, token: str) -> int:
    """Open all streams at once; return how many came whole."""
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
    print(uvloop.run(_clients(*sys.argv[1:])))
