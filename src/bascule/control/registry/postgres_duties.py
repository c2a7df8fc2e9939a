"""Duties by advisory locks of PostgreSQL, which die with their owner's connection."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from bascule.control.registry.duties import Duty, FileCopy
from bascule.db.driver import Connection
from bascule.db.postgres import Postgres

FORMS = (
    """CREATE TABLE file_copies (
        replica text PRIMARY KEY, digest text NOT NULL, seen_at double precision NOT NULL,
        load bigint NOT NULL
    )""",
)
#: After this long nobody asks what a replica said.
_KEPT_SECONDS = 30 * 86_400.0
_COPIES = "SELECT replica, digest, seen_at, load FROM file_copies ORDER BY replica"
_COPY = """INSERT INTO file_copies VALUES ($1, $2, $3, $4) ON CONFLICT (replica) DO UPDATE SET
    digest = excluded.digest, seen_at = excluded.seen_at, load = excluded.load"""


class PostgresDuties:
    """``Duties`` among the replicas on one database. ``open`` it before use."""

    def __init__(self, postgres: Postgres, replica: str) -> None:
        self.replica = replica
        self._postgres = postgres

    async def open(self) -> PostgresDuties:
        """Make the table, or bring an older form up to date."""
        await self._postgres.migrate("duties", FORMS)
        return self

    def mine(self, duty: Duty) -> AbstractAsyncContextManager[bool]:
        """Say whether no other replica has the duty now."""
        return self._postgres.held(f"duty {duty}")

    async def copies(self) -> tuple[FileCopy, ...]:
        """Return what replicas said last."""
        rows = await self._postgres.read(lambda connection: connection.fetch(_COPIES))
        return tuple(
            FileCopy(replica=replica, digest=digest, seen_at=seen_at, load=load)
            for replica, digest, seen_at, load in rows
        )

    async def keep_copy(self, copy: FileCopy) -> None:
        """Keep what this replica says, and forget whoever said nothing for very long."""

        async def work(connection: Connection) -> None:
            row = (copy.replica, copy.digest, copy.seen_at, copy.load)
            await connection.execute(_COPY, *row)
            old = copy.seen_at - _KEPT_SECONDS
            await connection.execute("DELETE FROM file_copies WHERE seen_at < $1", old)

        await self._postgres.write(work)
