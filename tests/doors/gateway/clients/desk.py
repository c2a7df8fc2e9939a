"""A Bascule process with a server for each client, and what the tests see of that server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bascule.testing import ScriptedServer, do, tool
from tests.flow.up_process import Up, serving

NAMES = ("echo", "fail", "grow", "steps", "wait")


class Desk:
    """A server of one client's own, with a task and a token that see it alone."""

    def __init__(self, folder: Path, url: str, server_id: str) -> None:
        self.folder = folder
        self.url = f"{url}/mcp"
        self.server_id = server_id
        self.prefix = f"mcp__{server_id}__"
        self.token = ""
        self.arrived, self.gate = folder / "arrived", folder / "gate"
        self.cancelled = folder / "cancelled"
        folder.mkdir()
        for pipe in (self.arrived, self.cancelled):
            os.mkfifo(pipe)

    @property
    def server(self) -> ScriptedServer:
        grown = [tool(name) for name in (*NAMES, "grown")]
        done = do("gate", path=str(self.gate), then=do("echo", text="done"))
        waiting = do("sleep_until_cancelled", path=str(self.cancelled))
        return ScriptedServer(
            behaviours={
                "echo": "echo",
                "fail": do("error", text="it went wrong"),
                "grow": do("change_tools", tools=grown, then=do("echo", text="grew")),
                "steps": do("progress", count=3, then=done),
                "wait": do("ledger", path=str(self.arrived), then=waiting),
            }
        )

    def named(self, *names: str) -> list[str]:
        return [f"{self.prefix}{name}" for name in names]

    def task(self, steps: Sequence[str]) -> dict[str, Any]:
        """Return what a driver is given."""
        return {
            "url": self.url,
            "token": self.token,
            "prefix": self.prefix,
            "arrived": str(self.arrived),
            "cancelled": str(self.cancelled),
            "gate": str(self.gate),
            "steps": list(steps),
        }


async def desk(up: Up, folder: Path, server_id: str) -> Desk:
    """Put a server of its own behind the gateway."""
    made = Desk(folder / server_id, up.url, server_id)
    stdio = made.server.stdio
    record = {"server_id": server_id, "transport": "stdio", "stdio": stdio, "allowed_tools": ["*"]}
    config = {"mcp.enabled": "true", "mcp.default_server_ids": server_id}
    for path, body in (
        (f"servers/{server_id}", record),
        (f"tasks/{server_id}", {"task_id": server_id, "config": config}),
    ):
        status, answer = await up.ask("PUT", f"/admin/api/mcp/{path}", token=up.admin, body=body)
        assert status == 201, answer
    made.token = await up.token(server_id)
    return made


@asynccontextmanager
async def bascule(data: Path, *words: str) -> AsyncGenerator[Up]:
    """Start a process; what it logs is read, lest it wait."""
    async with serving(data, "--empty", *words) as up:
        assert up.process.stderr is not None
        reading = asyncio.create_task(up.process.stderr.read())
        try:
            yield up
        finally:
            reading.cancel()
