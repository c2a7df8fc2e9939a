"""A bridge over one server that misbehaves on demand, and a session on it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bascule.node.assembly import Bridge
from bascule.node.bridge.session import Session
from tests.flow.servers import PATIENT, any_fault, record


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    """A session on the server ``bad``, connected and listed."""
    async with (
        Bridge.open([record(any_fault())], settings=PATIENT) as bridge,
        bridge.session(server_ids=["bad"]) as session,
    ):
        assert (await session.tools()).warnings == ()
        yield session
