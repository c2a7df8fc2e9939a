"""A desk for every test of the registry's API."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tests.control.api.desk import Desk, open_desk


@pytest.fixture
async def desk() -> AsyncGenerator[Desk, None]:
    async with open_desk() as opened:
        yield opened
