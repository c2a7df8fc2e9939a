"""The way between a guest's thread and the event loop.

    wait     the guest's thread has the loop do some work, and serves what arrives until it is done
    enter    the loop has the guest's thread do something: only that thread may enter its store

Nothing of a guest runs or waits on the loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from bascule.doors.hostcalls.abi import Errno, Fault

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Ended(Exception):
    """The guest is to end: nothing is done for it any more."""


class Crossing:
    """One guest's way to the loop and back."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, halted: Callable[[], bool] = lambda: False
    ) -> None:
        self._loop = loop
        #: Says whether the code that waits is to stop, though the guest goes on.
        self._halted = halted
        self._arrivals: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._last: list[Callable[[], Coroutine[object, object, object]]] = []
        self.ended = False

    def wait(self, work: Callable[[], Coroutine[object, object, T]]) -> T:
        """Have the loop do some work and return its result; raise what it raises, or Ended."""
        result: _Result[T] = _Result()
        self._post(partial(self._begin, work, result))
        while not self.ended and not self._halted():
            if result.is_there:
                return result.value()
            self._arrivals.get()()
        self.tell(result.cancel)
        raise Ended

    def begin(self, work: Callable[[], Coroutine[object, object, object]]) -> None:
        """Have the loop do some work and go on; it ends with the guest at the latest."""
        self._post(partial(self._begin, work, None))

    def finish(self, work: Callable[[], Coroutine[object, object, object]]) -> None:
        """Have the loop do some work now; if the guest is to end, once it has."""
        try:
            self.wait(work)
        except Ended:
            self._last.append(work)

    def tell(self, call: Callable[[], None]) -> None:
        """Have the loop call something, if the guest still runs; from any thread."""
        with suppress(Ended):
            self._post(call)

    async def enter(self, job: Callable[[], T]) -> T:
        """Have the guest's thread do something, the next time it waits; called on the loop."""
        answer: asyncio.Future[T] = self._loop.create_future()
        self._arrivals.put(partial(self._do, job, answer))
        return await answer

    def wake(self) -> None:
        """Have the guest's thread look up, if it waits; from any thread."""
        self._arrivals.put(_nothing)

    def end(self) -> None:
        """Wake the guest's thread and cancel what it waits for; from any thread, at any time."""
        self.ended = True
        self.wake()
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:
            return  # the loop is closed, and its tasks with it

    async def drain(self, seconds: float) -> None:
        """Wait until all that was cancelled has ended, and do what is left to do, but no longer.

        Called on the loop.
        """
        works = {*self._tasks, *(self._loop.create_task(work()) for work in self._last)}
        if works:
            _, left = await asyncio.wait(works, timeout=seconds)
            if left:
                logger.error("work for a guest did not end with it: %s", left)

    # --- on the guest's thread, and _post on any

    def _post(self, call: Callable[[], None]) -> None:
        if self.ended:
            raise Ended
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            raise Ended from None

    def _do(self, job: Callable[[], T], answer: asyncio.Future[T]) -> None:
        result: _Result[T] = _Result()
        result.of(job)
        self._post(partial(_settle, answer, result))

    # --- on the loop's thread

    def _begin(
        self, work: Callable[[], Coroutine[object, object, T]], result: _Result[T] | None
    ) -> None:
        if self.ended:
            return
        task = self._loop.create_task(work())
        self._tasks.add(task)
        if result is not None:
            result.task = task
        task.add_done_callback(partial(self._over, result))

    def _over(self, result: _Result[T] | None, task: asyncio.Task[T]) -> None:
        self._tasks.discard(task)
        if result is None:
            if not task.cancelled():
                task.exception()  # taken note of: its handle has told the guest
        else:
            self._arrivals.put(partial(result.of, partial(_outcome, task)))

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


class _Result(Generic[T]):
    """What some work came to: a value or an exception, once it is there."""

    def __init__(self) -> None:
        self.is_there = False
        self._value: T | None = None
        self.error: BaseException | None = None
        self.task: asyncio.Task[T] | None = None

    def cancel(self) -> None:
        """End the work, on the loop's thread."""
        if self.task is not None:
            self.task.cancel()

    def of(self, job: Callable[[], T]) -> None:
        """Keep what a function returns or raises."""
        try:
            self._value = job()
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            self.error = error
        self.is_there = True

    def value(self) -> T:
        if self.error is not None:
            raise self.error
        return self._value  # pyright: ignore[reportReturnType] - T itself may be None


def _settle(answer: asyncio.Future[T], result: _Result[T]) -> None:
    if answer.done():
        return
    if result.error is not None:
        answer.set_exception(result.error)
    else:
        answer.set_result(result.value())


def _outcome(task: asyncio.Task[T]) -> T:
    if task.cancelled():
        raise Fault(Errno.ECANCELED)  # by somebody else: a guest that ends does not look here
    return task.result()


def _nothing() -> None:
    """Arrive, so that whoever waits looks up."""
