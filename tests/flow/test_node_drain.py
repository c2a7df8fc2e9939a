"""``bascule node serve`` told to stop while clients call; real processes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bascule.testing.server import ScriptedServer, do
from tests.flow.node_process import Plane, filled, node
from tests.flow.servers import lines_of
from tests.flow.up_process import Up
from tests.waits import SOON_SECONDS, until

Answer = tuple[int, dict[str, Any]]


class Scene:
    """A node, and a call at it that waits for a file."""

    def __init__(self, served: Plane, up: Up, gate: Path, called: asyncio.Task[Answer]) -> None:
        self.served = served
        self.up = up
        self.gate = gate
        self.called = called

    def stop(self) -> None:
        self.up.process.send_signal(signal.SIGTERM)

    async def ended(self) -> int:
        async with asyncio.timeout(SOON_SECONDS):
            return await self.up.process.wait()

    async def refuses(self) -> bool:
        """Say whether nobody is let in any more."""
        try:
            _, writer = await asyncio.open_connection(
                "127.0.0.1", int(self.up.url.rpartition(":")[2])
            )
        except OSError:
            return True
        writer.transport.abort()
        return False

    async def is_forgotten(self) -> bool:
        return (await self.served.up.get("/admin/api/nodes"))["nodes"] == []


@asynccontextmanager
async def scene(folder: Path, **env: str) -> AsyncGenerator[Scene]:
    gate, journal = folder / "gate", folder / "journal"
    script = ScriptedServer(behaviours={"gated": do("gate", path=gate)}, journal=journal)
    record = {"server_id": "s", "transport": "stdio", "stdio": script.stdio}
    async with filled(folder / "plane") as (served, token, client):
        await served.put("servers", "s", {**record, "allowed_tools": ["*"]})
        mcp = {"enabled": True, "default_server_ids": ["s"]}
        await served.put("tasks", "t", {"task_id": "t", "mcp": mcp})
        words = ("--allow-executable", "*")
        async with node(folder / "node", served.grpc, token, *words, **env) as up:
            called = asyncio.create_task(up.call(client, "s/gated", text="done"))
            await until(lambda: "".join(lines_of(journal)).count('"tools/call"') == 1)
            yield Scene(served, up, gate, called)


@pytest.mark.requirement("cli:node-drain")
async def test_a_call_under_way_ends_and_then_the_node_reports_its_end(tmp_path: Path):
    async with scene(tmp_path) as site:
        assert not await site.is_forgotten()
        site.stop()
        await until(site.refuses)
        assert site.up.process.returncode is None
        site.gate.touch()
        status, outcome = await site.called
        assert (status, outcome["ok"]) == (200, True)
        assert await site.ended() == 0
        assert await site.is_forgotten()


@pytest.mark.requirement("cli:node-drain")
async def test_a_call_that_takes_longer_than_allowed_is_cancelled_and_told_so(tmp_path: Path):
    async with scene(tmp_path, BASCULE_DRAIN_SECONDS="1") as site:
        site.stop()
        status, answer = await site.called
        assert (status, answer["error"]["code"]) == (503, "shutting_down")
        assert await site.ended() == 0
        assert await site.is_forgotten()


@pytest.mark.requirement("cli:node-drain")
async def test_a_second_signal_ends_it_at_once(tmp_path: Path):
    async with scene(tmp_path) as site:
        site.stop()
        await until(site.refuses)
        site.stop()
        status, answer = await site.called
        assert (status, answer["error"]["code"]) == (503, "shutting_down")
        assert await site.ended() == 0
