"""Journey 1: the evaluator starts the demo, approves a call, adds a server, and starts again."""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
from pathlib import Path

import psutil
import pytest

from bascule.cli.command_line import program
from tests.cli.terminal import Terminal as Second
from tests.flow.up_process import serving
from tests.journeys.shell import Seen, Terminal
from tests.waits import until

SERVER = f"{shlex.quote(sys.executable)} -m bascule.demo.server"
README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def _plain(asking: str, watching: str, data: Path) -> list[str]:
    """Return commands as a page writes them, without the place of this program and its data."""
    lines = (asking, watching)
    return [
        line.replace(program(), ".venv/bin/bascule").partition(f" --data-dir {data}")[0]
        for line in lines
    ]


def _answer_yes(watching: str, data: Path) -> str:
    """Type the command that watches into a terminal, read the question, and answer it."""
    second = Second(["sh", "-c", f"exec {watching}"], BASCULE_DATA_DIR=str(data), NO_COLOR="1")
    second.until("approve this call?")
    second.type("y")
    second.until("claimed")
    second.process.send_signal(signal.SIGINT)
    second.finish()
    return second.shown


async def _approve_one(at: Terminal, data: Path, asking: str, watching: str) -> None:
    """Ask in one terminal, approve in a second, and see the call run."""
    chatting = asyncio.create_task(at.type_in(asking))
    shown = await asyncio.to_thread(_answer_yes, watching, data)
    assert "call:     notes/delete_note" in shown
    assert '"name": "shopping"' in shown
    assert "approved by cli-approvals, own call" in shown
    chatted = await chatting
    assert chatted.code == 0, chatted
    assert f"{program()} approvals approve apr-" in chatted.err
    assert "mcp__notes__delete_note answered" in chatted.err
    assert "deleted" in chatted.out


async def _see_its_life(at: Terminal) -> None:
    """Find the calls in the trail, as the pages say, and look at the one that was approved."""

    async def ended() -> str | None:
        trail = await at.works("audit tail")
        assert "notes/list_notes" in trail
        lines = [line for line in trail.splitlines() if "notes/delete_note" in line]
        made = [line for line in lines if " ok " in line]
        return made[0].split()[-1] if made else None

    request = await until(ended)
    life = await at.works(f"audit show {request}")
    assert "of notes/delete_note: ok" in life
    assert 'arguments: {"name": "string(8)"}' in life
    assert "approved" in life


@pytest.mark.timeout(180)
@pytest.mark.requirement("cli:up", "cli:next-command")
async def test_five_minutes_from_the_first_start_to_the_second(tmp_path: Path):
    data = tmp_path / "data"
    at = Terminal(tmp_path, data)
    async with serving(data) as up:
        printed = Seen(0, "\n".join(await up.next_lines(10)), "")
        *first, asking, watching = printed.commands
        seen = [await at.type_in(command) for command in first]
        assert [one.code for one in seen] == [0] * 5, seen
        link, _, token, tools, chat = seen
        assert link.out.startswith(f"{up.url}/admin/#code=")
        assert f"connect an MCP client to {up.url}/mcp" in token.err
        assert "mcp__notes__read_note" in tools.out
        assert "mcp__notes__list_notes answered" in chat.err
        assert all(words in README for words in _plain(asking, watching, data))
        await _approve_one(at, data, asking, watching)
        asked = await at("tools call notes/delete_note --arg name=welcome --no-input")
        assert (asked.code, "mcp_approval_required" in asked.err) == (11, True)
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
