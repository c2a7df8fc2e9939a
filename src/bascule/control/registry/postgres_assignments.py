"""What nodes are assigned, on PostgreSQL: any replica writes it, and all of them read it.

A row has the number of the transaction that wrote it, as with reports (``postgres_reports.py``).
"""

from __future__ import annotations

from bascule.control.registry.assignments import COLUMNS, Assigned, assigned_of
from bascule.db.driver import Connection, Row
from bascule.db.postgres import Postgres

_TRANSACTION = "(pg_current_xact_id()::text::bigint)"
FORMS = (
    f"""CREATE TABLE registry_assignments (
        node text PRIMARY KEY, tasks text, labels text, actor text NOT NULL,
        at double precision NOT NULL, written bigint NOT NULL DEFAULT {_TRANSACTION}
    );
    CREATE INDEX registry_assignments_written ON registry_assignments (written);""",
)
_KEEP = f"""INSERT INTO registry_assignments VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (node) DO UPDATE SET tasks = excluded.tasks, labels = excluded.labels,
        actor = excluded.actor, at = excluded.at, written = {_TRANSACTION}"""  # noqa: S608 - a constant
_OLDEST = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
_SINCE = f"SELECT {', '.join(COLUMNS)} FROM registry_assignments WHERE written >= $1"  # noqa: S608 - constants


class PostgresAssignments:
    """``AssignmentStore`` in a database that replicas share. ``open`` it before use."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def open(self) -> PostgresAssignments:
        """Make the table, or bring an older form up to date."""
        await self._postgres.migrate("assignments", FORMS)
        return self

    async def keep(self, assigned: Assigned) -> None:
        """Keep one."""
        await self._postgres.write(lambda c: c.execute(_KEEP, *assigned.row))

    async def kept(self, since: int) -> tuple[int, tuple[Assigned, ...]]:
        """Return what was written since a transaction; all of another database."""

        async def work(connection: Connection) -> tuple[int, list[Row]]:
            oldest: int = await connection.fetchval(_OLDEST)
            return oldest, await connection.fetch(_SINCE, 0 if oldest < since else since)

        place, rows = await self._postgres.read(work)
        return place, tuple(assigned_of(*row) for row in rows)
