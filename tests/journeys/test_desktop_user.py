"""Journey 3: the desktop user brings an ``mcp.json`` and a client, allows what reads, returns."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.flow.up_process import serving
from tests.journeys.shell import SECONDS, Terminal

DEMO: dict[str, Any] = {"command": sys.executable, "args": ["-m", "bascule.demo.server"]}
SILENT: dict[str, Any] = {"command": "sleep", "args": ["3600"]}
WRITE_NOTE = "tools call diary/write_note --arg name=a --arg text=b"
CLIENT = Path(__file__).with_name("mcp_client.py")
READING = "'list_*' 'read_*' 'search_*'"


def write(path: Path, **changed: Any) -> None:
    servers = {"Diary": DEMO, "Recipes": DEMO, "Work (notes)": DEMO, "silent": SILENT}
    path.write_text(json.dumps({"mcpServers": servers | changed}), encoding="utf-8")


class Client:
    """The person's own MCP client, in a process, and what it says."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def says(self) -> dict[str, Any]:
        """Return the next line."""
        assert self._process.stdout is not None
        async with asyncio.timeout(SECONDS):
            return json.loads(await self._process.stdout.readline())


@asynccontextmanager
async def connected(at: Terminal, tool: str) -> AsyncGenerator[Client]:
    """Connect the client as the command that makes its token says."""
    made = await at("tokens create --role client --task demo")
    [address] = re.findall(r"connect an MCP client to (\S+)", made.err)
    assert "Authorization: Bearer" in made.err
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(CLIENT), address, tool),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "BASCULE_CLIENT_TOKEN": made.out.strip()},
    )
    try:
        yield Client(process)
        async with asyncio.timeout(SECONDS):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def allow_exactly_what_was_denied(at: Terminal, client: Client) -> None:
    """Meet a denial in the client and on the command line, find out why, and lift it."""
    begun = await client.says()
    assert begun["version"] == "2026-07-28"
    assert "mcp__diary__read_note" in begun["names"]
    assert "mcp__diary__write_note" not in begun["names"]
    asked = await client.says()
    assert (asked["refused"], "Unknown tool" in asked["words"]) == (-32602, True)

    denied = await at(WRITE_NOTE)
    assert (denied.code, "allowed_tools do not cover it" in denied.err) == (10, True)
    why = await at("tools explain diary/write_note")
    assert "not_in_allowed_tools" in why.out
    [lifting] = why.commands
    assert denied.commands == [lifting]
    assert (await at.type_in(lifting)).code == 0

    heard = await client.says()
    assert heard["failed"] is False
    assert set(heard["names"]) - set(begun["names"]) == {"mcp__diary__write_note"}
    await at.works(WRITE_NOTE)


@pytest.mark.timeout(180)
@pytest.mark.requirement("registry:import:keeps-policy", "cli:next-command", "gateway:mode")
async def test_a_week_with_an_mcp_json(tmp_path: Path):
    data, file = tmp_path / "data", tmp_path / "mcp.json"
    at = Terminal(tmp_path, data)
    write(file)
    async with serving(data) as up:
        imported = await at("servers import mcp.json")
        assert imported.code == 0, imported.err
        for server in ("diary", "recipes", "work-notes", "silent"):
            assert f"+ server {server}" in imported.out
            await at.works(f"servers allow {server} {READING}")
        await at.works("servers set silent budgets.connect_timeout_ms=1000")
        using = [command for command in imported.commands if " tasks use demo " in command]
        assert len(using) == 1
        assert (await at.type_in(using[0])).code == 0

        listed = json.loads(await at.works("tools list --json"))
        assert {tool["server"] for tool in listed["tools"]} == {
            "notes",
            "diary",
            "recipes",
            "work-notes",
        }
        assert any("silent" in warning for warning in listed["warnings"])
        assert "welcome" in await at.works("tools call diary/list_notes")

        async with connected(at, "mcp__diary__write_note") as client:
            await allow_exactly_what_was_denied(at, client)
        assert (await at(WRITE_NOTE.replace("diary", "recipes"))).code == 10

        before = json.loads(await at.works("servers get diary --json"))
        assert await at.works("servers import mcp.json") == "no change\n"
        moved = {**DEMO, "command": str(Path(sys.executable).with_name("python3"))}
        write(file, Diary=moved)
        again = await at("servers import mcp.json")
        assert "~ server diary\n    stdio.command: " in again.out
        after = json.loads(await at.works("servers get diary --json"))
        for kept in ("allowed_tools", "display_name", "enabled", "tags"):
            assert after[kept] == before[kept]
        await at.works(WRITE_NOTE)
        assert await up.end() == 0
