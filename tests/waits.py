"""How tests wait: for what an event tells, and for the rest by one patient look with a deadline."""

from __future__ import annotations

import asyncio
import inspect
import os
import select
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Self, TypeVar, overload

from bascule.clock import SYSTEM_CLOCK
from bascule.testing.clock import FakeClock

T = TypeVar("T")

#: Far beyond what a busy machine needs: it ends a test that would wait for ever.
DEADLINE_SECONDS = 60.0
#: The same for one wait inside a test: well below the 60 seconds that a call has by itself, so
#: that who waits for the limit of a call in vain is found out.
SOON_SECONDS = 30.0
PAUSE_SECONDS = 0.01


@overload
async def until(look: Callable[[], Awaitable[T]]) -> T: ...
@overload
async def until(look: Callable[[], T]) -> T: ...
async def until(look: Callable[[], object]) -> object:
    """Look until something true is seen and return it; for what nothing announces."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            seen = look()
            found = await seen if inspect.isawaitable(seen) else seen
            if found:
                return found
            await SYSTEM_CLOCK.sleep(PAUSE_SECONDS)


def blocked_until(look: Callable[[], T]) -> T:
    """Look until something true is seen and return it, in a thread without an event loop."""
    deadline = SYSTEM_CLOCK.monotonic() + DEADLINE_SECONDS
    pause = threading.Event()
    while not (found := look()):
        assert SYSTEM_CLOCK.monotonic() < deadline, "it did not come"
        pause.wait(PAUSE_SECONDS)
    return found


async def advanced_until(
    clock: FakeClock, look: Callable[[], bool], *, seconds: float = 0.1
) -> None:
    """Move a clock on, step by step, until something is so: both the clock and the world work."""

    async def seen() -> bool:
        await clock.advance(seconds)
        return look()

    await until(seen)


async def ended(pid: int) -> None:
    """Wait until a process has ended, whoever started it."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    with closing(os.fdopen(descriptor, "rb", buffering=0)):
        loop.add_reader(descriptor, over.set)
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await over.wait()
        finally:
            loop.remove_reader(descriptor)


def blocked_until_ended(pid: int) -> None:
    """Wait until a process has ended, without a turn of the event loop."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with closing(os.fdopen(descriptor, "rb", buffering=0)):
        assert select.select([descriptor], [], [], DEADLINE_SECONDS)[0], "it did not end"


class Heard(list[T]):
    """What a callback was told, in order; whoever waits is woken by the next word."""

    def __init__(self) -> None:
        super().__init__()
        self._news = asyncio.Event()

    def hear(self, word: T) -> None:
        """Take a word; this is the callback."""
        self.append(word)
        self._news.set()

    async def reach(self, count: int) -> Self:
        """Wait until so many words were heard."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(self) < count:
                self._news.clear()
                await self._news.wait()
        return self
