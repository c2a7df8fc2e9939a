"""What a guest reads of a conversation: all of it at the end, or chunk by chunk as it comes."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from typing import ClassVar, Final

import msgspec

from bascule.doors.hostcalls.abi import Errno, Fault
from bascule.doors.hostcalls.conversation import Conversation, Ending, failed_body
from bascule.doors.hostcalls.crossing import Crossing
from bascule.doors.hostcalls.guest import Guest
from bascule.doors.hostcalls.handles import EPOLLIN, Handle, Kind
from bascule.loop.answer import StreamForm, bascule_object, last_chunks
from bascule.loop.events import LoopEvent
from bascule.model.json import JsonObject, JsonValue

#: How much of a stream waits for its reader before its upstream is read no further.
MOST_WAITING: Final = 256 * 1024


class ChatResponse(Handle, ABC):
    """The answer to one ``cchat_send``."""

    kind: ClassVar[Kind] = "ChatResponse"

    def __init__(self, *, metrics: bool) -> None:
        super().__init__()
        self._measured = metrics
        self._usage: JsonObject | None = None

    def metrics(self) -> bytes:
        """Return the tokens that were used; nothing if nobody wanted to know, or knows."""
        return msgspec.json.encode((self._usage or {}) if self._measured else {})

    def set_param(self, key: str, value: JsonValue) -> None:
        """Take any parameter and do nothing with it, as in Spear."""

    @abstractmethod
    def read(self) -> bytes:
        """Return what is to be read now, on the guest's thread."""

    def was_read(self) -> None:
        """Note that the guest has it."""


class WholeResponse(ChatResponse):
    """An answer that was there when ``cchat_send`` returned; it may be read any number of times."""

    def __init__(self, guest: Guest, *, metrics: bool) -> None:
        super().__init__(metrics=metrics)
        self._guest = guest
        self._body = b""

    def answered(self, body: bytes, usage: JsonObject | None = None) -> None:
        """Take the answer."""
        if self.is_closed:
            return
        self._body, self._usage = body, usage
        self._guest.usage.kept_bytes += len(body)
        self.changed()

    def close(self) -> None:
        self._guest.let_go(len(self._body))

    def poll_mask(self) -> int:
        return EPOLLIN if self._body else 0

    def read(self) -> bytes:
        return self._body


class StreamedResponse(ChatResponse):
    """An answer that is arriving. Everything but reading happens on the loop's thread."""

    def __init__(
        self, crossing: Crossing, *, metrics: bool, let_go: Callable[[], None] | None = None
    ) -> None:
        super().__init__(metrics=metrics)
        self._crossing = crossing
        self._let_go = let_go
        self._form = StreamForm()
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._over = False
        self._moved = asyncio.Event()
        self._task: asyncio.Task[object] | None = None
        #: What the guest was given no room for yet.
        self._held: bytes | None = None

    # --- on the guest's thread

    def poll_mask(self) -> int:
        return EPOLLIN if self._is_ready() else 0

    def read(self) -> bytes:
        """Return the next chunk, nothing at the end; -EAGAIN if it is not there to wait for."""
        if self._held is None:
            if self.nonblocking and not self._is_ready():
                self._crossing.wait(self._look_round)
                if not self._is_ready():
                    raise Fault(Errno.EAGAIN)
            self._held = self._crossing.wait(self._next)
        return self._held

    def was_read(self) -> None:
        self._held = self._held and None  # the end stays

    def close(self) -> None:
        """End the conversation, and what is counted for it."""
        if self._let_go is not None:
            self._let_go()
        self._crossing.tell(self._stop)

    def _is_ready(self) -> bool:
        return self._held is not None or bool(self._waiting) or self._over

    # --- on the loop's thread

    async def hold(self, conversation: Conversation, ended: Callable[[Ending], None]) -> None:
        """Hold a conversation and tell it chunk by chunk; every failure is told too."""
        self._task = asyncio.current_task()
        try:
            if not self._over:
                await self._held_to_its_end(conversation, ended)
        finally:
            self._finish()

    async def _held_to_its_end(
        self, conversation: Conversation, ended: Callable[[Ending], None]
    ) -> None:
        try:
            ending = await conversation.hold(self._tell)
        except Fault as fault:
            error = {"code": Errno(fault.errno).name, "message": "the conversation was refused"}
            await self._put(msgspec.json.encode({"error": error}))
            return
        except Exception as error:  # noqa: BLE001 - told, and logged if it is ours
            await self._put(failed_body(error))
            return
        self._usage = ending.conclusion.usage
        ended(ending)
        for chunk in _last(ending):
            await self._put(msgspec.json.encode(chunk))

    async def _tell(self, event: LoopEvent) -> None:
        await self._put(self._form.chunk(event))

    async def _put(self, chunk: bytes) -> None:
        self._waiting.append(chunk)
        self._size += len(chunk)
        self._move()
        while self._size > MOST_WAITING:
            await self._next_move()

    async def _next(self) -> bytes:
        while not self._waiting:
            if self._over:
                return b""
            await self._next_move()
        chunk = self._waiting.popleft()
        self._size -= len(chunk)
        self._move()
        return chunk

    async def _look_round(self) -> None:
        """Let the loop have gone on, and the guest's own tools have their turn."""

    def _next_move(self) -> Awaitable[object]:
        return self._moved.wait()

    def _move(self) -> None:
        """Have everybody look who waits for something here."""
        self._moved.set()
        self._moved = asyncio.Event()
        self.changed()

    def _finish(self) -> None:
        self._over = True
        self._move()

    def _stop(self) -> None:
        self._waiting.clear()
        self._size = 0
        self._finish()
        if self._task is not None:
            self._task.cancel()


def _last(ending: Ending) -> list[dict[str, JsonValue]]:
    """Return how the stream ends; who answered stands in the chunk with the reason."""
    conclusion = ending.conclusion
    chunks = last_chunks(conclusion, bascule_object(conclusion), wants_usage=ending.wants_usage)
    return [{**one, **ending.beside} if "bascule" in one else one for one in chunks]
