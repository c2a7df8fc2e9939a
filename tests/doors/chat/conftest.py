"""A served chat door for each test."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tests.doors.chat.site import Site, serving


@pytest.fixture
async def site() -> AsyncGenerator[Site, None]:
    async with serving(Site()) as served:
        yield served
