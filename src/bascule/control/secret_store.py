"""Sealed secrets in a file of their own, beside the registry: ``secrets.db``.

Of a secret the newest version is kept, and of one that was removed its last number, so that no
number comes again. What is deleted is overwritten. ``bascule.db.sqlite`` runs each function on a
connection as one transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import astuple

from bascule.auth.file_state import FileState, Stamp
from bascule.control.envelope import Envelope, Place
from bascule.db.sqlite import Commit, Database, Migration, plain_commit
from bascule.model.secret_use import SecretUse, UserKind

T = TypeVar("T")
FILE_NAME = "secrets.db"
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


class Head(Struct, frozen=True):
    """Which store it is, how often its outer key was changed, and which key it has now."""

    store_id: str
    epoch: int
    key_id: str | None

    def place(self, name: str, version: int) -> Place:
        """Return where an envelope of this store belongs."""
        return Place(self.store_id, self.epoch, name, version)


class Row(Struct, frozen=True):
    """A secret as it is kept."""

    name: str
    version: int
    made_at: float
    changed_at: float
    changed_by: str
    wrapped: bytes
    sealed: bytes

    @property
    def envelope(self) -> Envelope:
        """Return what is sealed."""
        return Envelope(self.wrapped, self.sealed)


class Binding(Struct, frozen=True):
    """Who may be given a secret, by whose word; ``signature`` is the outer key's."""

    name: str
    kind: UserKind
    id: str
    digest: str
    bound_at: float
    bound_by: str
    signature: bytes

    @property
    def use(self) -> SecretUse:
        """Return whom it is bound to, as its record stood then."""
        return SecretUse(self.kind, self.id, self.digest)


_ROWS = f"SELECT {', '.join(Row.__struct_fields__)} FROM secrets"  # noqa: S608 - a constant
_BINDINGS = f"SELECT {', '.join(Binding.__struct_fields__)} FROM bindings"  # noqa: S608 - a constant


class SecretStore:
    """One ``secrets.db``. ``open`` it before use."""

    def __init__(self, path: Path, *, commit: Commit = plain_commit) -> None:
        self.path = path
        self._database = Database(path, commit=commit)
        self._files = FileState([str(path), f"{path}-wal"])

    async def open(self) -> SecretStore:
        """Open the file, or make it, readable by its owner alone."""
        await self._database.open(MIGRATIONS)
        return self

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a whole transaction; what it deletes is overwritten."""

        def thorough(connection: sqlite3.Connection) -> T:
            connection.execute("PRAGMA secure_delete = ON").fetchall()
            return work(connection)

        return await self._database.write(thorough)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run several queries over one snapshot."""
        return await self._database.read(work)

    async def forget_log(self) -> None:
        """Empty the write-ahead log, which has what was overwritten; others may keep it busy."""
        await self._database.forget_log()

    def state(self) -> Stamp | None:
        """Return what changes with every write, by whatever process; None while that is unsure."""
        return self._files.stamp()

    async def close(self) -> None:
        """Let go of the file."""
        await self._database.close()
        self._files.close()


def head(connection: sqlite3.Connection) -> Head:
    return Head(*connection.execute("SELECT store_id, epoch, key_id FROM meta").fetchone())


def advance(connection: sqlite3.Connection, key_id: str) -> Head:
    """Begin the next epoch, with this outer key."""
    connection.execute("UPDATE meta SET epoch = epoch + 1, key_id = ?", (key_id,))
    return head(connection)


def count(connection: sqlite3.Connection) -> int:
    [number] = connection.execute("SELECT count(*) FROM secrets").fetchone()
    return int(number)


def rows(connection: sqlite3.Connection) -> Iterator[Row]:
    """Yield all secrets, by name."""
    return (Row(*row) for row in connection.execute(f"{_ROWS} ORDER BY name").fetchall())


def row(connection: sqlite3.Connection, name: str) -> Row | None:
    found = connection.execute(f"{_ROWS} WHERE name = ?", (name,)).fetchone()
    return None if found is None else Row(*found)


def bindings(connection: sqlite3.Connection) -> Iterator[Binding]:
    """Yield all bindings, by name, kind and id."""
    found = connection.execute(f"{_BINDINGS} ORDER BY name, kind, id").fetchall()
    return (Binding(*row) for row in found)


def binding(connection: sqlite3.Connection, name: str, kind: UserKind, user: str) -> Binding | None:
    query = f"{_BINDINGS} WHERE name = ? AND kind = ? AND id = ?"
    found = connection.execute(query, (name, kind, user)).fetchone()
    return None if found is None else Binding(*found)


def next_version(connection: sqlite3.Connection, name: str) -> int:
    """Return the number of the next version; one that was removed goes on where it ended."""
    both = "SELECT * FROM removed UNION SELECT name, version FROM secrets"
    query = f"SELECT coalesce(max(version), 0) + 1 FROM ({both}) WHERE name = ?"  # noqa: S608 - a constant
    [version] = connection.execute(query, (name,)).fetchone()
    return int(version)


def put(connection: sqlite3.Connection, new: Row) -> None:
    """Keep a version in the place of the one before; bindings stay."""
    connection.execute(
        "INSERT INTO secrets VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
        "version = excluded.version, changed_at = excluded.changed_at, "
        "changed_by = excluded.changed_by, wrapped = excluded.wrapped, sealed = excluded.sealed",
        astuple(new),
    )


def put_wrapped(connection: sqlite3.Connection, name: str, wrapped: bytes) -> None:
    """Keep a data key that was wrapped again."""
    connection.execute("UPDATE secrets SET wrapped = ? WHERE name = ?", (wrapped, name))


def put_binding(connection: sqlite3.Connection, new: Binding) -> None:
    connection.execute("INSERT OR REPLACE INTO bindings VALUES (?, ?, ?, ?, ?, ?, ?)", astuple(new))


def remove_binding(connection: sqlite3.Connection, name: str, kind: UserKind, user: str) -> bool:
    query = "DELETE FROM bindings WHERE name = ? AND kind = ? AND id = ?"
    return connection.execute(query, (name, kind, user)).rowcount > 0


def remove(connection: sqlite3.Connection, name: str) -> bool:
    """Forget a secret and its bindings, but for the number of its last version."""
    connection.execute(
        "INSERT OR REPLACE INTO removed SELECT name, version FROM secrets WHERE name = ?", (name,)
    )
    return connection.execute("DELETE FROM secrets WHERE name = ?", (name,)).rowcount > 0


def marks(connection: sqlite3.Connection) -> Mapping[str, object]:
    """Return for each secret what is another once its value or its bindings are."""
    found: dict[str, list[object]] = {
        name: [version] for name, version in connection.execute("SELECT name, version FROM secrets")
    }
    for bound in bindings(connection):
        found.setdefault(bound.name, []).append(bound.use)
    return found
