"""The clients, what each of them cannot do and why, and how one is played."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checks.npm import NODE
from tests.doors.gateway.clients.homes import HERE, INSPECTOR, ROOT, packages, python
from tests.waits import DEADLINE_SECONDS

LEGACY, MODERN = "2025-11-25", "2026-07-28"
STEPS = ("list", "call", "error", "unknown", "progress", "cancel", "change")


@dataclass(frozen=True)
class Kind:
    """A client in one of its ways to speak."""

    driver: str
    era: str
    version: str | None  # of the protocol, as the client tells it
    home: str = ""  # an environment of its own
    cannot: Mapping[str, str] = field(default_factory=dict[str, str])
    unknown: str = "Unknown tool: {}"
    remote: bool = False

    async def command(self) -> list[str | Path]:
        """Return what starts its driver; what it needs is installed now unless it is there."""
        if self.driver.endswith(".mjs"):
            await asyncio.to_thread(packages)
            return [NODE, HERE / self.driver]
        home = await asyncio.to_thread(python, self.home) if self.home else Path(sys.executable)
        return [home, HERE / self.driver]


KINDS = {
    "python-sdk-1": Kind("mcp1.py", "legacy", LEGACY, "mcp1"),
    "python-sdk-2": Kind("mcp2.py", "auto", MODERN),
    "python-sdk-2-legacy": Kind("mcp2.py", "legacy", LEGACY),
    "typescript-sdk-1": Kind("sdk1.mjs", "legacy", LEGACY),
    "typescript-sdk-2": Kind("sdk2.mjs", "auto", MODERN),
    "typescript-sdk-2-legacy": Kind("sdk2.mjs", "legacy", LEGACY),
    "mcp-remote": Kind("sdk1.mjs", "legacy", LEGACY, remote=True),
    "mcp-remote-auto": Kind(
        "sdk1.mjs",
        "auto",
        LEGACY,
        remote=True,
        cannot={"cancel": "it keeps the answer's stream open; its word means nothing there"},
    ),
    "fastmcp": Kind(
        "fastmcp_client.py",
        "auto",
        MODERN,
        "frameworks",
        cannot={"change": "it opens no subscription; its list is at most ttlMs old"},
    ),
    "fastmcp-legacy": Kind("fastmcp_client.py", "legacy", LEGACY, "frameworks"),
    "openai-agents": Kind(
        "openai_agents.py",
        "auto",
        MODERN,
        "frameworks",
        cannot={
            "progress": "its call_tool has no way to ask for it",
            "change": "it opens no subscription; it lists anew for every run",
        },
    ),
    "pydantic-ai": Kind(
        "pydantic_ai_toolset.py",
        "auto",
        MODERN,
        "frameworks",
        cannot={"change": "it opens no subscription; cache_tools=False lists anew"},
    ),
    "inspector": Kind(
        "inspector.py",
        "legacy",
        None,
        cannot={
            "progress": "it prints the result alone",
            "cancel": "it ends, and hanging up is no cancel in this generation",
            "change": "a process for each question",
        },
        unknown="Tool '{}' not found on server.",
    ),
    "inspector-modern": Kind(
        "inspector.py",
        "modern",
        None,
        cannot={
            "progress": "it prints the result alone",
            "change": "a process for each question",
        },
        unknown="Tool '{}' not found on server.",
    ),
}


class Played:
    """A driver at work."""

    def __init__(self, process: asyncio.subprocess.Process, complaints: Path) -> None:
        self._process = process
        self.complaints = complaints  # what it wrote to its standard error

    async def next(self) -> dict[str, Any]:
        """Wait for what it says next."""
        assert self._process.stdout is not None
        async with asyncio.timeout(DEADLINE_SECONDS):
            line = await self._process.stdout.readline()
        assert line, self.complaints.read_text(encoding="utf-8")
        return json.loads(line)

    async def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        await self._process.stdin.drain()


@asynccontextmanager
async def playing(kind: Kind, task: Mapping[str, Any], folder: Path) -> AsyncGenerator[Played]:
    """Let a driver do a task; it has a home of its own to write in, and an end."""
    programs = {"node": str(NODE), "inspector": str(INSPECTOR), "packages": str(packages())}
    if kind.remote:
        programs["remote"] = "mcp-remote"
    complaints = folder / "complaints"
    inherited = {name: value for name, value in os.environ.items() if name[:6] != "PYTHON"}
    environ = {
        **inherited,
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT),
        "MCP_REMOTE_CONFIG_DIR": str(folder / "mcp-remote"),
    }
    with complaints.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *await kind.command(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env=environ,
            limit=1 << 20,
        )
    assert process.stdin is not None
    try:
        line = json.dumps({**task, "era": kind.era, "programs": programs})
        process.stdin.write(line.encode() + b"\n")
        yield Played(process, complaints)
    finally:
        if process.returncode is None:
            process.stdin.close()
            try:
                async with asyncio.timeout(DEADLINE_SECONDS):
                    await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
