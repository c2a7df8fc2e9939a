"""What nodes are assigned, in a table beside those of the SQLite store."""

from __future__ import annotations

from bascule.control.registry.assignments import COLUMNS, Assigned, assigned_of
from bascule.db.sqlite import Database

TABLES = (
    """CREATE TABLE assignments (
        node TEXT PRIMARY KEY, tasks TEXT, labels TEXT, actor TEXT NOT NULL, at REAL NOT NULL
    ) STRICT, WITHOUT ROWID""",
)
_KEEP = "INSERT OR REPLACE INTO assignments VALUES (?, ?, ?, ?, ?)"
_ALL = f"SELECT {', '.join(COLUMNS)} FROM assignments"  # noqa: S608 - constants


class SqliteAssignments:
    """``AssignmentStore`` in the database of a ``SqliteStore``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def keep(self, assigned: Assigned) -> None:
        """Keep one."""
        await self._database.write(lambda c: c.execute(_KEEP, assigned.row))

    async def kept(self, since: int) -> tuple[int, tuple[Assigned, ...]]:
        """Return all at first: one process alone serves a file, and knows what it writes."""
        if since:
            return since, ()
        rows = await self._database.read(lambda c: c.execute(_ALL).fetchall())
        return 1, tuple(assigned_of(*row) for row in rows)
