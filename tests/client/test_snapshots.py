"""A registry read from elsewhere: whole, of one moment, with what only a node may see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from bascule.app.local_node import LocalSource
from bascule.asgi.guard import GuardedApp
from bascule.asgi.serve import Serving
from bascule.client.http import ApiClient, ApiError
from bascule.client.snapshots import RegistrySnapshots
from bascule.clock import SYSTEM_CLOCK
from bascule.control.api.rest import registry_routes
from bascule.control.registry.service import RegistryService, Settings, open_registry
from bascule.control.registry.store import Author, Change, View
from bascule.model.kinds import KINDS, Kind
from bascule.model.snapshot import Snapshot
from bascule.model.status import ServerStatus
from bascule.node.changes import Changes
from bascule.node.sync.follower import Follower
from bascule.node.sync.ports import RegistrySource
from tests.asgi.caller import make_tokens
from tests.control.registry.memory_store import MemoryStore
from tests.waits import SOON_SECONDS

ME = Author("tester")
RECORDS: tuple[tuple[Kind, str, dict[str, Any]], ...] = (
    (
        "server",
        "fs",
        {
            "transport": "stdio",
            "allowed_tools": ["read_*"],
            "stdio": {"command": "fs", "env": {"TOKEN": "a literal secret"}},
        },
    ),
    ("server", "web", {"transport": "http", "http": {"url": "https://example.org/mcp"}}),
    (
        "task",
        "reader",
        {
            "config": {"mcp.enabled": "true", "mcp.default_server_ids": "fs", "colour": "blue"},
            "description": "Reads.",
        },
    ),
    ("task", "typed", {"mcp": {"enabled": True, "tool_allowlist": []}}),
    ("profile", "day", {"default_server_ids": ["fs"], "environments": {"prod": {}}}),
    ("platform", "platform", {"tool_denylist": ["delete_*"]}),
    ("backend", "local", {"base_url": "https://models.example.org/v1"}),
    ("user", "alice", {"groups": ["writers"], "own": {"read_only": True}}),
)


class Counted:
    """An application that notes every request it is sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.requests: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self.requests.append(f"{scope['method']} {scope['path']}")
        await self._app(scope, receive, send)


class Registry:
    """A registry that is served, and a node's way to read it."""

    def __init__(self, service: RegistryService, client: ApiClient, counted: Counted) -> None:
        self.service = service
        self.source = RegistrySnapshots(client)
        self.counted = counted

    async def put(self, kind: Kind, key: str, **fields: Any) -> int:
        return (await self.service.put(kind, key, fields, ME)).revision

    async def fill(self) -> None:
        for kind, key, fields in RECORDS:
            await self.put(kind, key, **fields)


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    tokens = make_tokens()
    token = (await tokens.mint("n", "node")).token
    async with open_registry(MemoryStore()) as service:
        counted = Counted(GuardedApp(registry_routes(service, clock=SYSTEM_CLOCK), tokens))
        async with Serving(counted) as server, ApiClient(server.url, token) as client:
            yield Registry(service, client, counted)


async def test_an_empty_registry_is_a_snapshot(registry: Registry):
    assert await registry.source.snapshot() == registry.service.snapshot()


@pytest.mark.requirement("registry:single-truth")
async def test_a_node_reads_exactly_what_the_registry_holds(registry: Registry):
    await registry.fill()
    found = await registry.source.snapshot()
    assert registry.counted.requests == ["GET /api/v1/mcp/snapshot"]
    assert found == registry.service.snapshot()
    stdio = found.servers["fs"].stdio
    assert stdio is not None
    assert stdio.env == {"TOKEN": "a literal secret"}
    assert found.tasks["reader"].config == {"colour": "blue"}


async def test_a_snapshot_that_is_known_is_not_sent_again(registry: Registry):
    await registry.fill()
    known = await registry.source.snapshot()
    assert await registry.source.snapshot(known) is known
    await registry.put("task", "more")
    assert await registry.source.snapshot(known) == registry.service.snapshot()


async def test_changes_come_whole_and_lead_to_what_the_registry_holds(registry: Registry):
    found = await registry.source.snapshot()
    async with (
        aclosing(await registry.source.watch(found)) as stream,
        asyncio.timeout(SOON_SECONDS),
    ):
        for kind, key, fields in RECORDS:
            await registry.put(kind, key, **fields)
            found = found.after(await anext(stream))
            assert found == registry.service.snapshot()
        await registry.service.delete("server", "web", ME)
        found = found.after(await anext(stream))
        assert found == registry.service.snapshot()


async def test_a_revision_of_several_kinds_is_one_change(registry: Registry):
    await registry.fill()
    found = await registry.source.snapshot()
    async with (
        aclosing(await registry.source.watch(found)) as stream,
        asyncio.timeout(SOON_SECONDS),
    ):
        await registry.service.rollback(1, ME)
        change = await anext(stream)
    assert {kind for kind, _ in change.records} == set(KINDS)
    assert found.after(change) == registry.service.snapshot()


class Node(Changes):
    """A ``FollowingNode`` that says when it has reached a revision."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot
        self.moved = asyncio.Event()

    async def apply(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.moved.set()

    def statuses(self) -> tuple[ServerStatus, ...]:
        return ()

    async def reach(self, revision: int) -> None:
        while self.snapshot.revision != revision:
            self.moved.clear()
            await self.moved.wait()


@asynccontextmanager
async def following(node: Node, source: RegistrySource) -> AsyncGenerator[None]:
    task = asyncio.create_task(Follower(source, node).run())
    try:
        async with asyncio.timeout(10):
            yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.requirement("sync:event-refresh")
async def test_a_record_that_is_put_reaches_a_node_elsewhere_in_one_message(registry: Registry):
    node = Node(await registry.source.snapshot())
    registry.counted.requests.clear()
    async with following(node, registry.source):
        await node.reach(await registry.put("task", "first"))
        await registry.fill()
        await node.reach(registry.service.view.revision)
    assert node.snapshot == registry.service.snapshot()
    assert registry.counted.requests == ["GET /api/v1/mcp/snapshot", "GET /api/v1/mcp/watch"]


class CountedStore(MemoryStore):
    """A store that notes what is read from it."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    async def view(self, revision: int | None = None) -> View:
        self.reads.append("view")
        return await super().view(revision)

    async def changes(self, since: int, limit: int = 256) -> tuple[Change, ...]:
        self.reads.append("changes")
        return await super().changes(since, limit)


class CountedSource(LocalSource):
    """A local source that notes how often the whole is asked for."""

    wholes = 0

    async def snapshot(self, known: Snapshot | None = None) -> Snapshot:
        self.wholes += 1
        return await super().snapshot(known)


@pytest.mark.requirement("sync:event-refresh")
async def test_a_record_that_is_put_reaches_a_node_in_this_process_without_a_read():
    store = CountedStore()
    async with open_registry(store, settings=Settings(poll_seconds=1000)) as service:
        source = CountedSource(service, SYSTEM_CLOCK)
        node = Node(service.snapshot())
        async with following(node, source):
            await node.reach((await service.put("task", "first", {}, ME)).revision)
            store.reads.clear()
            await node.reach((await service.put("task", "second", {}, ME)).revision)
            assert (store.reads, source.wholes) == ([], 1)
        assert node.snapshot == service.snapshot()


async def test_a_watch_from_another_store_is_told(registry: Registry):
    elsewhere = Snapshot(store_id="another", revision=0)
    async with (
        aclosing(await registry.source.watch(elsewhere)) as stream,
        asyncio.timeout(SOON_SECONDS),
    ):
        with pytest.raises(ApiError) as gone:
            await anext(stream)
    assert gone.value.status == 410
