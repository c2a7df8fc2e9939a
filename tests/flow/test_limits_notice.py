"""Where only limits work, a process says at its start what local servers can read."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.flow.node_process import node, notes, plane
from tests.flow.up_process import Up, serving

ONLY_LIMITS = "tests.flow.only_limits"
WORDS = "local servers have limits only, and can read what this process can, Bascule's keys"


def write_record(folder: Path, level: str) -> None:
    lines = [
        'server_id = "quiet"',
        'transport = "stdio"',
        "[stdio]",
        f'command = "{sys.executable}"',
    ]
    text = "\n".join([*lines, "[sandbox]", f'level = "{level}"\n'])
    folder.mkdir()
    (folder / "quiet.toml").write_text(text, encoding="utf-8")


async def line_with(up: Up, word: str) -> str:
    """Return the line that a process writes about something, having waited for it."""
    assert up.process.stderr is not None
    async with asyncio.timeout(20):
        while line := (await up.process.stderr.readline()).decode():
            if word in line:
                return line
    raise AssertionError(f"it ended without a word of {word!r}")


async def rest_of(up: Up) -> str:
    assert await up.end() == 0
    assert up.process.stderr is not None
    async with asyncio.timeout(10):
        return (await up.process.stderr.read()).decode()


@pytest.mark.requirement("record:sandbox:status")
async def test_up_says_so_before_any_server_has_started(tmp_path: Path):
    write_record(tmp_path / "mcp.d", "best")
    words = ("--empty", "--registry-dir", str(tmp_path / "mcp.d"))
    async with serving(tmp_path / "data", *words, module=ONLY_LIMITS) as up:
        said = await line_with(up, WORDS)
        for level in ("namespaces", "bwrap", "landlock"):
            assert f"{level}: " in said
        assert (await up.get("/healthz"))["servers"] == {"disconnected": 1}
        assert WORDS not in await rest_of(up)  # once


@pytest.mark.requirement("record:sandbox:status")
async def test_up_says_so_when_the_first_server_comes_that_asks_for_more(tmp_path: Path):
    async with serving(tmp_path / "data", "--empty", module=ONLY_LIMITS) as up:
        for level in ("limits", "best"):
            record = notes(sandbox={"level": level})
            path = f"/admin/api/mcp/servers/{record['server_id']}"
            assert (await up.ask("PUT", path, token=up.admin, body=record))[0] in (200, 201)
        await line_with(up, WORDS)
        assert WORDS not in await rest_of(up)


@pytest.mark.requirement("record:sandbox:status")
async def test_a_node_of_several_workers_says_so_too(tmp_path: Path):
    async with plane(tmp_path / "plane") as served:
        await served.put("servers", "notes", notes(sandbox={"level": "best"}))
        token, _ = await served.token("node")
        words = (served.grpc, token, "--workers", "2")
        async with node(tmp_path / "node", *words, module=ONLY_LIMITS) as up:
            await line_with(up, WORDS)
            assert WORDS not in await rest_of(up)
