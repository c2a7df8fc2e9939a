"""A backup of a registry: one SQLite file with every table, wherever the registry was kept.

It has its name once it is whole. It has the digest of every table, so that one that was damaged is
not restored; whoever can change a backup can change those too. Secrets are in it as they are
sealed, and no key is: keep those apart.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from bascule.app.copy_tables import PARTS, TABLES, Part, Sql, Table, plain_sql
from bascule.app.copying import Batch, CopiedTable, Draft, NotCopied, Rows
from bascule.app.file_places import add_rows, batches
from bascule.db.errors import StoreUnavailable
from bascule.db.private_files import sync_folder
from bascule.db.sqlite import read_only

T = TypeVar("T")
#: "bask": a backup is no database of a data directory, and is not served by mistake.
_APPLICATION_ID = 0x6261736B
_FORM = 1
_CONTENTS = Sql(
    read="SELECT name, rows, digest FROM contents", add="INSERT INTO contents VALUES (?, ?, ?)"
)


_THERE = "SELECT 1 FROM sqlite_schema WHERE name = ?"


class Archive:
    """A backup in a file."""

    lives = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = str(path)
        self.digests: Mapping[str, str] = {}

    async def fitted(self, rows: Rows) -> Rows:
        """Return rows as they are: everything fits."""
        return rows

    async def reading(self, work: Callable[[Rows], Awaitable[T]]) -> T:
        """Run a work over what was kept."""
        try:
            with closing(read_only(self.path)) as file:
                self._refuse_foreign(file)
                self.digests = dict(file.execute("SELECT name, digest FROM contents"))
                parts = {name.partition(".")[0] for name in self.digests}
                there: frozenset[Part] = frozenset(part for part in PARTS if part in parts)
                return await work(_ArchiveRows(self.where, file, there))
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self.path} cannot be read: {error}") from error

    def _refuse_foreign(self, file: sqlite3.Connection) -> None:
        [application] = file.execute("PRAGMA application_id").fetchone()
        [form] = file.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION_ID:
            raise NotCopied(f"{self.path} is not a backup of a registry")
        if form > _FORM:
            raise NotCopied(
                f"{self.path} was made by a newer version of Bascule: restore with that"
            )

    async def writing(self, work: Callable[[Draft], Awaitable[T]]) -> T:
        """Run a work that fills a new file, mode 0600; it has its name once it is whole."""
        if self.path.exists():
            raise NotCopied(f"{self.path} exists: name another file, or remove it")
        part = self.path.with_name(f"{self.path.name}.part")
        part.unlink(missing_ok=True)
        try:
            os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            with closing(sqlite3.connect(part, check_same_thread=False)) as file:
                _make(file)
                result = await work(_ArchiveRows(self.where, file, frozenset(PARTS)))
            part.replace(self.path)
            sync_folder(self.path)
        finally:
            part.unlink(missing_ok=True)
        return result


class _ArchiveRows:
    """The tables of a backup; their rows are in order."""

    def __init__(self, where: str, file: sqlite3.Connection, parts: frozenset[Part]) -> None:
        self._where = where
        self._file = file
        self.parts = parts

    async def read(self, table: Table) -> AsyncIterator[Batch]:
        """Yield the rows of a table in its order, some at a time."""
        if not self._file.execute(_THERE, (_name(table),)).fetchone():
            return  # an older version did not have it
        query = f"SELECT {', '.join(table.columns)} FROM {_name(table)} ORDER BY rowid"  # noqa: S608 - constants
        async for batch in batches(self._file, query, self._where):
            yield batch

    async def add(self, table: Table, rows: Batch) -> None:
        """Add rows to a table."""
        await add_rows(self._file, plain_sql(table, _name(table)), rows, self._where)

    async def finish(self, tables: Sequence[CopiedTable]) -> None:
        """Keep what was found when everything was read back."""
        rows = [(table.name, table.rows, table.digest) for table in tables]
        await add_rows(self._file, _CONTENTS, rows, self._where)


def _make(file: sqlite3.Connection) -> None:
    file.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    file.execute(f"PRAGMA user_version = {_FORM}")
    file.execute("CREATE TABLE contents (name TEXT PRIMARY KEY, rows INTEGER, digest TEXT)")
    for table in TABLES:
        # Without types SQLite keeps every value as it is.
        file.execute(f"CREATE TABLE {_name(table)} ({', '.join(table.columns)})")


def _name(table: Table) -> str:
    return f"{table.part}_{table.name}"
