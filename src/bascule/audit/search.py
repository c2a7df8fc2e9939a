"""Searching the ledger: what happened, the newest first, each call as one entry.

A call is two rows, its intent and its outcome. Its entry is the outcome; the intent is one only
while there is none, or where intents are asked for. However many rows there are, one page looks at
a bounded number of them, through an index where a filter has one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable
from functools import cache, partial
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar, get_args

from bascule.audit.events import Event
from bascule.audit.ledger_file import FILE, MIGRATIONS, Tables, file_tables
from bascule.audit.ledger_file import tip as chain_tip
from bascule.audit.search_queries import EVERYTHING, LOOKED_AT, Questions, SeenFilters, Stretch
from bascule.db.errors import StoreUnavailable
from bascule.db.sqlite import read_only, refuse_foreign
from bascule.db.statements import Statements
from bascule.wire.api.audit import AuditFilters, AuditPage, CallLife

__all__ = ["EVENTS", "LedgerFile", "LedgerReader", "SeenFilters", "Stretch"]
T = TypeVar("T")
#: Says of a journal, by its id, whether its process lives. It is asked on a reader's thread.
IsLive: TypeAlias = Callable[[str], bool]

#: What an event can be.
EVENTS: tuple[str, ...] = tuple(kind.__struct_config__.tag for kind in get_args(Event))


class Readable(Protocol):
    """A database that can be read (those of ledgers and ``LedgerFile`` can)."""

    async def read(self, work: Callable[[Statements], T]) -> T:
        """Run several queries over one snapshot."""
        ...


class LedgerFile:
    """A ``ledger.db`` that is read where it is, whoever writes to it; nothing of it changes."""

    def __init__(self, path: Path) -> None:
        """Open it; raise StoreUnavailable for a file that is not there, foreign or newer."""
        self.path = path
        #: As its form has them.
        self.tables: Tables = FILE
        try:
            self._connection = read_only(path)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{path} cannot be opened: {error}") from error
        try:
            refuse_foreign(self._connection, path, len(MIGRATIONS))
            _know_approvals(self._connection)
            self.tables = file_tables(self._connection)
        except StoreUnavailable:
            self.close()
            raise

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run several queries over one snapshot, at once."""
        self._connection.execute("BEGIN")
        try:
            return work(self._connection)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self.path} cannot be read: {error}") from error
        finally:
            self._connection.rollback()

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()


def _know_approvals(connection: sqlite3.Connection) -> None:
    """Have an empty table of approvals beside a file from before there were any."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'approvals'").fetchone():
        connection.execute("CREATE TEMP TABLE approvals (id TEXT, journal TEXT)")


class LedgerReader:
    """The reading side of a ledger. ``is_live`` is of journals on this machine."""

    def __init__(
        self,
        database: Readable,
        is_live: IsLive = lambda _: False,
        *,
        looked_at: int = LOOKED_AT,
        tables: Tables = FILE,
    ) -> None:
        self._database = database
        self._is_live = is_live
        self._looked_at = looked_at
        self._tables = tables

    async def search(self, filters: AuditFilters, before: int | None, limit: int) -> AuditPage:
        """Return the newest entries below a number."""
        return await self._read(lambda ask: ask.search(filters, before, limit))

    async def life(self, request_id: str, filters: AuditFilters = EVERYTHING) -> CallLife | None:
        """Return what was written about one call, or None when nothing was."""
        return await self._read(lambda ask: ask.life(request_id, filters))

    async def after(self, number: int, filters: AuditFilters, limit: int) -> Stretch:
        """Return the entries after a row, in order; of calls, those that have ended."""
        return await self._read(lambda ask: ask.after(number, filters, limit))

    async def export(self, filters: AuditFilters = EVERYTHING) -> AsyncGenerator[bytes, None]:
        """Yield every row up to the last one of this moment, as lines, many at a time.

        Raise StoreUnavailable when rows are cut off before they could be read.
        """
        first, span = await self._database.read(
            lambda found: (self._tables.first(found), self._tables.bounds(found))
        )
        reached = first - 1
        while reached < span[1]:
            page = partial(Questions.export, number=reached, span=span, filters=filters)
            lines, reached = await self._read(page)
            if lines:
                yield lines

    async def bounds(self) -> tuple[int, int]:
        """Return the number of the last row that was cut off the front, and of the last one."""
        return await self._read(lambda ask: ask.bounds())

    async def tip(self) -> tuple[int, bytes]:
        """Return the number and the hash of the last row of this process's chain."""
        return await self._database.read(lambda found: chain_tip(found, self._tables))

    async def _read(self, work: Callable[[Questions], T]) -> T:
        def reading(statements: Statements) -> T:
            if isinstance(statements, sqlite3.Connection):
                # Asked once for a read, so that all of it says the same.
                statements.create_function("is_live", 1, cache(self._is_live))
            return work(Questions(statements, self._tables, self._looked_at))

        return await self._database.read(reading)
