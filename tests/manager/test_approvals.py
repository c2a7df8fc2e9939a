"""An agent's tool that needs approval: it says which question it is, or waits for the answer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bascule import AskFunction, Bridge
from bascule.manager import (
    ApprovalNeeded,
    ManagerEvent,
    McpManager,
    McpToolAdapter,
    ToolCompleted,
    ToolStarted,
)
from tests.doors.asking import Scene, asked, decided, scene
from tests.security.test_approval_at_every_door import asking
from tests.waits import until

__all__ = ["scene"]
ARGUMENTS = {"text": "x"}


@asynccontextmanager
async def delete(
    scene: Scene, events: list[ManagerEvent], **options: Any
) -> AsyncGenerator[McpToolAdapter]:
    """Open a manager over a connected bridge, and find the tool."""

    def heard(event: ManagerEvent) -> None:
        if isinstance(event, ToolStarted | ApprovalNeeded | ToolCompleted):
            events.append(event)

    async with (
        Bridge.connect(scene.url, token=scene.token) as bridge,
        McpManager(["fs"], bridge=bridge, on_event=heard, **options) as manager,
    ):
        tools = {tool.name: tool for tool in await manager.get_tools()}
        yield tools["fs_delete"]


@pytest.mark.requirement("approval:python-doors")
async def test_a_call_comes_back_with_the_question_and_its_answer_is_used_once(scene: Scene):
    events: list[ManagerEvent] = []
    async with delete(scene, events) as tool:
        first = await tool.call(ARGUMENTS)
        question = await asked(scene.approvals)
        assert (first.code, first.approval_id) == ("mcp_approval_required", question.id)
        assert question.id in first
        await decided(scene.approvals)
        second = await tool.call(ARGUMENTS)
        assert (second, second.approval_id) == ("gone", None)
    begun, needed, ended, *_ = events
    assert isinstance(begun, ToolStarted)
    assert isinstance(needed, ApprovalNeeded)
    assert isinstance(ended, ToolCompleted)
    assert (needed.approval_id, needed.call_id) == (question.id, begun.call_id)
    assert needed.expires_at == pytest.approx(question.expires_at, abs=0.01)
    assert scene.runs == 1


@pytest.mark.requirement("approval:python-doors")
@pytest.mark.parametrize("seconds", [60, math.inf])
async def test_a_call_waits_where_its_manager_does(scene: Scene, seconds: float):
    events: list[ManagerEvent] = []
    async with delete(scene, events, approval_seconds=seconds) as tool:
        calling = asyncio.ensure_future(tool.call(ARGUMENTS))
        await until(lambda: [one for one in events if isinstance(one, ApprovalNeeded)])
        await decided(scene.approvals)
        assert await calling == "gone"
    assert [type(event) for event in events] == [ToolStarted, ApprovalNeeded, ToolCompleted]


async def test_a_denial_is_a_text_with_its_reason(scene: Scene):
    async with delete(scene, [], approval_seconds=60) as tool:
        calling = asyncio.ensure_future(tool.call(ARGUMENTS))
        await decided(scene.approvals, "deny", "not today")
        denied = await calling
    assert (denied.code, "not today" in denied) == ("mcp_approval_denied", True)
    assert scene.runs == 0


async def test_a_function_that_is_asked_is_waited_for(tmp_path: Path):
    """What is asked in this process answers at once or never: there is nothing to come back to."""
    questions: list[object] = []
    held = asyncio.Event()

    async def agree(question: object) -> bool:
        questions.append(question)
        await held.wait()
        return True

    record = asking(tmp_path / "journal")
    async with (
        Bridge.open([record], approver=AskFunction(agree)) as bridge,
        McpManager(["fs"], bridge=bridge) as manager,
    ):
        tools = {tool.name: tool for tool in await manager.get_tools()}
        calling = asyncio.ensure_future(tools["fs_delete"].call(ARGUMENTS))
        await until(lambda: questions)
        held.set()
        assert await calling == "x"


def test_a_wait_that_cannot_be_is_refused_by_its_name():
    with pytest.raises(ValueError, match="approval_seconds"):
        McpManager([], approval_seconds=-1)
