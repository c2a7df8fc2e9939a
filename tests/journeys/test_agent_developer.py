"""Journey 2: the agent developer runs the page's agent, bounds it, and asks before it writes."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from bascule import AskFunction, Bridge, Server, SessionLimits
from bascule.model.approval import ApprovalRequest
from bascule.testing import ScriptedServer, ScriptedUpstream, calls, do, says
from checks.tree import ROOT

DEMO = (sys.executable, "-m", "bascule.demo.server")
ASK_TO_WRITE = {"default": "never", "per_tool": {"write_note": "always"}}


def agent() -> str:
    """Return the agent as the page has it."""
    page = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    [program] = re.findall(r"^```py\n(import asyncio\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    return program


async def run(folder: Path, model: ScriptedUpstream) -> str:
    """Run the page's agent as a program of its own; return what it prints."""
    file = folder / "agent.py"
    file.write_text(agent(), encoding="utf-8")
    home = {"XDG_CACHE_HOME": str(folder / "cache"), "OPENAI_API_KEY": "none"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(file)),
        env={**os.environ, **home, "OPENAI_BASE_URL": model.url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


@pytest.mark.timeout(120)
@pytest.mark.requirement("bridge:open:records")
async def test_the_agent_of_the_page_has_four_tools_and_is_told_why_one_is_denied(tmp_path: Path):
    lines = re.findall(r"^    +\S", agent().partition("async def main")[2], re.MULTILINE)
    assert len(lines) < 20
    async with ScriptedUpstream() as model:
        for _ in range(2):  # the second start has what the first one kept
            model.add(
                calls(("mcp__notes__list_notes", {}), ("mcp__diary__delete_note", {"name": "a"})),
                says("Four notes."),
            )
            assert await run(tmp_path, model) == "Four notes.\n"
    first, second = model.requests[-2:]
    assert [tool["function"]["name"] for tool in first.json["tools"]] == [
        "mcp__notes__list_notes",
        "mcp__notes__read_note",
        "mcp__diary__read_note",
        "mcp__diary__write_note",
    ]
    listed, denied = (message["content"] for message in second.json["messages"][-2:])
    assert "drawbridge" in listed
    assert denied.startswith("mcp_policy_denied: diary/delete_note: denied")
    assert "allowed_tools do not cover it" in denied


@pytest.mark.timeout(60)
@pytest.mark.requirement("bridge:open:records")
async def test_a_function_of_their_own_approves_and_a_budget_ends_it():
    asked: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> bool:
        asked.append(request)
        return request.arguments["name"] != "welcome"

    diary = Server.stdio("diary", *DEMO, allow=["*_note*"], approval_policy=ASK_TO_WRITE)
    async with Bridge.open([diary], approver=AskFunction(approve)) as bridge:
        limits = SessionLimits(max_total_tool_calls=2)  # a refused call is free
        session = bridge.session(server_ids=["diary"], caller="agent", limits=limits)
        written = await session.call("diary.write_note", {"name": "today", "text": "Sun."})
        refused = await session.call("diary/write_note", {"name": "welcome", "text": "Gone."})
        assert "today" in (await session.call("list_notes", {})).text
        why = str(session.explain("diary/current_time"))
        spent = await session.call("mcp__diary__read_note", {"name": "today"})
    assert written.ok
    assert [request.arguments["name"] for request in asked] == ["today", "welcome"]
    assert {(request.server, request.tool) for request in asked} == {("diary", "write_note")}
    assert refused.error is not None
    assert refused.error.code == "mcp_approval_denied"
    assert "not_in_allowed_tools" in why
    assert spent.error is not None, spent
    assert spent.error.code == "mcp_budget_exceeded"


@pytest.mark.timeout(60)
@pytest.mark.requirement("bridge:open:records")
async def test_a_scripted_server_takes_the_place_of_a_real_one_in_their_test():
    weather = ScriptedServer(behaviours={"rain": do("echo", text="It rains."), "storm": "die"})
    program, words = weather.command
    servers = [Server.stdio("weather", program, *words)]
    async with Bridge.open(servers) as bridge:
        session = bridge.session(server_ids=["weather"], caller="test")
        assert (await session.call("rain", {})).unwrap() == "It rains."
        lost = await session.call("storm", {})
        assert lost.error is not None
        assert lost.error.code == "mcp_outcome_unknown"
        assert (await session.call("rain", {})).ok
