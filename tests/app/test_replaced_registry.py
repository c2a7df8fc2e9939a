"""A registry's store is replaced while nodes follow it: of this process, and from elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bascule.app.local_node import LocalSource
from bascule.asgi.guard import GuardedApp
from bascule.asgi.serve import Serving
from bascule.client.http import ApiClient
from bascule.client.rpc import RpcAccess, RpcSource
from bascule.client.snapshots import HistoryParted, RegistrySnapshots
from bascule.clock import SYSTEM_CLOCK
from bascule.control.api.rest import registry_routes
from bascule.control.registry.service import RegistryService, Settings, open_registry
from bascule.control.registry.store import Store
from bascule.control.rpc.guard import RpcGuard
from bascule.control.rpc.nodes import NodeRpc
from bascule.control.rpc.port import RpcPort
from bascule.control.rpc.registry import RegistryRpc
from bascule.model.snapshot import Snapshot
from bascule.model.status import ServerStatus
from bascule.node.changes import Changes
from bascule.node.sync.follower import Follower, SyncSettings
from bascule.node.sync.judging import Remedy, by_restart
from bascule.node.sync.ports import RegistrySource
from tests.asgi.caller import make_tokens
from tests.control.registry.places import PLACES, Place, place_of
from tests.control.registry.test_replaced_store import CASES, rename
from tests.grpc_ends import grpc_ends as grpc_ends
from tests.waits import until

QUICK = SyncSettings(
    poll_seconds=0.05, poll_limit_seconds=0.05, backoff_seconds=0.01, backoff_limit_seconds=0.05
)
WORDS = {
    "emptied": "without any record",
    "older_copy": "back at revision 3",
    "other_copy": "a copy that was written to elsewhere",
    "another_store": "does not say it replaces",
}


class Node(Changes):
    """A ``FollowingNode`` that remembers all it was given."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot
        self.given: list[Snapshot] = []

    async def apply(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.given.append(snapshot)

    def statuses(self) -> tuple[ServerStatus, ...]:
        return ()


class Scene:
    """A registry at revision 6, what will be in its place, and a node that follows it."""

    def __init__(self, place: Place, service: RegistryService, source: RegistrySource) -> None:
        self.place = place
        self.service = service
        self.source = source

    @asynccontextmanager
    async def followed(
        self, *, remedy: Remedy | None = by_restart
    ) -> AsyncGenerator[Follower, None]:
        self.node = Node(await self.source.snapshot())
        follower = Follower(self.source, self.node, settings=QUICK, remedy=remedy)
        following = asyncio.create_task(follower.run())
        try:
            yield follower
        finally:
            following.cancel()
            await asyncio.wait([following])

    async def replace(self, other: Store) -> None:
        await self.place.put(other)
        await self.service.catch_up()

    def is_current(self) -> bool:
        return self.node.snapshot == self.service.snapshot()


@asynccontextmanager
async def over_http(service: RegistryService) -> AsyncGenerator[RegistrySource, None]:
    tokens = make_tokens()
    token = (await tokens.mint("n", "node")).token
    app = GuardedApp(registry_routes(service, clock=SYSTEM_CLOCK), tokens)
    async with Serving(app) as server, ApiClient(server.url, token) as client:
        yield RegistrySnapshots(client)


@asynccontextmanager
async def over_grpc(service: RegistryService) -> AsyncGenerator[RegistrySource, None]:
    tokens = make_tokens()
    access = RpcAccess(token=(await tokens.mint("n", "node")).token)
    guard = RpcGuard(tokens, SYSTEM_CLOCK)
    async with (
        NodeRpc(service, tokens, SYSTEM_CLOCK) as nodes,
        RpcPort([RegistryRpc(service).service(), nodes.service()], guard) as port,
        RpcSource(port.address, access) as source,
    ):
        yield source


WAYS = {"http": over_http, "grpc": over_grpc}


@pytest.fixture(autouse=True)
async def ends(grpc_ends: None) -> None:
    """Leave no call under way."""


@pytest.fixture(params=list(WAYS))
def way(request: pytest.FixtureRequest) -> str:
    return request.param


@asynccontextmanager
async def served(place: Place, way: str) -> AsyncGenerator[Scene, None]:
    """Serve a store to a node that is elsewhere."""
    settings = Settings(poll_seconds=1e6)
    async with (
        open_registry(place.store, settings=settings) as service,
        WAYS[way](service) as source,
    ):
        yield Scene(place, service, source)


@pytest.fixture(params=list(PLACES))
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Place, None]:
    async with place_of(request.param, tmp_path, SYSTEM_CLOCK) as found:
        yield found


@pytest.mark.requirement("sync:implausible")
@pytest.mark.parametrize("case", CASES)
async def test_a_node_elsewhere_serves_on_and_says_what_happened(place: Place, way: str, case: str):
    other = await CASES[case](place)
    async with served(place, way) as scene, scene.followed() as follower:
        had = scene.node.snapshot
        await scene.replace(other)
        await until(lambda: "restart this node" in (follower.problem or ""))
        assert WORDS[case] in (follower.problem or "")
        assert (follower.state, scene.node.snapshot, scene.node.given) == ("degraded", had, [])
        await follower.accept()
        await until(scene.is_current)
        await until(lambda: follower.state == "ok")


@pytest.mark.requirement("sync:implausible")
async def test_who_asks_with_what_it_has_is_told_of_another_history(place: Place, way: str):
    other = await CASES["other_copy"](place)
    async with served(place, way) as scene:
        known = await scene.source.snapshot()
        assert await scene.source.snapshot(known) is known
        await scene.replace(other)
        with pytest.raises(HistoryParted, match=WORDS["other_copy"]):
            await scene.source.snapshot(known)
        assert (await scene.source.snapshot()).revision == 8


@pytest.mark.requirement("sync:store-restored")
async def test_a_node_elsewhere_takes_a_store_that_names_its_predecessor(place: Place, way: str):
    copied = await CASES["older_copy"](place)
    async with served(place, way) as scene, scene.followed() as follower:
        await scene.replace(await place.restored(copied))
        await until(scene.is_current)
        assert scene.node.snapshot.revision == 3
        await rename(place.store, 1)
        await until(scene.is_current)
        await until(lambda: follower.state == "ok")


@pytest.mark.parametrize("case", CASES)
async def test_the_node_of_the_same_process_takes_what_its_store_has(place: Place, case: str):
    other = await CASES[case](place)
    async with open_registry(place.store, settings=Settings(poll_seconds=1e6)) as service:
        scene = Scene(place, service, LocalSource(service, SYSTEM_CLOCK))
        async with scene.followed(remedy=None) as follower:
            await scene.replace(other)
            await until(scene.is_current)
            await until(lambda: follower.state == "ok")
            assert scene.node.snapshot.position == (await other.head()).position
