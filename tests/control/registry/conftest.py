"""Every test of the registry runs over the store in memory and over the one on SQLite."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.registry.sqlite_store import SqliteStore
from bascule.control.registry.store import Store
from bascule.testing.clock import FakeClock
from tests.control.registry.memory_store import MemoryStore
from tests.control.registry.places import PLACES, Place, place_of


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["memory", "sqlite"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> AsyncGenerator[Store, None]:
    if request.param == "memory":
        yield MemoryStore(clock=clock)
        return
    opened = await SqliteStore(tmp_path / "registry.db", clock=clock, synchronous="OFF").open()
    try:
        yield opened
    finally:
        await opened.close()


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
