"""Token records in a file of their own, beside the registry.

They are no records of the registry: minting and revoking move no revision and leave no history,
and a copy of the registry has no token in it. What was looked up is remembered only while nobody
has written to the file, so that a token that another process revoked is refused at its next use.
"""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import astuple

from bascule.auth.file_state import FileState, Stamp
from bascule.auth.tokens import TokenRecord, Tokens, server_key
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.db.private_files import KeyUnusable
from bascule.db.sqlite import Database, Migration

FILE_NAME = "tokens.db"
KEY_NAME = "server.key"
#: The administrator's token of the first start, until the first one of one's own.
SETUP_NAME = "setup-token"
MIGRATIONS: tuple[Migration, ...] = (
    (
        """CREATE TABLE tokens (
            place INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, id TEXT NOT NULL UNIQUE,
            name TEXT NOT NULL, role TEXT NOT NULL, task_id TEXT,
            created_at REAL NOT NULL, expires_at REAL
        ) STRICT""",
    ),
)
_COLUMNS = ", ".join(TokenRecord.__struct_fields__)
_ALL = f"SELECT {_COLUMNS} FROM tokens ORDER BY place"  # noqa: S608 - a constant
_BY_DIGEST = f"SELECT {_COLUMNS} FROM tokens WHERE digest = ?"  # noqa: S608 - a constant
_INSERT = f"INSERT INTO tokens ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - a constant


class SqliteTokenStore:
    """A ``TokenStore`` in one file. ``open`` it before use."""

    def __init__(self, path: str | Path) -> None:
        self._database = Database(path)
        self._files = FileState([str(path), f"{path}-wal"])
        self._listed: tuple[Stamp | None, tuple[TokenRecord, ...]] = (None, ())

    async def open(self) -> SqliteTokenStore:
        """Open the file, or make it, readable by its owner alone."""
        await self._database.open(MIGRATIONS)
        return self

    async def add(self, record: TokenRecord) -> None:
        """Keep a record; it is durable on return."""
        row = astuple(record)
        await self._database.write(lambda connection: connection.execute(_INSERT, row) and None)

    async def by_digest(self, digest: bytes) -> TokenRecord | None:
        """Return the record with exactly this digest."""
        return await self._database.read(lambda connection: _by_digest(connection, digest))

    async def remove(self, token_id: str) -> bool:
        """Forget a record; say whether there was one."""
        query = "DELETE FROM tokens WHERE id = ?"
        return await self._database.write(lambda c: c.execute(query, (token_id,)).rowcount > 0)

    async def records(self) -> tuple[TokenRecord, ...]:
        """Return all records, oldest first."""
        stamp = self.state()
        if stamp is not None and stamp == self._listed[0]:
            return self._listed[1]
        records = await self._database.read(
            lambda connection: tuple(_record(row) for row in connection.execute(_ALL))
        )
        self._listed = stamp, records
        return records

    def state(self) -> Stamp | None:
        """Return what changes with every write, by whatever process; None while that is unsure."""
        return self._files.stamp()

    async def close(self) -> None:
        """Let go of the file."""
        await self._database.close()
        self._files.close()


def _by_digest(connection: sqlite3.Connection, digest: bytes) -> TokenRecord | None:
    row = connection.execute(_BY_DIGEST, (digest,)).fetchone()
    return None if row is None else _record(row)


def _record(row: sqlite3.Row) -> TokenRecord:
    return TokenRecord(**dict(zip(TokenRecord.__struct_fields__, row, strict=True)))


def refuse_open_folder(folder: Path) -> None:
    """Refuse a folder in which anybody may put another file in the place of a key or an address."""
    try:
        mode = folder.stat().st_mode
    except OSError:
        return  # it is made, or missed, by whoever needs it
    if mode & stat.S_IWOTH:
        raise KeyUnusable(
            f"{folder}: everybody may write to it, and so replace its key; run chmod o-w {folder}, "
            "or name a new folder inside it"
        )


@asynccontextmanager
async def open_tokens(
    data_dir: Path, *, clock: Clock = SYSTEM_CLOCK
) -> AsyncGenerator[Tokens, None]:
    """Return the tokens of a data directory, which is made if need be, private to its owner."""
    refuse_open_folder(data_dir)
    key = server_key(data_dir / KEY_NAME)
    store = await SqliteTokenStore(data_dir / FILE_NAME).open()
    try:
        yield Tokens(store, key, clock, setup_file=data_dir / SETUP_NAME)
    finally:
        await store.close()
