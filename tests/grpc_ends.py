"""How a test leaves grpc: with nothing under way.

Every test has an event loop of its own, and grpc one thread for all of them: what ends after its
test is told to a loop that is closed, and the next test fails of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from tests.waits import until

#: What grpc has running for a call of a client or of a server.
_TASKS = frozenset(
    {
        "_AioCall._handle_status_once_received",
        "_handle_cancellation_from_core",
        "_handle_exceptions",
        "_schedule_rpc_coro",
    }
)


@pytest.fixture
async def grpc_ends() -> AsyncGenerator[None, None]:
    """Wait at the end until no call is under way; ask for it before anything else."""
    yield
    await until(lambda: not _under_way())


def _under_way() -> list[str]:
    names = (getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks())
    return [name for name in names if name in _TASKS]
