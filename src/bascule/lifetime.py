"""Things with a beginning and an end, for ``async with`` and ``with``, and their tasks."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable
from typing import Self, TypeVar

T = TypeVar("T")

#: How long a task has to end before it is cancelled once more.
_AGAIN_SECONDS = 5.0


class Lifetime(ABC):
    """The base of what is owned by whoever opened it."""

    async def start(self) -> None:  # noqa: B027 - most have nothing to do before they are used
        """Begin; any number of times."""

    @abstractmethod
    async def close(self) -> None:
        """End everything that was begun; any number of times."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class BlockingLifetime(ABC):
    """The same for programs without async."""

    @abstractmethod
    def close(self) -> None:
        """End everything that was begun; any number of times."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def cancelled(tasks: Iterable[asyncio.Task[None]], again: float = _AGAIN_SECONDS) -> None:
    """Cancel tasks, and wait until they have ended; what they raise is nobody's any more.

    A cancellation may be lost, in a driver or where a wait ends at that moment: it is said again.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        done, left = await asyncio.wait(left, timeout=again)
        for task in done:
            if not task.cancelled():
                task.exception()


class Tasks:
    """Work that its owner started and does not wait for; it ends with the owner."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[object, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def end(self) -> None:
        """Cancel all of it, and wait until it has ended."""
        await cancelled(self._running)


class Finishing:
    """Work that is done to its end, also when whoever waits for it has gone."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[object]] = set()

    async def done(self, work: Coroutine[object, None, T]) -> T:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(observed)
        return await asyncio.shield(task)


def observed(task: asyncio.Task[object]) -> None:
    """Look at a failure that nobody waited for, so that the loop does not complain."""
    if not task.cancelled():
        task.exception()
