"""Tells subscribers that servers, their tools or the records have changed.

Announcing costs a call nothing and cannot fail it: subscribers run in the event loop's next turn,
and what one of them raises is logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

from bascule.clock import Clock
from bascule.model.status import Change

#: More than this are not kept for one turn of the loop; the oldest go.
MOST_WAITING = 1024

OnChange: TypeAlias = Callable[[Change], None]
Unsubscribe: TypeAlias = Callable[[], None]

logger = logging.getLogger("bascule.changes")


class Announcing(Protocol):
    """Whatever tells of changes: a bridge, in this process or connected."""

    def subscribe(self, on_change: OnChange) -> Unsubscribe:
        """Have a function called for each change, on the event loop; return what ends that."""
        ...


class Changes:
    """The subscribers, and the changes of this turn of the loop."""

    def __init__(self) -> None:
        self._subscribers: dict[object, OnChange] = {}
        self._waiting: deque[Change] = deque(maxlen=MOST_WAITING)

    def subscribe(self, on_change: OnChange) -> Unsubscribe:
        """Call a function for each change, on the event loop, until the returned one is called."""
        key = object()
        self._subscribers[key] = on_change

        def unsubscribe() -> None:
            self._subscribers.pop(key, None)

        return unsubscribe

    def announce(self, change: Change) -> None:
        """Tell the subscribers in the loop's next turn."""
        if not self._subscribers:
            return
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._deliver)
        self._waiting.append(change)

    def _deliver(self) -> None:
        waiting = list(self._waiting)
        self._waiting.clear()
        for change in waiting:
            for on_change in list(self._subscribers.values()):
                try:
                    on_change(change)
                except Exception:  # somebody else's code: the others are told all the same
                    logger.exception("a subscriber failed on a change of %r", change.server_id)


class News:
    """Whether something has happened since the last look, for a task that waits for it."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self, _change: Change | None = None) -> None:
        """Note that something happened; a subscriber's function."""
        self._event.set()

    async def wait(self, clock: Clock, seconds: float | None) -> None:
        """Wait for news, and no longer than that."""
        if seconds is None:
            await self._event.wait()
            self._event.clear()
            return
        loop = asyncio.get_running_loop()
        waits = {loop.create_task(self._event.wait()), loop.create_task(clock.sleep(seconds))}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._event.clear()
