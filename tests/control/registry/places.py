"""Where a store is kept, and what may befall it there while a process serves it.

Each implementation of ``Store`` has a place: a copy of it can be made, written to elsewhere, and
put where the store was.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Protocol

from bascule.clock import Clock
from bascule.control.registry.postgres_store import PostgresStore
from bascule.control.registry.sqlite_store import SqliteStore, restore
from bascule.control.registry.store import Store
from bascule.db.driver import Connection
from bascule.db.postgres import Postgres
from tests.control.registry.memory_store import MemoryStore
from tests.postgres.databases import database


class Place(Protocol):
    """A store that is served, and its place."""

    @property
    def store(self) -> Store:
        """Return the store that is served."""
        ...

    async def copy(self) -> Store:
        """Return a copy of it as it is now, at another place."""
        ...

    async def empty(self) -> Store:
        """Return a store that has nothing, at another place."""
        ...

    async def restored(self, copied: Store) -> Store:
        """Return what restoring a copy gives: another store, which names this one."""
        ...

    async def put(self, other: Store) -> None:
        """Put another store in its place, beneath whoever has it open."""
        ...


class MemoryPlace:
    """A store in memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.store = MemoryStore(clock=clock)

    async def copy(self) -> MemoryStore:
        """Return a copy."""
        copied = MemoryStore(clock=self._clock)
        copied.become(self.store)
        return copied

    async def empty(self) -> MemoryStore:
        """Return a store that has nothing."""
        return MemoryStore(clock=self._clock)

    async def restored(self, copied: Store) -> MemoryStore:
        """Return a copy as another store."""
        assert isinstance(copied, MemoryStore)
        restored = MemoryStore(clock=self._clock)
        restored.become(copied, predecessor=(await self.store.head()).store_id)
        return restored

    async def put(self, other: Store) -> None:
        """Put another store in its place."""
        assert isinstance(other, MemoryStore)
        self.store.become(other)


class SqlitePlace:
    """A store in a file; others are in files beside it."""

    def __init__(self, folder: Path, clock: Clock, opened: AsyncExitStack) -> None:
        self._folder = folder
        self._clock = clock
        self._opened = opened
        self._paths: dict[Store, Path] = {}

    async def open(self) -> SqlitePlace:
        """Open the store."""
        self.store = await self.empty()
        return self

    async def copy(self) -> SqliteStore:
        """Return a copy."""
        path = self._new_path()
        await self.store.backup(path)
        return await self._open(path)

    async def empty(self) -> SqliteStore:
        """Return a store that has nothing."""
        return await self._open(self._new_path())

    async def restored(self, copied: Store) -> SqliteStore:
        """Return a copy as another store."""
        path = self._new_path()
        await self.store.backup(path)
        await asyncio.to_thread(restore, self._paths[copied], path)
        return await self._open(path)

    async def put(self, other: Store) -> None:
        """Write all of another store over it, as ``.restore`` of SQLite's shell does."""
        await asyncio.to_thread(_overwrite, self._paths[self.store], self._paths[other])

    def _new_path(self) -> Path:
        return self._folder / f"{len(self._paths)}.db"

    async def _open(self, path: Path) -> SqliteStore:
        store = await SqliteStore(path, clock=self._clock, synchronous="OFF").open()
        self._opened.push_async_callback(store.close)
        self._paths[store] = path
        return store


def _overwrite(target: Path, source: Path) -> None:
    with closing(sqlite3.connect(source)) as kept, closing(sqlite3.connect(target)) as live:
        kept.backup(live)


class PostgresPlace:
    """A store in a database; others are in databases beside it."""

    def __init__(self, clock: Clock, opened: AsyncExitStack) -> None:
        self._clock = clock
        self._opened = opened
        self._databases: dict[Store, Postgres] = {}

    async def open(self) -> PostgresPlace:
        """Open the store."""
        self.store = await self.empty()
        return self

    async def copy(self) -> PostgresStore:
        """Return a copy."""
        copied = await self.empty()
        await self._overwrite(self._databases[copied], self._databases[self.store])
        return copied

    async def empty(self) -> PostgresStore:
        """Return a store that has nothing."""
        dsn = await self._opened.enter_async_context(database())
        postgres = await Postgres(dsn).open()
        self._opened.push_async_callback(postgres.close)
        store = await PostgresStore(postgres, clock=self._clock, batch=3).open()
        self._databases[store] = postgres
        return store

    async def restored(self, copied: Store) -> PostgresStore:
        """Return a copy as another store."""
        restored = await self.empty()
        await self._overwrite(self._databases[restored], self._databases[copied])
        replaced = (await self.store.head()).store_id
        query = "UPDATE registry_head SET store_id = $1, predecessor = $2"
        await self._databases[restored].statement(query, secrets.token_hex(8), replaced)
        return restored

    async def put(self, other: Store) -> None:
        """Write all of another store over it, as a dump that is read back does."""
        await self._overwrite(self._databases[self.store], self._databases[other])

    async def _overwrite(self, target: Postgres, source: Postgres) -> None:
        async def dumped(connection: Connection) -> dict[str, list[tuple[object, ...]]]:
            return {
                table: [tuple(row) for row in await connection.fetch(f"TABLE {table}")]
                for table in _TABLES
            }

        rows = await source.read(dumped)

        async def work(connection: Connection) -> None:
            for table in _TABLES:
                await connection.execute(f"DELETE FROM {table}")  # noqa: S608 - names of ours
                if rows[table]:
                    places = ", ".join(f"${place + 1}" for place in range(len(rows[table][0])))
                    insert = f"INSERT INTO {table} VALUES ({places})"  # noqa: S608 - names of ours
                    await connection.executemany(insert, rows[table])

        await target.write(work)


_TABLES = ("registry_head", "registry_objects", "registry_revisions", "registry_changes")


@asynccontextmanager
async def place_of(kind: str, folder: Path, clock: Clock) -> AsyncGenerator[Place, None]:
    """Open a place of a kind (a name in ``PLACES``); whatever was opened there is closed."""
    async with AsyncExitStack() as opened:
        yield await PLACES[kind](folder, clock, opened)


async def _memory(_folder: Path, clock: Clock, _opened: AsyncExitStack) -> Place:
    return MemoryPlace(clock)


async def _sqlite(folder: Path, clock: Clock, opened: AsyncExitStack) -> Place:
    return await SqlitePlace(folder, clock, opened).open()


async def _postgres(_folder: Path, clock: Clock, opened: AsyncExitStack) -> Place:
    return await PostgresPlace(clock, opened).open()


PLACES = {"memory": _memory, "sqlite": _sqlite, "postgres": _postgres}
