"""An executor's call that needs approval: its result names the question, or it waits for it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bascule import Bridge
from bascule.clock import seconds_of
from bascule.executor import ApprovalNeeded, McpExecutor, ToolCall
from tests.doors.asking import Scene, asked, decided, scene
from tests.waits import until

__all__ = ["scene"]
CALL = ToolCall("call-1", "fs_delete", {"text": "x"})


@asynccontextmanager
async def executor_of(scene: Scene, **options: Any) -> AsyncGenerator[McpExecutor]:
    async with (
        Bridge.connect(scene.url, token=scene.token) as bridge,
        McpExecutor(["fs"], bridge=bridge, **options) as executor,
    ):
        await executor.discover(["fs"])
        yield executor


@pytest.mark.requirement("approval:python-doors")
async def test_a_call_comes_back_with_the_question_and_its_answer_is_used_once(scene: Scene):
    told: list[ApprovalNeeded] = []
    async with executor_of(scene, on_approval=told.append) as executor:
        first = await executor.execute(CALL)
        question = await asked(scene.approvals)
        assert first.is_error
        assert first.metadata["code"] == "mcp_approval_required"
        assert first.metadata["approval_id"] == question.id
        until_then = seconds_of(first.metadata["expires_at"])
        assert until_then == pytest.approx(question.expires_at, abs=0.01)
        assert question.id in first.output
        [needed] = told
        assert (needed.call_id, needed.approval_id) == ("call-1", question.id)
        assert (needed.server, needed.tool) == ("fs", "delete")
        await decided(scene.approvals)
        second = await executor.execute(CALL)
        assert (second.output, second.is_error) == ("gone", False)
    assert (len(told), scene.runs) == (1, 1)


@pytest.mark.requirement("approval:python-doors")
@pytest.mark.parametrize("seconds", [60, math.inf])
async def test_a_call_waits_where_its_executor_does(scene: Scene, seconds: float):
    told: list[ApprovalNeeded] = []
    async with executor_of(scene, on_approval=told.append, approval_seconds=seconds) as executor:
        calling = asyncio.ensure_future(executor.execute(CALL))
        await until(lambda: told)
        await decided(scene.approvals)
        assert (await calling).output == "gone"
    assert (len(told), scene.runs) == (1, 1)


async def test_a_listener_that_fails_fails_no_call(scene: Scene):
    def broken(needed: ApprovalNeeded) -> None:
        raise RuntimeError(needed.approval_id)

    async with executor_of(scene, on_approval=broken, approval_seconds=60) as executor:
        calling = asyncio.ensure_future(executor.execute(CALL))
        await decided(scene.approvals, "deny", "not today")
        denied = await calling
    assert denied.metadata["code"] == "mcp_approval_denied"
    assert "not today" in denied.output


def test_a_wait_that_cannot_be_is_refused_by_its_name():
    with pytest.raises(ValueError, match="approval_seconds"):
        McpExecutor([], approval_seconds=-1)
