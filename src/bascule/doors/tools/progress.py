"""A call as a stream: ``approval`` if it waits for one, ``progress``, and then its ``outcome``.

A reader who is slow misses steps in between, never the outcome.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager

from bascule.asgi.sse import Event
from bascule.client.approval_times import body_of
from bascule.clock import rfc3339
from bascule.model.approval import Waiting
from bascule.model.call import Progress
from bascule.node.bridge.session import Session
from bascule.wire.api.tools import CallBody, WaitingBody

#: Steps that wait for their reader; of more than that the oldest are forgotten.
MAX_WAITING = 64


async def told(
    opened: AbstractAsyncContextManager[Session], body: CallBody
) -> AsyncGenerator[Event, None]:
    """Make a call and yield what becomes of it; closing this ends the call."""
    questions: list[Waiting] = []
    steps: deque[Progress] = deque(maxlen=MAX_WAITING)
    news = asyncio.Event()

    def add(step: Progress) -> None:
        steps.append(step)
        news.set()

    def asked(question: Waiting) -> None:
        questions.append(question)
        news.set()

    async with opened as session:
        work = session.call(
            body.name,
            body.arguments,
            limits=body.limits,
            on_progress=add,
            approval=body.asking(asked),
        )
        call = asyncio.ensure_future(work)
        call.add_done_callback(lambda _: news.set())
        try:
            while questions or steps or not call.done():
                if questions:
                    yield Event(event="approval", data=_said(questions.pop()))
                elif steps:
                    yield Event(event="progress", data=steps.popleft())
                else:
                    await news.wait()
                    news.clear()
            yield Event(event="outcome", data=body_of(call.result()))
        finally:
            call.cancel()
            await asyncio.wait([call])


def _said(question: Waiting) -> WaitingBody:
    return WaitingBody(approval_id=question.approval_id, expires_at=rfc3339(question.expires_at))
