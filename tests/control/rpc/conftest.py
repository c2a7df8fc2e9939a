"""A counter for every test of the gRPC port."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tests.control.rpc.counter import RpcCounter, open_counter
from tests.grpc_ends import grpc_ends as grpc_ends


@pytest.fixture(autouse=True)
async def ends(grpc_ends: None) -> None:
    """Leave no call under way."""


@pytest.fixture
async def counter() -> AsyncGenerator[RpcCounter, None]:
    async with open_counter() as opened:
        yield opened
