"""Sixty-four clients of one shared server, one of them hostile: the others' calls are unharmed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bascule.node.assembly import Bridge
from bascule.node.bridge.session import Session
from bascule.testing import ScriptedHttpServer
from bascule.testing.http_dialects import Dialect
from bascule.testing.server import ScriptedServer, do
from tests.flow.matrix import remote_record
from tests.flow.servers import code_of, lines_of, record

CLIENTS = 63
BUSY = 0.005  # of the server's only thread, for each call
HUGE = {"text": "x" * 1_000_000}

Hostile = Callable[[Session], Awaitable[object]]


async def short_timeouts(session: Session) -> None:
    await session.call("mcp__shared__slow", {"text": "hostile"}, timeout=0.001)


async def cancels(session: Session) -> None:
    calls = [
        asyncio.create_task(session.call("mcp__shared__slow", {"text": "hostile"}))
        for _ in range(10)
    ]
    await asyncio.wait(calls, timeout=0.001)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)


async def idle_timeouts(session: Session) -> None:
    await session.call("mcp__shared__slow", {"text": "hostile"}, idle_timeout=0.001)


async def floods_of_calls(session: Session) -> None:
    calls = [session.call("mcp__shared__slow", {"text": "hostile"}) for _ in range(200)]
    await asyncio.gather(*calls)


async def floods_of_progress(session: Session) -> None:
    await session.call("mcp__shared__chatty", {}, timeout=0.05, on_progress=lambda _: None)


async def huge_arguments(session: Session) -> None:
    calls = [session.call("mcp__shared__echo", HUGE, timeout=0.02) for _ in range(8)]
    await asyncio.gather(*calls)


async def stuck_lists(session: Session) -> None:
    bridge = session.core
    assert isinstance(bridge, Bridge)
    look = asyncio.create_task(bridge.inspect("shared", afresh=True))
    try:
        await asyncio.wait({look}, timeout=0.02)
    finally:  # who harasses is cancelled himself in the end, and leaves no look behind
        look.cancel()
        await asyncio.wait({look})


HOSTILE = [
    short_timeouts, cancels, idle_timeouts, floods_of_calls, floods_of_progress, huge_arguments,
    stuck_lists,
]  # fmt: skip


def script(tmp_path: Path) -> ScriptedServer:
    slow = do("busy", seconds=BUSY, then=do("ledger", path=str(tmp_path / "ledger")))
    behaviours = {
        "slow": slow,
        "chatty": do("progress", count=2000, then=do("busy", seconds=0.1)),
        "echo": "echo",
    }
    return ScriptedServer(behaviours=behaviours, starts=tmp_path / "starts", era="legacy")


@asynccontextmanager
async def harassed(bridge: Bridge, hostile: Hostile) -> AsyncGenerator[None]:
    """Let one client be hostile until the others are done."""
    over = asyncio.Event()

    async def harass() -> None:
        async with bridge.session(server_ids=["shared"], caller="hostile") as session:
            while not over.is_set():
                await hostile(session)

    task = asyncio.create_task(harass())
    try:
        yield
    finally:
        over.set()
        task.cancel()
        await asyncio.wait({task})


async def work(bridge: Bridge, number: int) -> str:
    async with bridge.session(server_ids=["shared"], caller=f"client {number}") as session:
        outcome = await session.call("mcp__shared__slow", {"text": f"{number}"})
        return outcome.text if outcome.ok else str(outcome.error)


@pytest.mark.requirement("pool:doubt:record-timeout", "pool:doubt:left-behind", "budgets:turns")
@pytest.mark.parametrize("hostile", HOSTILE)
async def test_one_hostile_client_of_a_slow_server_harms_none_of_the_others(
    hostile: Hostile, tmp_path: Path
):
    server = record(script(tmp_path), "shared", budgets={"tool_timeout_ms": 30_000})
    async with Bridge.open([server]) as bridge, asyncio.timeout(60):
        assert await work(bridge, -1) == "-1"
        async with harassed(bridge, hostile):
            answers = await asyncio.gather(*(work(bridge, number) for number in range(CLIENTS)))
        assert answers == [str(number) for number in range(CLIENTS)]
        assert len(lines_of(tmp_path / "starts")) == 1
        done = [line for line in lines_of(tmp_path / "ledger") if "hostile" not in line]
        assert len(done) == CLIENTS + 1


@pytest.mark.requirement("pool:doubt:record-timeout")
@pytest.mark.parametrize("limit", [{"timeout": 0.05}, {"idle_timeout": 0.05}])
async def test_writes_behind_a_slow_call_that_its_caller_left_are_all_answered(
    limit: dict[str, Any], tmp_path: Path
):
    behaviours = {
        "slower": do("busy", seconds=1.5),
        "slow": do("ledger", path=str(tmp_path / "ledger")),
    }
    server = ScriptedServer(behaviours=behaviours, starts=tmp_path / "starts", era="legacy")
    async with Bridge.open([record(server, "shared")]) as bridge, asyncio.timeout(30):
        assert await work(bridge, -1) == "-1"
        async with bridge.session(server_ids=["shared"], caller="hostile") as session:
            await session.tools()
            outcome = await session.call("mcp__shared__slower", {}, **limit)
        assert code_of(outcome) == "mcp_timeout"
        answers = await asyncio.gather(*(work(bridge, number) for number in range(8)))
        assert answers == [str(number) for number in range(8)]
        assert len(lines_of(tmp_path / "starts")) == 1
        assert len(lines_of(tmp_path / "ledger")) == 9


@pytest.mark.requirement("pool:doubt:record-timeout")
@pytest.mark.parametrize("dialects", [("modern",), ("legacy",), ("sse",)])
@pytest.mark.parametrize("hostile", [short_timeouts, cancels, idle_timeouts, huge_arguments])
async def test_one_hostile_client_of_a_remote_server_harms_none_of_the_others(
    hostile: Hostile, dialects: tuple[Dialect, ...], tmp_path: Path
):
    gate = tmp_path / "gate"
    behaviours = {"slow": do("gate", path=str(gate)), "echo": do("gate", path=str(gate))}
    scripted = ScriptedServer(behaviours=behaviours)
    transport = "http_sse_legacy" if dialects == ("sse",) else "streamable_http"
    budgets = {"max_concurrency": 64}
    async with ScriptedHttpServer(scripted, dialects=dialects) as http:
        shared = remote_record(http, "shared", transport=transport, budgets=budgets)
        async with Bridge.open([shared]) as bridge, asyncio.timeout(60):
            others = [asyncio.create_task(work(bridge, number)) for number in range(CLIENTS)]
            await http.saw("tools/call", times=CLIENTS)
            async with bridge.session(server_ids=["shared"], caller="hostile") as session:
                for _ in range(3):
                    await asyncio.wait({asyncio.ensure_future(hostile(session))}, timeout=1.0)
            gate.touch()
            answers = await asyncio.gather(*others)
        assert answers == [str(number) for number in range(CLIENTS)]
