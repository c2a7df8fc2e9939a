"""Every door makes the same call with the same token: one question, one approval, one run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

import pytest

from bascule import Bridge
from bascule.client.http import ApiClient, ApiError
from bascule.executor import McpExecutor, ToolCall
from bascule.manager import McpManager
from bascule.model.approval import Asking
from bascule.model.outcome import Outcome
from bascule.section import McpServerConfig
from tests.doors.asking import Scene, asked, decided, scene
from tests.doors.gateway.mcp_caller import WAYS, in_process, opened
from tests.section.section_servers import run, section_of, stdio
from tests.waits import SOON_SECONDS, until

__all__ = ["scene"]
DELETE = "mcp__fs__delete"
ARGUMENTS = {"text": "x"}
ADDRESS = "/api/v1/tools/call"
#: What a door says of the call: its text, or why there is none.
Door: TypeAlias = Callable[[], Awaitable[str]]


def said(outcome: Outcome) -> str:
    return outcome.text if outcome.error is None else outcome.error.message


async def by_api(api: ApiClient, wait: float) -> str:
    body = {"name": DELETE, "arguments": ARGUMENTS, "approval_wait_ms": int(wait * 1000)}
    try:
        answer: Any = await api.request("POST", ADDRESS, body=body, seconds=SOON_SECONDS)
    except ApiError as error:
        return str(error)
    return answer.body["text"]


async def by_stream(api: ApiClient, wait: float) -> str:
    body = {"name": DELETE, "arguments": ARGUMENTS, "approval_wait_ms": int(wait * 1000)}
    stream = api.events(ADDRESS, method="POST", body=body, seconds=SOON_SECONDS)
    events = [(event.event, json.loads(event.data)) async for event in stream]
    names = [name for name, _ in events]
    assert names in (["outcome"], ["approval", "outcome"])
    outcome = events[-1][1]
    return outcome["text"] if outcome["ok"] else outcome["error"]["message"]


async def by_gateway(scene: Scene, way: str, wait: float) -> str:
    caller, named = await opened(in_process(scene.door.app), scene.token, "fs", way)
    answer = await caller.call(named("delete"), ARGUMENTS, approval_wait_ms=int(wait * 1000))
    return answer["result"]["content"][0]["text"]


@asynccontextmanager
async def doors(scene: Scene, wait: float) -> AsyncGenerator[dict[str, Door]]:
    """Open every door of one token; each waits so long."""
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(ApiClient(scene.url, scene.token))
        bridge = await stack.enter_async_context(Bridge.connect(scene.url, token=scene.token))
        session = await stack.enter_async_context(bridge.session())
        blocking = stack.enter_context(Bridge.connect_blocking(scene.url, token=scene.token))
        threaded = await asyncio.to_thread(blocking.session)
        server = McpServerConfig(name="fs", transport=stdio())
        section = section_of(server, bridge=blocking, approval_seconds=wait)
        await asyncio.to_thread(section.connect)
        stack.callback(section.disconnect)
        manager = await stack.enter_async_context(
            McpManager(["fs"], bridge=bridge, approval_seconds=wait)
        )
        tools = {tool.name: tool for tool in await manager.get_tools()}
        executor = await stack.enter_async_context(
            McpExecutor(["fs"], bridge=bridge, approval_seconds=wait)
        )
        await executor.discover(["fs"])
        asking = Asking(wait=wait)

        async def connected() -> str:
            return said(await session.call(DELETE, ARGUMENTS, approval=asking))

        async def without_async() -> str:
            call = threaded.call
            return said(await asyncio.to_thread(call, DELETE, ARGUMENTS, approval=asking))

        async def in_section() -> str:
            result = await asyncio.to_thread(run, section, "fs_delete", ARGUMENTS)
            return result.text if result.success else result.message

        async def managed() -> str:
            return await tools["fs_delete"].call(ARGUMENTS)

        async def executed() -> str:
            return (await executor.execute(ToolCall("1", "fs_delete", ARGUMENTS))).output

        yield {
            "tools API": lambda: by_api(api, wait),
            "tools API, streaming": lambda: by_stream(api, wait),
            "connected bridge": connected,
            "blocking bridge": without_async,
            "section": in_section,
            "manager": managed,
            "executor": executed,
            **{way: partial(by_gateway, scene, way, wait) for way in WAYS},
        }


@pytest.mark.requirement("approval:one-pending", "approval:end-to-end")
async def test_all_doors_join_one_question_and_its_approval_runs_one_call(scene: Scene):
    async with doors(scene, 0.0) as returning:
        answers = {name: await call() for name, call in returning.items()}
    question = await asked(scene.approvals)  # the only one
    assert {name for name, answer in answers.items() if question.id in answer} == set(answers)
    async with doors(scene, SOON_SECONDS) as waiting:
        calls = {name: asyncio.ensure_future(call()) for name, call in waiting.items()}
        await until(lambda: scene.approvals.waiting == len(calls))
        await decided(scene.approvals)
        told = dict(zip(calls, await asyncio.gather(*calls.values()), strict=True))
    assert scene.runs == 1
    done = [name for name, answer in told.items() if answer == "gone"]
    assert len(done) == 1, told
    others = {name: answer for name, answer in told.items() if name not in done}
    assert all("used already" in answer for answer in others.values()), others
