"""A request that waits until something has happened, and then looks again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.requests import Request

from bascule.asgi.guard import STILL
from bascule.asgi.presence import first_of, while_connected
from bascule.asgi.sse import DRAINING


async def long_poll(request: Request, happening: Coroutine[Any, Any, object]) -> None:
    """Wait for it, or until the server drains. Raise ClientGone for a caller who hangs up.

    A token that ended meanwhile is refused: what is seen after the wait is not for it.
    """
    draining = request.scope.get(DRAINING)

    async def waiting() -> None:
        ends = [draining.wait()] if isinstance(draining, asyncio.Event) else []
        await first_of(happening, *ends)

    try:
        await while_connected(request.scope, request.receive, waiting())
    finally:
        happening.close()  # a caller who was gone before it began
    await request.scope[STILL]()
