"""Every test of the registry runs over every store: in memory, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

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
async def postgres_store(dsn: str, clock: FakeClock) -> AsyncGenerator[PostgresStore, None]:
    postgres = await Postgres(dsn).open()
    try:
        yield await PostgresStore(postgres, clock=clock).open()
    finally:
        await postgres.close()


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
