"""``bascule up`` inside this process, so that its event loop can be watched or profiled.

``python -m bench.inside DOOR COUNT FILE`` profiles so many requests at a door into a file; the
clients are another process.
"""

from __future__ import annotations

import asyncio
import cProfile
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop

from bascule.app.serving import Orders
from bascule.app.settings import load_settings
from bascule.app.stores import Demo
from bascule.app.up import up
from bascule.model.task import TaskRecord
from bench.chat_clients import UPSTREAM
from bench.http_clients import running
from bench.machine import ROOT
from bench.site import START_SECONDS, Site, make_site

#: The module and the name of the client that knocks at a door.
DOORS = {
    "api": ("bench.api_clients", "bascule"),
    "chat": ("bench.chat_clients", "door"),
    "gateway": ("bench.gateway_clients", "stdio modern"),
    "gateway-legacy": ("bench.gateway_clients", "stdio legacy"),
}
WARM_UP = 200


class _Serving:
    """Waits for the address."""

    shows_links = False

    def __init__(self) -> None:
        self.url: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def serving(
        self,
        url: str,
        setup_token: str | None,
        setup_file: Path,
        code: str | None,
        grpc: str | None,
    ) -> None:
        del setup_token, setup_file, code, grpc
        self.url.set_result(url)

    def problems(self, problems: Sequence[str]) -> None:
        assert not problems, problems


@asynccontextmanager
async def served_here(upstream: str) -> AsyncGenerator[tuple[str, Site]]:
    """Serve with a backend, on this loop, while the block runs."""
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
            async with asyncio.timeout(START_SECONDS):
                url = await announced.url
            yield url, site
        finally:
            orders.stop.set()
            await serving


async def profile(name: str, count: int, file: str) -> None:
    """Profile this loop while a client in another process makes requests."""
    seen = cProfile.Profile()
    module, client = DOORS[name]
    with running("-m", UPSTREAM) as (upstream, _):
        async with served_here(upstream) as (url, site):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", module, client, "uvloop", f"{url} {site.client}", "any"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                cwd=ROOT,
            )
            assert process.stdin is not None
            assert process.stdout is not None
            await process.stdout.readline()  # it is connected
            for order, watched in ((WARM_UP, False), (count, True)):
                if watched:
                    seen.enable()
                process.stdin.write(f"turns {order}\n".encode())
                assert await process.stdout.readline(), "the client of the profile died"
            seen.disable()
            process.stdin.close()
            await process.wait()
    seen.dump_stats(file)


if __name__ == "__main__":
    uvloop.run(profile(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
