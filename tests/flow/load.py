"""Calls that go on while something happens to whoever governs them: not one may fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from bascule.clock import SYSTEM_CLOCK
from tests.flow.up_process import Up
from tests.waits import DEADLINE_SECONDS

#: How many calls of each node are under way at any time.
CALLERS = 2


class Load:
    """Calls a tool of the demo's server at nodes, again and again, until it is told to stop."""

    def __init__(self, client: str, nodes: tuple[Up, ...]) -> None:
        self._client = client
        self._nodes = nodes
        self._made = dict.fromkeys(nodes, 0)
        self._moved = asyncio.Condition()
        self._over = False

    async def run(self) -> None:
        async with asyncio.TaskGroup() as callers:
            for node in self._nodes:
                for _ in range(CALLERS):
                    callers.create_task(self._call(node))

    async def _call(self, node: Up) -> None:
        while not self._over:
            status, outcome = await node.call(self._client, "notes/list_notes")
            assert (status, outcome.get("ok")) == (200, True), outcome
            async with self._moved:
                self._made[node] += 1
                self._moved.notify_all()

    async def more(self, calls: int) -> None:
        """Wait until each node has answered so many calls more."""
        wanted = {node: made + calls for node, made in self._made.items()}
        async with asyncio.timeout(DEADLINE_SECONDS), self._moved:
            await self._moved.wait_for(
                lambda: all(self._made[node] >= count for node, count in wanted.items())
            )

    async def last(self, seconds: float) -> None:
        """Go on for so long, with every node."""
        over = SYSTEM_CLOCK.monotonic() + seconds
        while SYSTEM_CLOCK.monotonic() < over:
            await self.more(1)

    def stop(self) -> None:
        self._over = True


@asynccontextmanager
async def calling(client: str, *nodes: Up) -> AsyncGenerator[Load]:
    """Have clients of nodes call for the length of the block; the first failure ends it."""
    load = Load(client, nodes)
    async with asyncio.TaskGroup() as running:
        running.create_task(load.run())
        await load.more(1)
        yield load
        await load.more(1)
        load.stop()
