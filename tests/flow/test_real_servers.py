"""Servers that nobody here wrote, from PyPI and npm: listed and called."""

from __future__ import annotations

import asyncio
import fcntl
import json
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from bascule.model.sandbox import Sandbox
from bascule.model.server import ServerRecord
from bascule.node.assembly import Bridge
from bascule.node.bridge.session import Session
from bascule.server import Server
from bascule.testing.server import ScriptedServer
from tests.flow.servers import record
from tests.scale import SOAK
from tests.waits import until

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
FILESYSTEM = "@modelcontextprotocol/server-filesystem"
FILESYSTEM_VERSION = "2026.8.31"
TIME = "mcp-server-time"
#: Where nobody listens: whatever asks the network is refused.
NO_NETWORK = dict.fromkeys(
    ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9"
)
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


@pytest.mark.requirement("process:sandbox")
@pytest.mark.timeout(240)
async def test_real_servers_are_listed_and_called_inside_the_best_sandbox(tmp_path: Path):
    package = await asyncio.to_thread(installed_from_npm, FILESYSTEM, FILESYSTEM_VERSION)
    granted, other = tmp_path / "granted", tmp_path / "other"
    for folder in (granted, other):
        folder.mkdir()
        (folder / "poem.txt").write_text("Über allen Gipfeln\n", encoding="utf-8")
    closed = Sandbox(level="best", required=True, network="none", write=())
    modules = (str(package.parents[1]),)
    opened = replace(closed, read=modules, write=(str(granted),))
    program = str(package / "dist" / "index.js")
    # The server itself allows both folders: it is the sandbox that keeps one from it.
    folders = (str(granted), str(tmp_path))
    files = Server.stdio("files", "node", program, *folders, budgets=BUDGETS, sandbox=opened)
    time = Server.stdio(
        "time", sys.executable, "-m", "mcp_server_time", budgets=BUDGETS, sandbox=closed
    )
    async with (
        Bridge.open([files, time], homes=tmp_path / "homes") as bridge,
        bridge.session(server_ids=["files", "time"]) as session,
    ):
        assert (await session.tools()).warnings == ()
        now = await session.call("mcp__time__get_current_time", {"timezone": "Europe/Vienna"})
        assert now.ok, now.error
        poem = await session.call("mcp__files__read_text_file", {"path": f"{granted}/poem.txt"})
        assert poem.ok, poem.error
        text = {"path": f"{granted}/new.txt", "content": "written"}
        assert (await session.call("mcp__files__write_file", text)).ok
        assert (granted / "new.txt").read_text(encoding="utf-8") == "written"
        hidden = await session.call("mcp__files__read_text_file", {"path": f"{other}/poem.txt"})
        assert not hidden.ok
        outside = {"path": f"{other}/new.txt", "content": "written"}
        assert not (await session.call("mcp__files__write_file", outside)).ok
        assert [entry.name for entry in other.iterdir()] == ["poem.txt"]
        levels = {status.sandbox.in_force for status in bridge.statuses() if status.sandbox}
        assert levels <= {"namespaces", "bwrap", "landlock"}
        assert levels


def launcher(name: str) -> str:
    """Return a launcher: from the PATH, else the one that ``make setup`` installs."""
    own = ROOT / ".uv" / "bin" / name
    found = shutil.which(name) or (str(own) if own.is_file() else None)
    if found is None:
        pytest.fail(f"this test needs {name}: run make setup, and have Node.js 20")
    return found


def fetched(folder: Path, *, copies: int) -> list[ServerRecord]:
    """Return records that fetch their servers, as people write them."""
    budgets = {"list_timeout_ms": 30_000, "tool_timeout_ms": 60_000}
    files = ("-y", f"{FILESYSTEM}@{FILESYSTEM_VERSION}", str(folder))
    return [
        server
        for number in range(copies)
        for server in (
            Server.stdio(f"time{number}", launcher("uvx"), TIME, budgets=budgets),
            Server.stdio(f"files{number}", launcher("npx"), *files, budgets=budgets),
        )
    ]


async def all_called(session: Session, records: Sequence[ServerRecord], folder: Path) -> None:
    """Call a tool of every server."""
    calls = {
        "time": ("get_current_time", {"timezone": "UTC"}),
        "file": ("list_directory", {"path": str(folder)}),
    }
    for server in records:
        tool, arguments = calls[server.server_id[:4]]
        outcome = await session.call(f"mcp__{server.server_id}__{tool}", arguments)
        assert outcome.ok, outcome.error


def found(session: Session, ids: Sequence[str]) -> Callable[[], Awaitable[bool]]:
    """Return what asks whether the tools of all servers are listed, beside one that hangs."""

    async def all_found() -> bool:
        tools = await session.tools()
        assert any(warning.startswith("hangs: ") for warning in tools.warnings)
        return {tool.server_id for tool in tools} == set(ids)

    return all_found


@pytest.mark.requirement(
    "process:home:kept", "process:home:offline", "pool:start-timeout", "catalogue:not-waited-for"
)
@pytest.mark.timeout(240)
async def test_fetched_servers_come_up_beside_one_that_hangs_and_again_without_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    records, homes = fetched(tmp_path, copies=2 if SOAK else 1), tmp_path / "homes"
    ids = [server.server_id for server in records]
    hanging = record(
        ScriptedServer(at_start=["stop_reading"]), "hangs", budgets={"connect_timeout_ms": 600_000}
    )
    async with (
        Bridge.open([*records, hanging], homes=homes) as bridge,
        bridge.session(server_ids=[*ids, "hangs"]) as session,
    ):
        await until(found(session, ids))
        await all_called(session, records, tmp_path)
    for name, dead in NO_NETWORK.items():
        monkeypatch.setenv(name, dead)
    again = records[:2]
    ids = [server.server_id for server in again]
    async with (
        Bridge.open(again, homes=homes) as bridge,
        bridge.session(server_ids=ids) as session,
    ):
        await all_called(session, again, tmp_path)
        tools = await session.tools()
        assert tools.warnings == ()
        assert {tool.server_id for tool in tools} == set(ids)


@pytest.mark.requirement("process:fetch-runs-nothing")
@pytest.mark.timeout(240)
async def test_confined_servers_are_fetched_first_and_run_without_any_network(tmp_path: Path):
    closed = Sandbox(level="best", required=True, network="none", write=(str(tmp_path),))
    records = [replace(one, sandbox=closed) for one in fetched(tmp_path, copies=1)]
    async with (
        Bridge.open(records, homes=tmp_path / "homes") as bridge,
        bridge.session(server_ids=[one.server_id for one in records]) as session,
    ):
        await all_called(session, records, tmp_path)
        assert (await session.tools()).warnings == ()
        levels = {status.sandbox.in_force for status in bridge.statuses() if status.sandbox}
        assert levels <= {"namespaces", "bwrap", "landlock"}
        assert levels
