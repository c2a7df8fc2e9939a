"""Lets many requests begin at once without holding up what is under way.

In each turn of the event loop only a few pass; the others follow in the next ones, in their order.
Between two turns timers fire and answers that are under way go on.
"""

from __future__ import annotations

import asyncio
from collections import deque

AT_ONCE = 8


class Turnstile:
    """Lets a few pass in each turn of the loop."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._left = at_once
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Pass at once, or wait for a turn."""
        if self._left == self._at_once:
            asyncio.get_running_loop().call_soon(self._next_turn)
        if self._left:
            self._left -= 1
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await waiter

    def _next_turn(self) -> None:
        self._left = self._at_once
        while self._waiting and self._left:
            waiter = self._waiting.popleft()
            if not waiter.done():  # nobody waits any more who was cancelled
                waiter.set_result(None)
                self._left -= 1
        if self._left < self._at_once:
            asyncio.get_running_loop().call_soon(self._next_turn)
