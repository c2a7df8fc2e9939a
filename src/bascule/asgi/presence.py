"""Work that ends when whoever asked for it is gone.

An exchange of our own server says so itself once its body has come, and no task is needed;
otherwise ``receive`` tells it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from starlette.types import Receive, Scope

from bascule.asgi.errors import ClientGone
from bascule.asgi.exchange import EXCHANGE, Exchange

T = TypeVar("T")
_HUNG_UP = "the caller hung up"


async def while_connected(scope: Scope, receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return what the work gives; cancel it and raise ``ClientGone`` once the caller hangs up.

    Read the request's body before: what is left of it is thrown away here.
    """
    exchange, task = scope.get(EXCHANGE), asyncio.current_task()
    if not isinstance(exchange, Exchange) or exchange.more_body or task is None:
        return await _while_received(receive, work)
    if exchange.disconnected:
        work.close()
        raise ClientGone(_HUNG_UP)
    exchange.on_lost = task.cancel
    try:
        return await work
    except asyncio.CancelledError:
        if exchange.disconnected and not task.uncancel():
            raise ClientGone(_HUNG_UP) from None
        raise
    finally:
        exchange.on_lost = None


async def _while_received(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.ensure_future(work)
    await _race((task, asyncio.ensure_future(disconnected(receive))))
    if task.cancelled():
        raise ClientGone(_HUNG_UP)
    return task.result()


async def first_of(*works: Coroutine[Any, Any, object]) -> None:
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
