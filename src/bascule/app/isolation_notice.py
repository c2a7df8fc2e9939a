"""Says where a process starts that local servers can read its keys, if nothing can prevent it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from bascule.app.serving import beside
from bascule.model.sandbox import at_least
from bascule.model.snapshot import Snapshot
from bascule.node.assembly import Bridge
from bascule.policy.isolation import governed_servers

Server = TypeVar("Server")


@asynccontextmanager
async def noticed(
    listener: AbstractAsyncContextManager[Server], bridge: Bridge
) -> AsyncGenerator[Server, None]:
    """Serve, and try meanwhile what isolation servers can have: nobody who calls waits for it."""
    async with listener as server, beside(_notice(bridge)):
        yield server


async def _notice(bridge: Bridge) -> None:
    """Try the levels once a record asks for one that keeps files; others need no process."""
    asked = asyncio.Event()

    def look(_change: object = None) -> None:
        if _asks(bridge.snapshot):
            asked.set()

    unsubscribe = bridge.subscribe(look)
    try:
        look()
        await asked.wait()
    finally:
        unsubscribe()
    await bridge.tell_of_limits()


def _asks(snapshot: Snapshot) -> bool:
    records = governed_servers(snapshot.servers, snapshot.platform).values()
    sandboxes = (record.sandbox for record in records if record.enabled)
    return any(one is not None and at_least(one.level, "landlock") for one in sandboxes)
