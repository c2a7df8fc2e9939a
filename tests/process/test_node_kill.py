"""A node killed with SIGKILL while it serves leaves no process at all."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.flow.processes import owner_of, traces, vanished
from tests.scale import scaled

ROOT = Path(__file__).resolve().parents[2]
AT_ONCE = 4


@asynccontextmanager
async def node(word: str) -> AsyncGenerator[Process, None]:
    """Run a node with a connected, stubborn server and its grandchild."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.flow.doomed_node", word, cwd=ROOT, stdout=PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(20):
            assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def kill_one() -> None:
    """Kill a node; its server, the grandchild and the warden must follow it."""
    word = secrets.token_hex(8)
    async with node(word) as process:
        tree = set(traces(word)) - {process.pid}
        assert len(tree) == 2
        warden = owner_of(min(tree))
        assert traces(warden)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        await vanished(word, warden)


@pytest.mark.timeout(600)
@pytest.mark.requirement("process:sigkill-node", "process:sigkill-node:grandchild")
async def test_a_node_killed_in_the_middle_of_a_call_leaves_nobody():
    left = iter(range(scaled(200)))

    async def worker() -> int:
        killed = 0
        for _ in left:
            await kill_one()
            killed += 1
        return killed

    async with asyncio.timeout(500):
        assert sum(await asyncio.gather(*(worker() for _ in range(AT_ONCE)))) == scaled(200)


@pytest.mark.requirement("process:deterministic-close")
async def test_a_node_asked_to_stop_leaves_nobody_either():
    word = secrets.token_hex(8)
    async with node(word) as process:
        warden = owner_of(min(set(traces(word)) - {process.pid}))
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(10):
            await process.wait()
        assert traces(word, warden) == []
