"""Sealed secrets in a PostgreSQL that replicas share.

Each replica has all of them in memory, sealed: they are opened from there while the database is
away. A write is made on a copy, under a lock that all replicas take, and the difference is written.
Every write leaves another mark: who finds one that it does not know reads everything anew.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias, TypeVar, Unpack

from msgspec.structs import astuple

from bascule.auth.following import Turns, following
from bascule.auth.token_store import refuse_open_folder
from bascule.clock import Clock
from bascule.control.envelope import OuterKey
from bascule.control.secret_keys import KEY_NAME, KeyFile, Keys
from bascule.control.secret_tables import Binding, Head, MemoryTables, Row, SecretTables
from bascule.control.secrets import SecretParts, Secrets
from bascule.db.driver import Connection
from bascule.db.errors import StoreUnavailable
from bascule.db.postgres import Postgres
from bascule.db.postgres_outcome import certain_write, open_outcomes
from bascule.db.postgres_presence import Presence

T = TypeVar("T")
Values: TypeAlias = tuple[object, ...]
CHANNEL = "bascule_secrets"
FORMS = (
    """
    CREATE TABLE bascule_secrets_head (
        one boolean PRIMARY KEY CHECK (one), store_id text NOT NULL, epoch bigint NOT NULL,
        key_id text, mark bytea NOT NULL
    );
    INSERT INTO bascule_secrets_head
        VALUES (true, left(replace(gen_random_uuid()::text, '-', ''), 16), 0, NULL, '');
    CREATE TABLE bascule_secrets (
        name text PRIMARY KEY, version bigint NOT NULL, made_at float8 NOT NULL,
        changed_at float8 NOT NULL, changed_by text NOT NULL,
        wrapped bytea NOT NULL, sealed bytea NOT NULL
    );
    CREATE TABLE bascule_secret_bindings (
        name text NOT NULL, kind text NOT NULL, id text NOT NULL, digest text NOT NULL,
        bound_at float8 NOT NULL, bound_by text NOT NULL, signature bytea NOT NULL,
        PRIMARY KEY (name, kind, id)
    );
    CREATE TABLE bascule_removed_secrets (name text PRIMARY KEY, version bigint NOT NULL)""",
)
_HEAD = "SELECT store_id, epoch, key_id, mark FROM bascule_secrets_head"
_MARK = "SELECT mark FROM bascule_secrets_head"
_PUT_HEAD = f"""UPDATE bascule_secrets_head SET epoch = $1, key_id = $2, mark = $3
    RETURNING pg_notify('{CHANNEL}', '')"""  # noqa: S608 - a constant


class _Table:
    """How the rows of one table are read, written and taken away; its first columns are its key."""

    def __init__(self, name: str, columns: tuple[str, ...], *, keys: int) -> None:
        chosen, marked = ", ".join(columns), ", ".join(f"${n + 1}" for n in range(len(columns)))
        which = " AND ".join(f"{columns[n]} = ${n + 1}" for n in range(keys))
        both = ", ".join(f"{column} = excluded.{column}" for column in columns)
        self.all = f"SELECT {chosen} FROM {name}"  # noqa: S608 - constants
        self._put = f"""INSERT INTO {name} ({chosen}) VALUES ({marked})
            ON CONFLICT ({", ".join(columns[:keys])}) DO UPDATE SET {both}"""  # noqa: S608 - constants
        self._drop = f"DELETE FROM {name} WHERE {which}"  # noqa: S608 - constants
        self._keys = keys

    async def write(self, connection: Connection, before: set[Values], after: set[Values]) -> bool:
        """Write what differs; say whether anything does."""
        gone = {row[: self._keys] for row in before} - {row[: self._keys] for row in after}
        new = after - before
        if gone:
            await connection.executemany(self._drop, list(gone))
        if new:
            await connection.executemany(self._put, list(new))
        return bool(gone or new)


_SECRETS = _Table("bascule_secrets", Row.__struct_fields__, keys=1)
_BINDINGS = _Table("bascule_secret_bindings", Binding.__struct_fields__, keys=3)
_REMOVED = _Table("bascule_removed_secrets", ("name", "version"), keys=1)


class PostgresSecretStore:
    """A ``SecretStore`` that replicas share. ``open`` it before use."""

    shared = True

    def __init__(self, postgres: Postgres, presence: Presence) -> None:
        self.where = postgres.where
        self.anew = "stop the replicas, DELETE FROM bascule_secrets, start one"
        self._postgres = postgres
        self._presence = presence
        self._tables = MemoryTables(Head("", 0, None))
        #: Of the state in memory; None before the first look.
        self._mark: bytes | None = None
        self._one_by_one = asyncio.Lock()
        self._turns = Turns(self._look)
        self._news = asyncio.Event()

    async def open(self) -> PostgresSecretStore:
        """Make the tables, or bring them to their newest form, and read them."""
        await open_outcomes(self._postgres)
        await self._postgres.migrate("secrets", FORMS)
        await self.catch_up()
        return self

    async def read(self, work: Callable[[SecretTables], T]) -> T:
        """Look at what is in memory."""
        return await asyncio.to_thread(work, self._tables)

    async def write(self, work: Callable[[SecretTables], T]) -> T:
        """Run a whole transaction on a copy, and write what it changed."""

        async def transaction(connection: Connection) -> tuple[T, MemoryTables, bytes]:
            mark: bytes = await connection.fetchval(f"{_MARK} FOR UPDATE")
            before = self._tables if mark == self._mark else (await _read(connection))[0]
            after = before.copy()
            result = await asyncio.to_thread(work, after)
            if await _write(connection, before, after):
                mark = secrets.token_bytes(8)
                await connection.execute(_PUT_HEAD, after.now.epoch, after.now.key_id, mark)
            return result, after, mark

        async with self._one_by_one:
            result, tables, mark = await certain_write(self._postgres, transaction)
            self._take(tables, mark)
        return result

    async def has_moved(self) -> bool:
        """Catch up; say whether there was anything new."""
        before = self._mark
        with suppress(StoreUnavailable):
            await self.catch_up()
        return self._mark != before

    async def others(self) -> int:
        """Return how many other replicas run now."""
        return await self._presence.others()

    async def forget_log(self) -> None:
        """Do nothing: a database has logs and copies of its own."""

    def state(self) -> bytes | None:
        """Return the mark of what is in memory."""
        return self._mark

    async def pause(self, seen: object, clock: Clock) -> None:
        """Wait until something else is in memory."""
        del clock
        while self._mark == seen:
            await self._news.wait()

    # --- following

    async def catch_up(self) -> None:
        """Take what others have written; raise StoreUnavailable."""
        await self._turns.take()

    async def _look(self) -> None:
        async with self._one_by_one:
            [head] = await self._postgres.fetch(_MARK)
            if head["mark"] != self._mark:
                self._take(*await self._postgres.read(_read))

    def _take(self, tables: MemoryTables, mark: bytes) -> None:
        if mark != self._mark:
            self._tables, self._mark = tables, mark
            news, self._news = self._news, asyncio.Event()
            news.set()


async def _read(connection: Connection) -> tuple[MemoryTables, bytes]:
    head = await connection.fetchrow(_HEAD)
    if head is None:
        raise StoreUnavailable("bascule_secrets_head has no row: restore it from a backup")
    tables = MemoryTables(Head(head["store_id"], head["epoch"], head["key_id"]))
    for row in await connection.fetch(_SECRETS.all):
        secret = Row(*row)
        tables.secrets[secret.name] = secret
    for row in await connection.fetch(_BINDINGS.all):
        tables.put_binding(Binding(*row))
    tables.removed = {row["name"]: row["version"] for row in await connection.fetch(_REMOVED.all)}
    return tables, head["mark"]


async def _write(connection: Connection, before: MemoryTables, after: MemoryTables) -> bool:
    """Write what differs; say whether anything does."""
    wrote = [
        await _SECRETS.write(connection, _rows(before.secrets), _rows(after.secrets)),
        await _BINDINGS.write(connection, _rows(before.bound), _rows(after.bound)),
        await _REMOVED.write(connection, set(before.removed.items()), set(after.removed.items())),
    ]
    return any(wrote) or before.now != after.now


def _rows(kept: Mapping[str, Row] | Mapping[tuple[str, str, str], Binding]) -> set[Values]:
    return {astuple(row) for row in kept.values()}


@asynccontextmanager
async def open_shared_secrets(
    postgres: Postgres,
    data_dir: Path,
    *,
    key: OuterKey | None = None,
    follow: bool = True,
    **parts: Unpack[SecretParts],
) -> AsyncGenerator[Secrets, None]:
    """Return the secrets that replicas share, under the outer key that they share.

    Without ``key`` it is in the key file of the data directory, which the first replica makes.
    Without ``follow`` this is no replica: a command, which others do not count. Raise KeyUnusable
    where the key is another than the secrets', or missing.
    """
    refuse_open_folder(data_dir)
    keys = Keys(KeyFile(data_dir / KEY_NAME), key)
    presence = Presence(postgres, "secrets")
    store = PostgresSecretStore(postgres, presence)
    async with AsyncExitStack() as stack:
        if follow:
            await stack.enter_async_context(presence.shown())
        await store.open()
        shared = Secrets(store, keys, **parts)
        await shared.start()
        if follow:
            await stack.enter_async_context(following(postgres, CHANNEL, store.catch_up))
        yield shared
