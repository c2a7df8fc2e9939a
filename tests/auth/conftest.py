"""Every kind of store that tokens can be kept in, each empty."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from bascule.auth.memory_token_store import MemoryTokenStore, TokenStore
from bascule.auth.postgres_token_store import PostgresTokenStore
from bascule.auth.token_record import TokenKeys
from bascule.auth.token_store import FILE_NAME, SqliteTokenStore
from bascule.db.postgres import Postgres
from tests.asgi.caller import KEY
from tests.postgres.databases import database


@asynccontextmanager
async def opened_store(kind: str, folder: Path) -> AsyncGenerator[TokenStore, None]:
    async with AsyncExitStack() as stack:
        if kind == "memory":
            yield MemoryTokenStore()
        elif kind == "sqlite":
            kept = await SqliteTokenStore(folder / FILE_NAME, TokenKeys(KEY)).open()
            stack.push_async_callback(kept.close)
            yield kept
        else:
            postgres = await Postgres(await stack.enter_async_context(database())).open()
            stack.push_async_callback(postgres.close)
            yield await PostgresTokenStore(postgres).open()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[TokenStore, None]:
    """A store of every kind."""
    async with opened_store(request.param, tmp_path_factory.mktemp("tokens")) as one:
        yield one


@pytest.fixture(params=["memory", "postgres"])
async def certain_store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncGenerator[TokenStore, None]:
    """A store that knows its own state at once, while a file's is unsure for a moment."""
    async with opened_store(request.param, tmp_path) as one:
        yield one
