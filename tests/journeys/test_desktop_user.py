"""Journey 3: the desktop user brings an ``mcp.json``, allows what reads, and comes again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.flow.up_process import serving
from tests.journeys.shell import Terminal

DEMO: dict[str, Any] = {"command": sys.executable, "args": ["-m", "bascule.demo.server"]}
SILENT: dict[str, Any] = {"command": "sleep", "args": ["3600"]}
READING = "'list_*' 'read_*' 'search_*'"


def write(path: Path, **changed: Any) -> None:
    servers = {"Diary": DEMO, "Recipes": DEMO, "Work (notes)": DEMO, "silent": SILENT}
    path.write_text(json.dumps({"mcpServers": servers | changed}), encoding="utf-8")


@pytest.mark.timeout(180)
@pytest.mark.requirement("registry:import:keeps-policy", "cli:next-command")
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

        write_note = "tools call diary/write_note --arg name=a --arg text=b"
        denied = await at(write_note)
        assert (denied.code, "allowed_tools do not cover it" in denied.err) == (10, True)
        why = await at("tools explain diary/write_note")
        assert "not_in_allowed_tools" in why.out
        [lifting] = why.commands
        assert denied.commands == [lifting]
        assert (await at.type_in(lifting)).code == 0
        await at.works(write_note)
        assert (await at(write_note.replace("diary", "recipes"))).code == 10

        before = json.loads(await at.works("servers get diary --json"))
        assert await at.works("servers import mcp.json") == "no change\n"
        moved = {"command": "sh", "args": ["-c", f"exec {sys.executable} -m bascule.demo.server"]}
        write(file, Diary=moved)
        again = await at("servers import mcp.json")
        assert "~ server diary\n    stdio.command: " in again.out
        after = json.loads(await at.works("servers get diary --json"))
        for kept in ("allowed_tools", "display_name", "enabled", "tags"):
            assert after[kept] == before[kept]
        await at.works(write_note)
        assert await up.end() == 0
