"""Every kind of place that secrets can be kept in."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tests.control.keeping_secrets import Files, House, Shared
from tests.postgres.databases import database


@pytest.fixture(params=["sqlite", "postgres"])
async def house(request: pytest.FixtureRequest) -> AsyncGenerator[House, None]:
    """A place of every kind, empty."""
    if request.param == "sqlite":
        yield Files()
        return
    async with database() as dsn:
        yield Shared(dsn)
