"""A data directory with one lean tool and its tokens, and ``bascule up`` over it."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from socket import socket
from tempfile import TemporaryDirectory
from typing import Any

from bench.serving import ARGUMENTS, AT_ONCE, watch

READY = b"Bascule serves at "
START_SECONDS = 120
BASCULE = ("-m", "bascule")
FLOOR = Path(__file__).with_name("floor_server.py")
RECORD = f"""\
server_id = "floor"
transport = "stdio"
allowed_tools = ["echo"]
[stdio]
command = {json.dumps(sys.executable)}
args = [{json.dumps(str(FLOOR))}]
[budgets]
max_concurrency = {AT_ONCE}
"""
TASK = """\
task_id = "bench"
[mcp]
enabled = true
default_server_ids = ["floor"]
"""
TOOL = "mcp__floor__echo"
CALL_PATH, CALL = "/api/v1/tools/call", {"name": TOOL, "arguments": ARGUMENTS}

#: Where the token store is: now, and in earlier commits that one may compare with.
TOKEN_STORES = ("bascule.auth.token_store", "bascule.control.token_store")


class Site:
    """A data directory, its records, and a token for each of two roles."""

    def __init__(self, folder: Path, client: str, admin: str) -> None:
        self.data = folder / "data"
        self.records = folder / "records"
        self.client = client
        self.admin = admin

    async def more_clients(self, count: int) -> list[str]:
        """Make further client tokens, before the first start."""
        async with token_store()(self.data) as tokens:
            made = [await tokens.mint(f"bench{n}", "client", task_id="bench") for n in range(count)]
        return [one.token for one in made]


async def make_site(folder: Path, servers: Sequence[str] = (RECORD,), task: str = TASK) -> Site:
    """Lay out a data directory with these records and a token for each role."""
    records = folder / "records"
    (records / "tasks").mkdir(parents=True)
    for number, record in enumerate(servers):
        (records / f"server{number}.toml").write_text(record, encoding="utf-8")
    (records / "tasks" / "bench.toml").write_text(task, encoding="utf-8")
    async with token_store()(folder / "data") as tokens:
        client = await tokens.mint("bench", "client", task_id="bench")
        admin = await tokens.mint("bench", "admin")
    # As the command does that makes tokens before the first start.
    (folder / "data" / "unstarted").touch(0o600)
    return Site(folder, client.token, admin.token)


def token_store(
    names: Sequence[str] = TOKEN_STORES,
) -> Callable[[Path], AbstractAsyncContextManager[Any]]:
    """Find what opens the tokens of a data directory, wherever the package has it."""
    for name in names:
        try:
            return importlib.import_module(name).open_tokens
        except ModuleNotFoundError as error:
            if not (error.name and name.startswith(error.name)):
                raise
    raise ModuleNotFoundError(f"no token store at {' or '.join(names)}")


@asynccontextmanager
async def served(
    site: Site, *more: str, program: Sequence[str] = BASCULE
) -> AsyncGenerator[tuple[str, int]]:
    """Run ``bascule up``; the URL and the process."""
    words = ["--data-dir", str(site.data), "--registry-dir", str(site.records), "--empty", *more]
    async with process(*program, "up", "--port", "0", *words, folder=site.records.parent) as found:
        yield found


@asynccontextmanager
async def node_served(site: Site) -> AsyncGenerator[tuple[str, int]]:
    """Run a control plane and a node of it; the URL and the process of the node."""
    async with token_store()(site.data) as tokens:
        token = (await tokens.mint("node", "node")).token
    folder, port = site.records.parent, free_port()
    records = ("--registry-dir", str(site.records), "--data-dir", str(site.data))
    grpc = ("--port", "0", "--grpc-port", str(port))
    own = ("--port", "0", "--data-dir", str(folder / "node"), "--allow-executable", "*")
    there = ("--registry", f"127.0.0.1:{port}")
    async with (
        process(*BASCULE, "registry", "serve", *grpc, *records, folder=folder),
        process(
            *BASCULE, "node", "serve", *own, *there, folder=folder, BASCULE_TOKEN=token
        ) as found,
    ):
        yield found


def free_port() -> int:
    with socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return tried.getsockname()[1]


@asynccontextmanager
async def process(*words: str, folder: Path, **env: str) -> AsyncGenerator[tuple[str, int]]:
    """Run what serves in a folder; its URL, which it says when it does, and the process."""
    serving = await asyncio.create_subprocess_exec(
        sys.executable,
        *words,
        stdout=subprocess.PIPE,
        cwd=folder,
        env={**os.environ, **env},
    )
    assert serving.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            line = b""
            while not line.startswith(READY):
                line = await serving.stdout.readline()
                assert line, f"bascule {words[2]} ended before it served"
        yield line.removeprefix(READY).decode().strip(), serving.pid
    finally:
        serving.send_signal(signal.SIGTERM)
        await serving.communicate()


@asynccontextmanager
async def door(
    place: str, *more: str, servers: Sequence[str] = (RECORD,)
) -> AsyncGenerator[tuple[str, str]]:
    """A URL and a token for it: as ``place`` says, or of a process of its own."""
    if place:
        url, token = place.split()
        yield url, token
        return
    with TemporaryDirectory() as folder:
        site = await make_site(Path(folder), servers)
        async with served(site, *more) as (url, pid):
            watch(pid)
            yield url, site.client
