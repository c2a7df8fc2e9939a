"""Which processes are there: each holds a lock that others may hold too, and that dies with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from bascule.clock import SYSTEM_CLOCK
from bascule.db.driver import FAULTS, OwnConnection
from bascule.db.postgres import Postgres, ended, hang_up, lock_key
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
        #: The process of the server that holds this one's lock.
        self._pid = 0

    @asynccontextmanager
    async def shown(self) -> AsyncGenerator[None]:
        """Be there while the block runs, with another connection whenever one is lost."""
        with self._postgres.faults():
            connection = await self._taken()
        tasks = Tasks()
        tasks.start(self._stay(connection))
        try:
            yield
        finally:
            await tasks.end()
            await hang_up(connection)

    async def others(self) -> int:
        """Return how many others are there; raise StoreUnavailable."""
        query = _OTHERS
        return await self._postgres.read(lambda c: c.fetchval(query, self._key, self._pid))

    async def _taken(self) -> OwnConnection:
        connection = await self._postgres.connect()
        try:
            work = ended(connection, lambda c: c.fetchval(_HERE, self._key), self._postgres.seconds)
            self._pid = await work
        except BaseException:
            await hang_up(connection)
            raise
        return connection

    async def _stay(self, connection: OwnConnection | None) -> None:
        while True:
            if connection is not None:
                await _lost(connection)
            connection = None
            with suppress(*FAULTS):
                connection = await self._taken()
            if connection is None:
                await SYSTEM_CLOCK.sleep(_AGAIN_SECONDS)


async def _lost(connection: OwnConnection) -> None:
    """Wait until a connection is lost; hang up in any case."""
    lost = asyncio.Event()
    try:
        connection.add_termination_listener(lambda _: lost.set())
        await lost.wait()
    finally:
        await hang_up(connection)
