"""Hears what other processes say through the database: a bell, never the truth.

A listener's connection can die without a word to those who rely on it. It is made anew, and rings
once then, since nobody knows what was said meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.db.driver import FAULTS
from bascule.db.errors import StoreUnavailable
from bascule.db.postgres import Postgres, ended, hang_up, said, stay

#: How often a silent connection is asked whether it lives.
_HEARTBEAT_SECONDS = 5.0
_AGAIN_SECONDS = 0.5


class Listener:
    """Calls ``ring`` with every word on a channel, and with none for what may be missed."""

    def __init__(
        self,
        postgres: Postgres,
        channel: str,
        ring: Callable[[str], None],
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._postgres = postgres
        self._channel = channel
        self._ring = ring
        self._clock = clock
        #: Why nothing can be heard now, if so.
        self.trouble: str | None = "not yet listening"

    async def run(self) -> None:
        """Listen, with another connection whenever one is lost."""
        while True:
            try:
                await self._listen()
            except (*FAULTS, StoreUnavailable) as error:
                self.trouble = f"the listener is lost: {said(error)}"
            await self._clock.sleep(_AGAIN_SECONDS)

    async def _listen(self) -> None:
        connection = await self._postgres.connect()
        try:
            begin = connection.add_listener(self._channel, lambda *said: self._ring(said[-1]))
            await ended(connection, lambda _: begin, _HEARTBEAT_SECONDS)
            self.trouble = None
            self._ring("")
            await stay(connection, _HEARTBEAT_SECONDS)
            self.trouble = "the listener is lost"
        finally:
            await hang_up(connection)
