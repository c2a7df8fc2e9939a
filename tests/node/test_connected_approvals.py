"""Approval over a bridge elsewhere: ``wait`` and ``return`` mean what they mean in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bascule import Bridge
from bascule.client.http import ApiClient
from bascule.client.tools import ToolsClient
from bascule.model.approval import Asking, Waiting, waiting_of
from bascule.model.call import Progress
from bascule.model.outcome import Outcome
from bascule.node.contract import ToolSession
from tests.doors.asking import Scene, approve, asked, decided, scene
from tests.node.fakes import failed, succeeded
from tests.waits import SOON_SECONDS, until

DELETE = "mcp__fs__delete"
ARGUMENTS = {"text": "x"}
__all__ = ["scene"]


@pytest.fixture(params=["in process", "connected"])
async def session(request: pytest.FixtureRequest, scene: Scene) -> AsyncIterator[ToolSession]:
    if request.param == "in process":
        yield scene.door.world.core.session(task="writer")
        return
    async with Bridge.connect(scene.url, token=scene.token) as bridge, bridge.session() as session:
        yield session


@pytest.mark.requirement("approval:python-doors")
async def test_a_call_returns_with_the_question_and_uses_its_answer(
    scene: Scene, session: ToolSession
):
    told: list[Waiting] = []
    asking = Asking(wait=0.0, told=told.append)
    first = failed(await session.call(DELETE, ARGUMENTS, approval=asking), "mcp_approval_required")
    question = await asked(scene.approvals)
    waiting = waiting_of(first)
    assert waiting is not None
    assert waiting.approval_id == question.id
    assert waiting.expires_at == pytest.approx(question.expires_at, abs=0.01)
    assert question.id in first.error.message
    await decided(scene.approvals)
    mine = Asking(wait=0.0, approval_id=question.id)
    assert succeeded(await session.call(DELETE, ARGUMENTS, approval=mine)).text == "gone"
    failed(await session.call(DELETE, ARGUMENTS, approval=mine), "mcp_outcome_unknown")
    assert len(scene.door.world.sent) == 1
    assert told == []


@pytest.mark.parametrize("progress", [False, True])
async def test_a_call_waits_and_tells_once_what_it_waits_for(
    scene: Scene, session: ToolSession, progress: bool
):
    told: list[Waiting] = []
    steps: list[Progress] = []
    asking = Asking(told=told.append)
    on_progress = steps.append if progress else None
    work = session.call(DELETE, ARGUMENTS, approval=asking, on_progress=on_progress)
    calling = asyncio.ensure_future(work)
    await until(lambda: told)
    question = await decided(scene.approvals)
    assert succeeded(await calling).text == "gone"
    assert [waiting.approval_id for waiting in told] == [question.id]
    assert len(scene.door.world.sent) == 1


async def test_waiting_is_what_a_call_does_unless_it_is_told_otherwise(
    scene: Scene, session: ToolSession
):
    calling = asyncio.ensure_future(session.call(DELETE, ARGUMENTS))
    await decided(scene.approvals, "deny", "not today")
    refused = failed(await calling, "mcp_approval_denied")
    assert "not today" in refused.error.message
    assert scene.door.world.sent == []


async def test_a_wait_that_is_over_leaves_the_question_where_it_is(
    scene: Scene, session: ToolSession
):
    told: list[Waiting] = []
    asking = Asking(wait=0.05, told=told.append)
    waited = failed(await session.call(DELETE, ARGUMENTS, approval=asking), "mcp_approval_required")
    question = await asked(scene.approvals)
    assert [waiting.approval_id for waiting in told] == [question.id]
    assert waiting_of(waited) is not None
    await decided(scene.approvals)
    assert (await session.call(DELETE, ARGUMENTS, approval="return")).ok


async def test_the_callers_own_time_bounds_the_wait(scene: Scene, session: ToolSession):
    outcome = failed(await session.call(DELETE, ARGUMENTS, timeout=0.2), "mcp_approval_required")
    question = await asked(scene.approvals)
    assert (outcome.error.details or {})["approval_id"] == question.id


@pytest.mark.requirement("approval:network:wait")
async def test_a_call_that_is_cancelled_takes_its_question_back(scene: Scene, session: ToolSession):
    told: list[Waiting] = []
    calling = asyncio.ensure_future(
        session.call(DELETE, ARGUMENTS, approval=Asking(told=told.append))
    )
    await until(lambda: told)
    question = await asked(scene.approvals)
    calling.cancel()
    await asyncio.wait([calling])
    async with asyncio.timeout(SOON_SECONDS):
        settled = await scene.approvals.settled(question.id, None)
    assert settled.state == "withdrawn"
    assert scene.door.world.sent == []


async def test_a_word_that_means_nothing_is_refused(session: ToolSession):
    word: Any = "maybe"
    with pytest.raises(ValueError, match="wait, return"):
        await session.call(DELETE, ARGUMENTS, approval=word)


@pytest.mark.requirement("approval:python-doors")
async def test_a_thread_waits_for_its_approval_and_is_told_of_it(scene: Scene):
    told: list[Waiting] = []

    def call() -> tuple[Outcome, Outcome]:
        with (
            Bridge.connect_blocking(scene.url, token=scene.token) as bridge,
            bridge.session() as session,
        ):
            asking = Asking(told=told.append)
            returned = session.call(DELETE, {"text": "y"}, approval="return")
            return session.call(DELETE, ARGUMENTS, approval=asking), returned

    calling = asyncio.ensure_future(asyncio.to_thread(call))
    await until(lambda: told)
    [question] = told
    await approve(scene.approvals, str(question.approval_id))
    waited, returned = await calling
    assert succeeded(waited).text == "gone"
    left = waiting_of(returned)
    assert left is not None
    assert left.approval_id != question.approval_id


async def test_a_wait_longer_than_one_request_goes_on_with_the_next(scene: Scene):
    told: list[Waiting] = []
    async with ApiClient(scene.url, scene.token) as api:
        client = ToolsClient(api, wait_seconds=0.02)
        calling = asyncio.ensure_future(
            client.call(DELETE, dict(ARGUMENTS), asking=Asking(told=told.append))
        )
        await until(lambda: scene.approvals.waits > 3)
        await decided(scene.approvals)
        assert succeeded(await calling).text == "gone"
        assert (len(told), scene.runs) == (1, 1)
