"""At most so many at once: the gate for a server's calls, and for the node's."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress


class Limiter:
    """At most so many at once; the others wait in line until their deadline.

    Each caller has a line of its own and the lines take turns, so that whoever asks for much at
    once waits behind himself.
    """

    __slots__ = ("active", "limit", "lines")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.active = 0
        #: Those who wait, by whose they are; whose turn is next first.
        self.lines: dict[str, deque[asyncio.Future[None]]] = {}

    async def wait(self, until: float, whose: str = "") -> bool:
        """Wait for a place; False when there was none in time."""
        loop = asyncio.get_running_loop()
        place: asyncio.Future[None] = loop.create_future()
        timer = loop.call_at(until, _give_up, place)
        self.lines.setdefault(whose, deque()).append(place)
        try:
            await place
        except TimeoutError:
            self._withdraw(place, whose)
            return False
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self.leave()  # the place came just as its caller went away
            else:
                self._withdraw(place, whose)
            raise
        finally:
            timer.cancel()
        return True

    def enter(self) -> bool:
        """Take a place if one is free and nobody waits."""
        if self.active >= self.limit or self.lines:
            return False
        self.active += 1
        return True

    def leave(self) -> None:
        """Give the place back, to the first who still waits in the line whose turn it is."""
        self.active -= 1
        if self.lines:
            self.admit()

    def resize(self, limit: int) -> None:
        """Change how many there may be; more room is used at once."""
        self.limit = limit
        self.admit()

    def admit(self) -> None:
        """Give the places that are free to those who wait."""
        while self.lines and self.active < self.limit:
            whose, line = next(iter(self.lines.items()))
            place = line.popleft()
            del self.lines[whose]
            if line:
                self.lines[whose] = line  # at the end: the next line has its turn
            if not place.done():
                self.active += 1
                place.set_result(None)

    def _withdraw(self, place: asyncio.Future[None], whose: str) -> None:
        line = self.lines.get(whose)
        if line is None:
            return
        with suppress(ValueError):  # unless it was passed over meanwhile
            line.remove(place)
        if not line:
            del self.lines[whose]


def _give_up(place: asyncio.Future[None]) -> None:
    if not place.done():
        place.set_exception(TimeoutError())
