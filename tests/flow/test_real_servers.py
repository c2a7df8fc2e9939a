"""Servers that nobody here wrote, from PyPI and npm: listed and called."""

from __future__ import annotations

import asyncio
import fcntl
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bascule.node.assembly import Bridge
from bascule.wire.server import Server

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
FILESYSTEM = "@modelcontextprotocol/server-filesystem"
FILESYSTEM_VERSION = "2026.8.31"
BUDGETS = {"connect_timeout_ms": 25_000, "list_timeout_ms": 20_000, "tool_timeout_ms": 20_000}


def installed_from_npm(package: str, version: str) -> Path:
    """Return the folder of a package, installed now unless that was done before."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.fail("this test needs Node.js 20 with npm: install it (nodejs.org) and run again")
    prefix = CACHE / "npm"
    folder = prefix / "node_modules" / package
    prefix.mkdir(parents=True, exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n", encoding="ascii")
    with (CACHE / "npm.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if version_of(folder) != version:
            words = [npm, "install", "--prefix", str(prefix), "--no-audit", "--no-fund"]
            done = subprocess.run(
                [*words, f"{package}@{version}"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                timeout=150,
                check=False,
            )
            assert done.returncode == 0, f"npm could not install {package}:\n{done.stdout}"
    assert version_of(folder) == version
    return folder


def version_of(folder: Path) -> str | None:
    """Return the version of an installed package."""
    manifest = folder / "package.json"
    if not manifest.is_file():
        return None
    return json.loads(manifest.read_text(encoding="utf-8"))["version"]


@pytest.mark.requirement("transport:stdio", "wire:generations")
@pytest.mark.timeout(90)
async def test_the_time_server_of_pypi_is_listed_and_called():
    server = Server.stdio("time", sys.executable, "-m", "mcp_server_time", budgets=BUDGETS)
    async with Bridge.open([server]) as bridge, bridge.session(server_ids=["time"]) as session:
        tools = await session.tools()
        assert tools.warnings == ()
        assert set(tools.names) == {"mcp__time__get_current_time", "mcp__time__convert_time"}
        now = await session.call("mcp__time__get_current_time", {"timezone": "Europe/Vienna"})
        assert now.ok, now.error
        assert "Europe/Vienna" in now.text
        later = await session.call(
            "mcp__time__convert_time",
            {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
        )
        assert "21:00" in later.text
        wrong = await session.call("mcp__time__get_current_time", {"timezone": "Nowhere/Else"})
        assert wrong.error is not None
        assert wrong.error.code == "mcp_tool_error"
        missing = await session.call("mcp__time__get_current_time", {})
        assert missing.error is not None
        assert missing.error.code == "mcp_invalid_arguments"


@pytest.mark.requirement("transport:stdio", "wire:generations")
@pytest.mark.timeout(240)
async def test_the_filesystem_server_of_npm_is_listed_and_called(tmp_path: Path):
    package = await asyncio.to_thread(installed_from_npm, FILESYSTEM, FILESYSTEM_VERSION)
    root = tmp_path
    (root / "poem.txt").write_text("Über allen Gipfeln\n", encoding="utf-8")
    program = str(package / "dist" / "index.js")
    server = Server.stdio("files", "node", program, str(root), budgets=BUDGETS)
    async with Bridge.open([server]) as bridge, bridge.session(server_ids=["files"]) as session:
        tools = await session.tools()
        assert tools.warnings == ()
        assert {"mcp__files__read_text_file", "mcp__files__write_file"} <= set(tools.names)
        poem = await session.call("mcp__files__read_text_file", {"path": str(root / "poem.txt")})
        assert poem.ok, poem.error
        assert "Über allen Gipfeln" in poem.text
        text = {"path": str(root / "new.txt"), "content": "written"}
        assert (await session.call("mcp__files__write_file", text)).ok
        assert (root / "new.txt").read_text(encoding="utf-8") == "written"
        outside = await session.call("mcp__files__read_text_file", {"path": "/etc/hostname"})
        assert outside.error is not None
        assert outside.error.code == "mcp_tool_error"
