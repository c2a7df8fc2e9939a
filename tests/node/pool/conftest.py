"""What the tests of the pool share: a clock that stands still, a peer, and their cleaning up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from bascule.audit.metrics import Metrics
from bascule.model.server import ServerRecord
from bascule.model.snapshot import Snapshot
from bascule.node.pool.connection import Connection
from bascule.node.pool.pool import Pool
from bascule.node.settings import NodeSettings
from bascule.testing import FakeClock
from tests.node.pool.fake_channel import FakeOpener, FakePeer, our_tasks, record
from tests.waits import SOON_SECONDS

Make = Callable[..., Connection]
MakePool = Callable[..., Pool]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def peer() -> FakePeer:
    return FakePeer()


@pytest.fixture
async def changes() -> list[int]:
    """One entry per changed tool list."""
    return []


@pytest.fixture
async def make(clock: FakeClock, peer: FakePeer, changes: list[int]) -> AsyncGenerator[Make]:
    """Make a connection to the peer; whatever it started is gone at the end of the test."""
    made: list[Connection] = []
    before = our_tasks()

    def changed() -> int:
        changes.append(len(changes) + 1)
        return len(changes)

    def build(server: ServerRecord | None = None, **settings: Any) -> Connection:
        connection = Connection(
            server or record(),
            peer.open,
            NodeSettings(**settings),
            clock,
            Metrics(),
            on_change=changed,
        )
        made.append(connection)
        return connection

    yield build
    peer.may_open.set()
    peer.may_close.set()
    async with asyncio.timeout(SOON_SECONDS):
        for connection in made:
            await connection.close()
    assert our_tasks() <= before
    assert peer.alive == 0


@pytest.fixture
async def make_pool(clock: FakeClock) -> AsyncGenerator[MakePool]:
    """Make a pool over fake peers, one per server id."""
    made: list[tuple[Pool, FakeOpener]] = []
    before = our_tasks()

    def build(peers: dict[str, FakePeer], **settings: Any) -> Pool:
        opener = FakeOpener(**peers)
        pool = Pool(opener, settings=NodeSettings(**settings), clock=clock)
        made.append((pool, opener))
        return pool

    yield build
    async with asyncio.timeout(SOON_SECONDS):
        for pool, opener in made:
            for peer in opener.peers.values():
                peer.may_open.set()
                peer.may_close.set()
            await pool.close()
            assert [peer.alive for peer in opener.peers.values() if peer.alive] == []
    assert our_tasks() <= before


def snapshot(*records: ServerRecord) -> Snapshot:
    return Snapshot(servers={server.server_id: server for server in records})
