"""A call as a stream: ``progress`` events while it runs, then its ``outcome``.

A reader who is slow misses steps in between, never the outcome.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager

from starlette.types import Receive, Scope, Send

from bascule.asgi.sse import DRAINING, Event, EventStream
from bascule.model.call import Progress
from bascule.node.bridge.session import Session
from bascule.wire.api.tools import CallBody, OutcomeBody

#: Steps that wait for their reader; of more than that the oldest are forgotten.
MAX_WAITING = 64


class CallStream(EventStream):
    """The answer to one call. A server that drains lets it end by itself, as any other call."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; the drain's own deadline holds for them too."""
        kept = {name: value for name, value in scope.items() if name != DRAINING}
        await super().__call__(kept, receive, send)


async def told(
    opened: AbstractAsyncContextManager[Session], body: CallBody
) -> AsyncGenerator[Event, None]:
    """Make a call and yield what becomes of it; closing this ends the call."""
    steps = _Steps()
    async with opened as session:
        work = session.call(body.name, body.arguments, limits=body.limits, on_progress=steps.add)
        call = asyncio.ensure_future(work)
        call.add_done_callback(lambda _: steps.end())
        try:
            async for step in steps.coming():
                yield Event(event="progress", data=step)
            yield Event(event="outcome", data=OutcomeBody.of(call.result()))
        finally:
            call.cancel()
            await asyncio.wait([call])


class _Steps:
    """Steps of progress on their way to a reader."""

    def __init__(self) -> None:
        self._waiting: deque[Progress] = deque(maxlen=MAX_WAITING)
        self._news = asyncio.Event()
        self._ended = False

    def add(self, step: Progress) -> None:
        self._waiting.append(step)
        self._news.set()

    def end(self) -> None:
        self._ended = True
        self._news.set()

    async def coming(self) -> AsyncGenerator[Progress, None]:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                yield self._waiting.popleft()
            if self._ended:
                return
