"""At most so many at once: the gate for a server's calls, and for the node's."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from contextlib import suppress
from typing import TypeAlias

#: The calls of one session that wait, in the order in which they came.
_Line: TypeAlias = deque[asyncio.Future[None]]


class Limiter:
    """At most so many at once; the others wait in line until their deadline.

    Those who wait take turns: every person or token has the same share, however many sessions it
    opens, and within that every session, however many calls it makes.
    """

    __slots__ = ("active", "limit", "lines")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.active = 0
        #: Those who wait, by whose they are and by session; whose turn is next first.
        self.lines: OrderedDict[str, OrderedDict[str, _Line]] = OrderedDict()

    async def wait(self, until: float, whose: str = "", session_id: str = "") -> bool:
        """Wait for a place; False when there was none in time."""
        loop = asyncio.get_running_loop()
        place: asyncio.Future[None] = loop.create_future()
        timer = loop.call_at(until, _give_up, place)
        self.lines.setdefault(whose, OrderedDict()).setdefault(session_id, deque()).append(place)
        try:
            await place
        except TimeoutError:
            self._withdraw(place, whose, session_id)
            return False
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self.leave()  # the place came just as its caller went away
            else:
                self._withdraw(place, whose, session_id)
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
            whose = next(iter(self.lines))
            session_id = next(iter(self.lines[whose]))
            place = self.lines[whose][session_id].popleft()
            if not place.done():
                self.active += 1
                place.set_result(None)
                self.lines[whose].move_to_end(session_id)  # the others have their turn first
                self.lines.move_to_end(whose)
            self._close(whose, session_id)

    def _withdraw(self, place: asyncio.Future[None], whose: str, session_id: str) -> None:
        with suppress(KeyError, ValueError):  # unless it was passed over meanwhile
            self.lines[whose][session_id].remove(place)
            self._close(whose, session_id)

    def _close(self, whose: str, session_id: str) -> None:
        """Forget a line in which nobody stands."""
        sessions = self.lines[whose]
        if not sessions[session_id]:
            del sessions[session_id]
        if not sessions:
            del self.lines[whose]


def _give_up(place: asyncio.Future[None]) -> None:
    if not place.done():
        place.set_exception(TimeoutError())
