"""The tasks that look after one connection, and the way out for what it lets go of.

Whoever connects next waits until what was let go is gone, so that there are never two processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from bascule.lifetime import observed
from bascule.node.pool.client import McpClient
from bascule.node.pool.health import Watch


class Upkeep:
    """Everything that a connection started; it ends with it."""

    def __init__(self) -> None:
        self._care: list[asyncio.Task[None]] = []
        self._leaving: asyncio.Task[None] | None = None
        self._draining: set[asyncio.Task[None]] = set()

    def look_after(self, work: Coroutine[object, None, None]) -> None:
        """Do some work for as long as the connection lasts."""
        self._care = [task for task in self._care if not task.done()]
        self._care.append(asyncio.get_running_loop().create_task(work))

    async def gone(self) -> None:
        """Wait until all that was let go has ended."""
        if self._leaving is not None:
            await asyncio.wait({self._leaving})

    def let_go(
        self, attempt: asyncio.Task[McpClient] | None, client: McpClient | None
    ) -> asyncio.Task[None]:
        """Cancel all work and an attempt, and close a client; return the task that sees them out.

        The task that asks for it is not cancelled.
        """
        tasks: list[asyncio.Task[object]] = [*self._care]
        if attempt is not None:
            tasks.append(attempt)
        self._care = []
        current = asyncio.current_task()
        for task in tasks:
            if task is not current:
                task.cancel()
        return self._see_out(tasks, client)

    @property
    def draining(self) -> frozenset[asyncio.Task[None]]:
        """Return what waits for the last call of a client that takes no more."""
        return frozenset(self._draining)

    def drain(self, watch: Watch) -> None:
        """Close a client when its last call has ended; the next attempt does not wait for that."""
        task = asyncio.get_running_loop().create_task(_drained(watch))
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)
        task.add_done_callback(observed)

    def cut_draining(self) -> None:
        """Have what still drains ended by the next ``let_go``, whatever is under way there."""
        self._care += self._draining
        self._draining.clear()

    async def dismiss(self, client: McpClient) -> None:
        """Close a client that is of no use, and wait until it is closed."""
        await asyncio.wait({self._see_out([], client)})

    def _see_out(
        self, tasks: list[asyncio.Task[object]], client: McpClient | None
    ) -> asyncio.Task[None]:
        work = _seen_out(self._leaving, tasks, client)
        self._leaving = asyncio.get_running_loop().create_task(work)
        self._leaving.add_done_callback(observed)
        return self._leaving


async def _drained(watch: Watch) -> None:
    try:
        await watch.drained()
    finally:
        await watch.client.close()


async def _seen_out(
    before: asyncio.Task[None] | None, tasks: list[asyncio.Task[object]], client: McpClient | None
) -> None:
    """Wait until tasks have ended, then close what they used."""
    if before is not None:
        await asyncio.wait({before})
    await asyncio.gather(*tasks, return_exceptions=True)
    if client is not None:
        await client.close()
