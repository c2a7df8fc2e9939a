"""A conversation as server-sent events, in the chunks OpenAI's clients read.

What the conversation tells is written at once, by the task that holds it, so a slow reader slows
its own conversation and nothing else. It ends with its last event, or when the reader hangs up or
stops reading. What fails before anything was said is an answer with a status of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TypeAlias

import msgspec
from msgspec import Struct
from starlette.types import Receive, Scope, Send

from bascule.asgi.presence import first_of, while_connected
from bascule.asgi.sse import KEEP_ALIVE, KEEP_ALIVE_SECONDS, STALLED_SECONDS, Out, Stalled, writing
from bascule.clock import Clock
from bascule.doors.chat.errors import tell_error
from bascule.loop.answer import StreamForm, last_chunks
from bascule.loop.events import Conclusion, LoopEvent, Tell
from bascule.model.json import JsonObject

_OK = 200
_HEADERS = (
    (b"x-accel-buffering", b"no"),
    (b"content-type", b"text/event-stream; charset=utf-8"),
)
_DONE = b"data: [DONE]\n\n"


class Ending(Struct, frozen=True):
    """What a conversation ended with, and what is told beside it."""

    conclusion: Conclusion
    bascule: JsonObject


Talk: TypeAlias = Callable[[Tell], Coroutine[object, object, Ending]]


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
        stalled_seconds: float = STALLED_SECONDS,
    ) -> None:
        self._talk = talk
        self._clock = clock
        self._wants_usage = wants_usage
        self._keep_alive_seconds = keep_alive_seconds
        self._stalled_seconds = stalled_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with writing(scope, send, self._stalled_seconds) as out:
            words = _Words(out)
            speaking = self._speak(words, str(scope.get("request_id", "")))
            await while_connected(scope, receive, first_of(speaking, self._keep_alive(words)))

    async def _speak(self, words: _Words, request_id: str) -> None:
        """Hold the conversation to its end; raise what went wrong before the first word."""
        try:
            ending = await self._talk(words.tell)
        except Exception as error:
            if words.out.stalled:
                raise Stalled from error
            if not words.begun:
                raise
            await words.end(_event(msgspec.json.encode(tell_error(error, request_id).body())))
            return
        last = last_chunks(ending.conclusion, ending.bascule, wants_usage=self._wants_usage)
        await words.end(b"".join(_event(msgspec.json.encode(one)) for one in last) + _DONE)

    async def _keep_alive(self, words: _Words) -> None:
        """Give a sign when nothing was said for a while; the first one is that there is an answer.

        From then on what goes wrong has no status of its own.
        """
        while True:
            words.quiet = True
            await self._clock.sleep(self._keep_alive_seconds)
            if not words.begun:
                await words.begin()
            elif words.quiet and not words.out.busy:
                await words.out.write(KEEP_ALIVE)


class _Words:
    """What is said of a conversation, event by event."""

    def __init__(self, out: Out) -> None:
        self.out = out
        self.begun = False
        self.quiet = True
        self._form = StreamForm()

    async def begin(self) -> None:
        """Let the answer begin."""
        self.begun = True
        await self.out.start(_OK, _HEADERS)

    async def tell(self, event: LoopEvent) -> None:
        """Write what happens."""
        self.quiet = False
        if not self.begun:
            await self.begin()
        await self.out.write(_event(self._form.chunk(event)))

    async def end(self, last: bytes) -> None:
        """Write the last words."""
        if not self.begun:
            await self.begin()
        await self.out.close(last)


def _event(data: bytes) -> bytes:
    """Return JSON, which has no line breaks in it, as an event."""
    return b"data: %b\n\n" % data
