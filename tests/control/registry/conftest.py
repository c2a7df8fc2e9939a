"""Every test of the registry runs over every store: in memory, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.control.registry.postgres_store import PostgresStore
from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.registry.sqlite_store import SqliteStore
from bascule.control.registry.store import Store
from bascule.db.postgres import Postgres
from bascule.testing.clock import FakeClock
from tests.control.registry.memory_store import MemoryStore
from tests.control.registry.places import PLACES, Place, place_of
from tests.postgres.databases import database


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@asynccontextmanager
async def postgres(dsn: str) -> AsyncGenerator[Postgres, None]:
    """Open a database."""
    opened = await Postgres(dsn).open()
    try:
        yield opened
    finally:
        await opened.close()


@asynccontextmanager
async def postgres_store(dsn: str, clock: Clock) -> AsyncGenerator[PostgresStore, None]:
    """Open a store; it compacts in batches so small that there are several."""
    async with postgres(dsn) as opened:
        yield await PostgresStore(opened, clock=clock, batch=3).open()


@asynccontextmanager
async def stores(kind: str, folder: Path, count: int) -> AsyncGenerator[list[Store], None]:
    """Open several stores over one file or database: they stand for as many processes."""
    async with AsyncExitStack() as opened:
        if kind == "sqlite":
            path = folder / "registry.db"
            files = [await SqliteStore(path, synchronous="OFF").open() for _ in range(count)]
            for file in files:
                opened.push_async_callback(file.close)
            yield list(files)
        else:
            dsn = await opened.enter_async_context(database())
            several = [postgres_store(dsn, SYSTEM_CLOCK) for _ in range(count)]
            yield [await opened.enter_async_context(one) for one in several]


@pytest.fixture(params=["sqlite", "postgres"])
async def pair(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncGenerator[tuple[Store, Store], None]:
    """Open two stores that stand for two processes; neither hears the other's listeners."""
    async with stores(request.param, tmp_path, 2) as (ours, theirs):
        yield ours, theirs


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> AsyncGenerator[Store, None]:
    if request.param == "memory":
        yield MemoryStore(clock=clock)
    elif request.param == "sqlite":
        opened = await SqliteStore(tmp_path / "registry.db", clock=clock, synchronous="OFF").open()
        try:
            yield opened
        finally:
            await opened.close()
    else:
        async with database() as dsn, postgres_store(dsn, clock) as store:
            yield store


@pytest.fixture(params=list(PLACES))
async def place(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> AsyncGenerator[Place, None]:
    async with place_of(request.param, tmp_path, clock) as found:
        yield found


@pytest.fixture
async def service(store: Store, clock: FakeClock) -> AsyncGenerator[RegistryService, None]:
    async with open_registry(store, clock=clock) as opened:
        yield opened
