"""A conversation as server-sent events, in the chunks OpenAI's clients read.

The conversation runs in a task of its own, which ends with the answer: with its last event, or when
the reader hangs up. What fails before anything was said is an answer with a status of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import TypeAlias

from msgspec import Struct
from starlette.types import Receive, Scope, Send

from bascule.asgi.presence import first_of, while_connected
from bascule.asgi.sse import KEEP_ALIVE_SECONDS, Event, EventStream
from bascule.clock import Clock
from bascule.doors.chat.errors import tell_error
from bascule.loop.answer import call_chunk, chunk, last_chunks
from bascule.loop.events import Began, Conclusion, Delta, LoopEvent, Tell
from bascule.model.json import JsonObject

#: How far a conversation may run ahead of a slow reader.
MAX_WAITING = 64
_DONE = b"[DONE]"


class Ending(Struct, frozen=True):
    """What a conversation ended with, and what is told beside it."""

    conclusion: Conclusion
    bascule: JsonObject


Talk: TypeAlias = Callable[[Tell], Coroutine[object, object, Ending]]
_Item: TypeAlias = LoopEvent | Ending | Exception


class ChatStream:
    """The answer to a request that wants a stream.

    A server that drains lets it end by itself, as any other call.
    """

    def __init__(
        self,
        talk: Talk,
        clock: Clock,
        *,
        wants_usage: bool,
        keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
    ) -> None:
        self._talk = talk
        self._clock = clock
        self._wants_usage = wants_usage
        self._keep_alive_seconds = keep_alive_seconds
        self._said: asyncio.Queue[_Item] = asyncio.Queue(MAX_WAITING)
        self._first: _Item | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        talking = asyncio.create_task(self._run())
        try:
            await while_connected(scope, receive, self._begun())
            source = self._events(str(scope.get("request_id", "")))
            pause = self._keep_alive_seconds
            stream = EventStream(source, self._clock, keep_alive_seconds=pause, finishes=True)
            await stream(scope, receive, send)
        finally:
            talking.cancel()
            await asyncio.wait([talking])

    async def _run(self) -> None:
        try:
            ending: _Item = await self._talk(self._said.put)
        except Exception as error:  # noqa: BLE001 - the reader's side tells it, whatever it is
            ending = error
        await self._said.put(ending)

    async def _begun(self) -> None:
        """Wait for the first word, but not for ever; raise what went wrong before it."""
        await first_of(self._heard(), self._clock.sleep(self._keep_alive_seconds))
        if isinstance(self._first, Exception):
            raise self._first

    async def _heard(self) -> None:
        self._first = await self._said.get()

    async def _events(self, request_id: str) -> AsyncGenerator[Event, None]:
        head: JsonObject = {}
        while True:
            item = await self._said.get() if self._first is None else self._first
            self._first = None
            if isinstance(item, Exception):
                yield Event(data=tell_error(item, request_id).body())
                return
            if isinstance(item, Ending):
                for last in last_chunks(
                    item.conclusion, item.bascule, wants_usage=self._wants_usage
                ):
                    yield Event(data=last)
                yield Event(data=_DONE)
                return
            if isinstance(item, Began):
                head = item.head
            yield Event(data=_chunk_of(item, head))


def _chunk_of(event: LoopEvent, head: JsonObject) -> JsonObject:
    if isinstance(event, Began):
        return chunk(head, {"role": "assistant", "content": ""})
    if isinstance(event, Delta):
        return chunk(head, event.fields, logprobs=event.logprobs)
    return call_chunk(head, event)
