"""Databases for tests: one each, gone when the test is."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import asyncpg

from tests.postgres.server import server_dsn

_numbers = itertools.count()


@asynccontextmanager
async def database(more: str = "") -> AsyncGenerator[str, None]:
    """Make an empty database, with ``more`` options of CREATE DATABASE; yield its DSN."""
    server = server_dsn()
    name = f"bascule_{os.getpid()}_{next(_numbers)}"
    await _say(server, f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY wal_log {more}")
    try:
        yield urlsplit(server)._replace(path=f"/{name}").geturl()
    finally:
        await _say(server, f"DROP DATABASE {name} WITH (FORCE)")


async def _say(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
