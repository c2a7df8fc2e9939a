"""Work that ends when whoever asked for it is gone: ``receive`` tells of a disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from starlette.types import Receive

from bascule.asgi.errors import ClientGone

T = TypeVar("T")


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return what the work gives; cancel it and raise ``ClientGone`` once the caller hangs up.

    Read the request's body before: what is left of it is thrown away here.
    """
    task = asyncio.ensure_future(work)
    await _race((task, asyncio.ensure_future(disconnected(receive))))
    if task.cancelled():
        raise ClientGone("the caller hung up")
    return task.result()


async def first_of(*works: Coroutine[Any, Any, None]) -> None:
    """Run works side by side until one ends, then end the others; raise what one of them raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    await _race(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


async def disconnected(receive: Receive) -> None:
    """Wait until the caller hangs up."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _race(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Wait until one ends; nothing is left running, also when this is cancelled itself."""
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
