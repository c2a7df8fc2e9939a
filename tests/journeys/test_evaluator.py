"""Journey 1: the evaluator starts the demo, looks at it, adds something, ends it, starts again."""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
from pathlib import Path

import psutil
import pytest

from bascule.cli.command_line import program
from tests.flow.up_process import serving
from tests.journeys.shell import Seen, Terminal

SERVER = f"{shlex.quote(sys.executable)} -m bascule.demo.server"


async def _see_its_life(at: Terminal) -> None:
    """Find the calls in the trail, as the pages say, and look at the one that was not made."""
    trail = await at.works("audit tail")
    assert "notes/list_notes" in trail
    [line] = [line for line in trail.splitlines() if "mcp_approval_required" in line]
    life = await at.works(f"audit show {line.split()[-1]}")
    assert "of notes/delete_note: failed" in life
    assert 'arguments: {"name": "string(7)"}' in life


@pytest.mark.timeout(180)
@pytest.mark.requirement("cli:up", "cli:next-command")
async def test_five_minutes_from_the_first_start_to_the_second(tmp_path: Path):
    data = tmp_path / "data"
    at = Terminal(tmp_path, data)
    async with serving(data) as up:
        printed = Seen(0, "\n".join(await up.next_lines(5)), "")
        assert len(printed.commands) == 4
        seen = [await at.type_in(command) for command in printed.commands]
        assert [one.code for one in seen] == [0] * 4, seen
        assert "mcp__notes__read_note" in seen[2].out
        assert "mcp__notes__list_notes answered" in seen[3].err
        asked = await at("tools call notes/delete_note --arg name=welcome")
        assert (asked.code, "mcp_approval_required" in asked.err) == (10, True)
        await _see_its_life(at)
        added = await at(f"servers add mine -- {SERVER}")
        assert added.code == 0
        for command in added.commands:
            assert (await at.type_in(command)).code == 0, command
        assert "mcp__mine__read_note" in await at.works("tools list")
        family = psutil.Process(up.process.pid).children(recursive=True)
        assert family
        assert await up.end(signal.SIGINT) == 0
        _, left = await asyncio.to_thread(psutil.wait_procs, family, 10)
        assert left == []
    gone = await at("tools list")
    assert (gone.code, f"{program()} up" in gone.err) == (1, True)
    async with serving(data) as again:
        assert len(again.said) == 1
        assert "mcp__mine__read_note" in await at.works("tools list")
        assert await again.end(signal.SIGINT) == 0
