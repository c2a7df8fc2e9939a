"""A section's tool that needs approval: it comes back with the question, or waits for it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from bascule import Bridge
from bascule.section import ApprovalNeeded, McpConfigError, McpServerConfig, Session, ToolInvoked
from tests.doors.asking import Scene, asked, decided, scene
from tests.section.section_servers import run, section_of, stdio
from tests.waits import until

__all__ = ["scene"]
ARGUMENTS = {"text": "x"}
FS = McpServerConfig(name="fs", transport=stdio())


def through(scene: Scene, session: Session, **options: Any) -> Callable[[], Any]:
    """Return what calls the tool in a thread, over a bridge that is connected to the door."""

    def call() -> Any:
        with (
            Bridge.connect_blocking(scene.url, token=scene.token) as bridge,
            section_of(FS, bridge=bridge, session=session, **options) as section,
        ):
            return run(section, "fs_delete", ARGUMENTS)

    return call


@pytest.mark.requirement("approval:python-doors")
async def test_a_tool_comes_back_with_the_question_and_its_answer_is_used_once(scene: Scene):
    session = Session()
    call = through(scene, session)
    first = await asyncio.to_thread(call)
    question = await asked(scene.approvals)
    assert (first.success, first.error.code) == (False, "mcp_approval_required")
    assert first.error.details["approval_id"] == question.id
    assert question.id in first.message
    needed, invoked = session.events
    assert isinstance(needed, ApprovalNeeded)
    assert (needed.tool_name, needed.mcp_server) == ("fs_delete", "fs")
    assert needed.approval_id == question.id
    assert needed.expires_at == pytest.approx(question.expires_at, abs=0.01)
    assert isinstance(invoked, ToolInvoked)
    await decided(scene.approvals)
    assert (await asyncio.to_thread(call)).text == "gone"
    assert scene.runs == 1


@pytest.mark.requirement("approval:python-doors")
@pytest.mark.parametrize("seconds", [60, math.inf])
async def test_a_tool_waits_where_its_section_does_and_says_for_what(scene: Scene, seconds: float):
    session = Session()
    calling = asyncio.ensure_future(
        asyncio.to_thread(through(scene, session, approval_seconds=seconds))
    )
    await until(lambda: session.events)
    await decided(scene.approvals)
    assert (await calling).text == "gone"
    assert [type(event) for event in session.events] == [ApprovalNeeded, ToolInvoked]


async def test_a_denial_is_a_result_with_its_reason(scene: Scene):
    call = through(scene, Session(), approval_seconds=60)
    calling = asyncio.ensure_future(asyncio.to_thread(call))
    await decided(scene.approvals, "deny", "not today")
    result = await calling
    assert (result.success, result.error.code) == (False, "mcp_approval_denied")
    assert "not today" in result.message
    assert scene.runs == 0


@pytest.mark.parametrize("seconds", [-1, math.nan, "60", True])
def test_a_wait_that_cannot_be_is_refused_by_its_name(seconds: Any):
    with pytest.raises(McpConfigError, match="approval_seconds"):
        section_of(FS, approval_seconds=seconds)
