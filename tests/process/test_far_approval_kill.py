"""Kill nodes whose approvals are at a control plane, and that: nothing ever runs twice."""

from __future__ import annotations

import asyncio
import random
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bascule.audit.verification import verify
from bascule.clock import SYSTEM_CLOCK
from tests.flow.node_process import Plane, plane
from tests.process.far_node import CALLS, command_of
from tests.process.nursery import NEVER, nursery, worked
from tests.process.test_ledger_kill import chain, closed_well, digest
from tests.scale import scaled
from tests.waits import PAUSE_SECONDS

APPROVALS = "/admin/api/approvals"
KILLS = scaled(60)
TASK = {"task_id": "t", "mcp": {"enabled": True, "default_server_ids": ["counter"]}}


class Site:
    """A control plane that may be killed, and what makes nodes of it."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.home = folder / "plane"
        self.data = folder / "node"
        self.counted = folder / "counted"
        self._stack = stack
        self.plane: Plane
        self.nodes: Process
        self._deciding: asyncio.Task[None]

    async def begin(self) -> None:
        """Fill a control plane, and start the nursery of its node."""
        self.plane = await self._stack.enter_async_context(plane(self.home))
        command, args = command_of(self.counted)
        stdio = {"command": command, "args": [*args]}
        record = {"server_id": "counter", "transport": "stdio", "stdio": stdio}
        always = {"allowed_tools": ["*"], "approval_policy": {"default": "always"}}
        await self.plane.put("servers", "counter", record | always)
        await self.plane.put("tasks", "t", TASK)
        token, _ = await self.plane.token("node", "--name", "east")
        _, client = await self.plane.token("client", "--task", "t")
        self.data.mkdir()
        await closed_well(self.data)
        words = (self.data, self.counted, self.plane.grpc, client)
        made = nursery("far_node", *words, BASCULE_TOKEN=token)
        self.nodes = await self._stack.enter_async_context(made)
        self._deciding = asyncio.create_task(self._decide_for_ever())
        self._stack.callback(self._deciding.cancel)

    async def crash(self) -> None:
        """Kill the control plane, and have it come back where it was."""
        self.plane.up.process.kill()
        await self.plane.up.process.wait()
        port = self.plane.grpc.rpartition(":")[2]
        again = plane(self.home, "--grpc-port", port)
        self.plane = await self._stack.enter_async_context(again)

    async def _decide_for_ever(self) -> None:
        """Approve every question; one that is answered already, or not now, is left."""
        while True:
            with suppress(aiohttp.ClientError):
                await self._decide_all()
            await SYSTEM_CLOCK.sleep(PAUSE_SECONDS)

    async def _decide_all(self) -> None:
        up = self.plane.up
        _, page = await up.ask("GET", f"{APPROVALS}?state=pending", token=up.admin)
        for one in page.get("approvals", ()):
            body = {"decision": "approve", "digest": one["digest"]}
            await up.ask("POST", f"{APPROVALS}/{one['id']}/decision", token=up.admin, body=body)

    async def events(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """End everything; return what the control plane has written, and what the node has."""
        self._deciding.cancel()
        assert await self.plane.up.end() == 0
        await closed_well(self.data)
        for folder in (self.home, self.data):
            assert verify(folder / "ledger.db").problems == ()
        return chain(self.home), chain(self.data)

    def executed(self) -> list[str]:
        """Return the digests of the arguments of every execution."""
        lines = self.counted.read_bytes().splitlines() if self.counted.exists() else []
        return [digest(line) for line in lines]


@asynccontextmanager
async def far_site(folder: Path) -> AsyncGenerator[Site]:
    async with AsyncExitStack() as stack:
        site = Site(folder, stack)
        await site.begin()
        yield site


def claims_of(events: list[dict[str, Any]]) -> dict[str, str]:
    """Return the digests of arguments by the approvals that were claimed for them."""
    steps = [one for one in events if one["event"] == "approval"]
    counted = Counter((one["approval_id"], one["state"]) for one in steps)
    assert set(counted.values()) <= {1}, "a step was made twice"
    claimed = [one for one in steps if one["state"] == "claimed"]
    assert {one["node"] for one in claimed} <= {"east"}
    return {one["approval_id"]: one["arguments_digest"] for one in claimed}


def intents_of(events: list[dict[str, Any]]) -> dict[str, str]:
    """Return the same by the intents; each approval has at most one."""
    intents = [one for one in events if one["event"] == "call_intent"]
    found = {one["approval_id"]: one["arguments_digest"] for one in intents}
    assert len(found) == len(intents), "an approval was used twice"
    return found


@pytest.mark.timeout(900)
@pytest.mark.requirement("approval:nodes:survives-kill")
async def test_an_approval_of_a_node_runs_at_most_once_whatever_is_killed(tmp_path: Path):
    rng = random.Random(21)
    said: list[str] = []
    async with far_site(tmp_path) as site:
        for kill in range(KILLS):
            strike = site.crash if kill % 3 == 1 else None
            after = rng.randrange(4, 60)
            said += await worked(site.nodes, f"{kill} no", after, halfway=strike)
        last = await worked(site.nodes, "last no")
        assert "all" in last
        said += last
        above, below = await site.events()
    claims = claims_of(above)
    assert intents_of(above) == claims, "a claim comes with its intent"
    intents = intents_of(below)
    assert intents.items() <= claims.items(), "nothing leaves that was not claimed"
    runs = Counter(site.executed())
    assert runs <= Counter(intents.values()), "something ran twice, or without its intent"
    called = Counter(word for word in said if word.startswith("called "))
    assert len(called) == CALLS
    assert sum(called.values()) <= sum(runs.values())
    lost = Counter(word for word in said if word.startswith("claimed "))
    assert max(lost.values()) > 1, "no answer was lost"


@pytest.mark.timeout(300)
@pytest.mark.requirement("approval:nodes:survives-kill")
@pytest.mark.parametrize("halts", ["claim", "intent"])
async def test_what_was_claimed_by_a_node_that_was_killed_before_it_sent_it_never_runs(
    tmp_path: Path, halts: str
):
    async with far_site(tmp_path) as site:
        word = "claimed" if halts == "claim" else "intent"
        halted = await worked(site.nodes, f"0 {halts}", NEVER, until=f"{word} ")
        stuck = {one.split()[1] for one in halted if one.startswith(f"{word} ")}
        assert site.executed() == []
        last = await worked(site.nodes, "1 no")
        assert "all" in last
        used = {one.split()[1] for one in last if one.startswith("intent ")}
        above, _ = await site.events()
    assert stuck
    assert not stuck & used, "an approval was used by another process"
    assert stuck <= set(claims_of(above))
    assert len(site.executed()) == CALLS, "each call was asked about again, and ran once"
