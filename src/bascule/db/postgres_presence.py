"""Which processes are there: each holds a lock that others may hold too, and that dies with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from bascule.clock import SYSTEM_CLOCK
from bascule.db.driver import FAULTS
from bascule.db.errors import StoreUnavailable
from bascule.db.postgres import Postgres, ended, hang_up, lock_key, stay
from bascule.lifetime import Tasks

_AGAIN_SECONDS = 0.5
_HERE = "SELECT pg_backend_pid() FROM pg_advisory_lock_shared($1)"
_OTHERS = """
    SELECT count(*) FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND pid <> $2
        AND (classid::bigint << 32) | objid::bigint = $1
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


class Presence:
    """Says that this process is there, while ``shown``, and how many others are."""

    def __init__(self, postgres: Postgres, name: str) -> None:
        self._postgres = postgres
        self._key = lock_key(f"present {name}")
        self._is_shown = False
        #: The process of the server that holds this one's lock, while one does.
        self._pid = 0

    @asynccontextmanager
    async def shown(self) -> AsyncGenerator[None]:
        """Be there while the block runs, with another connection whenever one is lost."""
        tasks, tried = Tasks(), asyncio.Event()
        self._is_shown = True
        tasks.start(self._stay(tried))
        try:
            await tried.wait()
            yield
        finally:
            self._is_shown = False
            await tasks.end()

    async def others(self) -> int:
        """Return how many others are there.

        Raise StoreUnavailable where nobody can be asked, or they cannot see this one.
        """
        if self._is_shown and not self._pid:
            raise StoreUnavailable(f"other processes at {self._postgres.where} cannot see this one")
        return await self._postgres.read(lambda c: c.fetchval(_OTHERS, self._key, self._pid))

    async def _stay(self, tried: asyncio.Event) -> None:
        while True:
            with suppress(*FAULTS, StoreUnavailable):
                await self._be_there(tried)
            self._pid = 0
            tried.set()
            await SYSTEM_CLOCK.sleep(_AGAIN_SECONDS)

    async def _be_there(self, tried: asyncio.Event) -> None:
        """Hold the lock until its connection is lost."""
        connection, seconds = await self._postgres.connect(), self._postgres.seconds
        try:
            self._pid = await ended(connection, lambda c: c.fetchval(_HERE, self._key), seconds)
            tried.set()
            await stay(connection, seconds)
        finally:
            await hang_up(connection)
