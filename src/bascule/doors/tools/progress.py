"""A call as a stream: ``progress`` events while it runs, then its ``outcome``.

A reader who is slow misses steps in between, never the outcome.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager

from bascule.asgi.sse import Event
from bascule.model.call import Progress
from bascule.node.bridge.session import Session
from bascule.wire.api.tools import CallBody, OutcomeBody

#: Steps that wait for their reader; of more than that the oldest are forgotten.
MAX_WAITING = 64


async def told(
    opened: AbstractAsyncContextManager[Session], body: CallBody
) -> AsyncGenerator[Event, None]:
    """Make a call and yield what becomes of it; closing this ends the call."""
    steps: deque[Progress] = deque(maxlen=MAX_WAITING)
    news = asyncio.Event()

    def add(step: Progress) -> None:
        steps.append(step)
        news.set()

    async with opened as session:
        work = session.call(body.name, body.arguments, limits=body.limits, on_progress=add)
        call = asyncio.ensure_future(work)
        call.add_done_callback(lambda _: news.set())
        try:
            while steps or not call.done():
                if steps:
                    yield Event(event="progress", data=steps.popleft())
                else:
                    await news.wait()
                    news.clear()
            yield Event(event="outcome", data=OutcomeBody.of(call.result()))
        finally:
            call.cancel()
            await asyncio.wait([call])
