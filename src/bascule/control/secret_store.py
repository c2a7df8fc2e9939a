"""Sealed secrets in a file of their own, beside the registry: ``secrets.db``.

What is deleted is overwritten.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from msgspec.structs import astuple

from bascule.auth.file_state import FileState, Stamp
from bascule.clock import Clock
from bascule.control.secret_tables import Binding, Head, Row, SecretTables
from bascule.db.sqlite import Commit, Database, Migration, plain_commit
from bascule.model.secret_use import UserKind

T = TypeVar("T")
FILE_NAME = "secrets.db"
POLL_SECONDS = 1.0
MIGRATIONS: tuple[Migration, ...] = (
    (
        # ``key_id`` is of the outer key, and none before the first secret.
        """CREATE TABLE meta (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            store_id TEXT NOT NULL, epoch INTEGER NOT NULL, key_id TEXT
        ) STRICT""",
        "INSERT INTO meta VALUES (1, lower(hex(randomblob(8))), 0, NULL)",
        """CREATE TABLE secrets (
            name TEXT PRIMARY KEY, version INTEGER NOT NULL, made_at REAL NOT NULL,
            changed_at REAL NOT NULL, changed_by TEXT NOT NULL,
            wrapped BLOB NOT NULL, sealed BLOB NOT NULL
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE bindings (
            name TEXT NOT NULL REFERENCES secrets (name) ON DELETE CASCADE,
            kind TEXT NOT NULL, id TEXT NOT NULL, digest TEXT NOT NULL,
            bound_at REAL NOT NULL, bound_by TEXT NOT NULL, signature BLOB NOT NULL,
            PRIMARY KEY (name, kind, id)
        ) STRICT, WITHOUT ROWID""",
        "CREATE TABLE removed (name TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT",
    ),
)


_ROWS = f"SELECT {', '.join(Row.__struct_fields__)} FROM secrets"  # noqa: S608 - a constant
_BINDINGS = f"SELECT {', '.join(Binding.__struct_fields__)} FROM bindings"  # noqa: S608 - a constant


class SqliteSecretStore:
    """A ``SecretStore`` in one ``secrets.db``. ``open`` it before use."""

    shared = False

    def __init__(self, path: Path, *, commit: Commit = plain_commit) -> None:
        self.where = str(path)
        self.anew = f"move {path} away"
        self._database = Database(path, commit=commit)
        self._files = FileState([str(path), f"{path}-wal"])

    async def open(self) -> SqliteSecretStore:
        """Open the file, or make it, readable by its owner alone."""
        await self._database.open(MIGRATIONS)
        return self

    async def write(self, work: Callable[[SecretTables], T]) -> T:
        """Run a whole transaction; what it deletes is overwritten."""

        def thorough(connection: sqlite3.Connection) -> T:
            connection.execute("PRAGMA secure_delete = ON").fetchall()
            return work(SqliteTables(connection))

        return await self._database.write(thorough)

    async def read(self, work: Callable[[SecretTables], T]) -> T:
        """Look at one state of the file."""
        return await self._database.read(lambda connection: work(SqliteTables(connection)))

    async def has_moved(self) -> bool:
        """Say no: every look is at the file."""
        return False

    async def others(self) -> int:
        """Return 0: whoever has the file has its key's file too."""
        return 0

    async def forget_log(self) -> None:
        """Empty the write-ahead log, which has what was overwritten; others may keep it busy."""
        await self._database.forget_log()

    def state(self) -> Stamp | None:
        """Return what changes with every write, by whatever process; None while that is unsure."""
        return self._files.stamp()

    async def pause(self, seen: object, clock: Clock) -> None:
        """Wait a second."""
        await clock.sleep(POLL_SECONDS)

    async def close(self) -> None:
        """Let go of the file."""
        await self._database.close()
        self._files.close()


class SqliteTables:
    """The tables of the file, over a connection in a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def head(self) -> Head:
        query = "SELECT store_id, epoch, key_id FROM meta"
        return Head(*self._connection.execute(query).fetchone())

    def advance(self, key_id: str) -> Head:
        """Begin the next epoch, with this outer key."""
        self._connection.execute("UPDATE meta SET epoch = epoch + 1, key_id = ?", (key_id,))
        return self.head()

    def count(self) -> int:
        [number] = self._connection.execute("SELECT count(*) FROM secrets").fetchone()
        return int(number)

    def rows(self) -> Iterator[Row]:
        """Yield all secrets, by name."""
        return (Row(*row) for row in self._connection.execute(f"{_ROWS} ORDER BY name").fetchall())

    def row(self, name: str) -> Row | None:
        found = self._connection.execute(f"{_ROWS} WHERE name = ?", (name,)).fetchone()
        return None if found is None else Row(*found)

    def bindings(self) -> Iterator[Binding]:
        """Yield all bindings, by name, kind and id."""
        found = self._connection.execute(f"{_BINDINGS} ORDER BY name, kind, id").fetchall()
        return (Binding(*row) for row in found)

    def binding(self, name: str, kind: UserKind, user: str) -> Binding | None:
        query = f"{_BINDINGS} WHERE name = ? AND kind = ? AND id = ?"
        found = self._connection.execute(query, (name, kind, user)).fetchone()
        return None if found is None else Binding(*found)

    def next_version(self, name: str) -> int:
        """Return the number of the next version; one that was removed goes on where it ended."""
        both = "SELECT * FROM removed UNION SELECT name, version FROM secrets"
        query = f"SELECT coalesce(max(version), 0) + 1 FROM ({both}) WHERE name = ?"  # noqa: S608 - a constant
        [version] = self._connection.execute(query, (name,)).fetchone()
        return int(version)

    def put(self, new: Row) -> None:
        """Keep a version in the place of the one before; bindings stay."""
        self._connection.execute(
            "INSERT INTO secrets VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
            "version = excluded.version, changed_at = excluded.changed_at, "
            "changed_by = excluded.changed_by, wrapped = excluded.wrapped, "
            "sealed = excluded.sealed",
            astuple(new),
        )

    def put_wrapped(self, name: str, wrapped: bytes) -> None:
        """Keep a data key that was wrapped again."""
        self._connection.execute("UPDATE secrets SET wrapped = ? WHERE name = ?", (wrapped, name))

    def put_binding(self, new: Binding) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO bindings VALUES (?, ?, ?, ?, ?, ?, ?)", astuple(new)
        )

    def remove_binding(self, name: str, kind: UserKind, user: str) -> bool:
        query = "DELETE FROM bindings WHERE name = ? AND kind = ? AND id = ?"
        return self._connection.execute(query, (name, kind, user)).rowcount > 0

    def remove(self, name: str) -> bool:
        """Forget a secret and its bindings, but for the number of its last version."""
        self._connection.execute(
            "INSERT OR REPLACE INTO removed SELECT name, version FROM secrets WHERE name = ?",
            (name,),
        )
        return self._connection.execute("DELETE FROM secrets WHERE name = ?", (name,)).rowcount > 0
