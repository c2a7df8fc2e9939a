"""A node in another process tells its registry how it and its servers are."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bascule.asgi.guard import GuardedApp, GuardedRoute
from bascule.asgi.serve import Serving
from bascule.asgi.whoami import Position, identity_route
from bascule.client.http import ApiClient
from bascule.client.snapshots import RegistrySnapshots
from bascule.clock import SYSTEM_CLOCK
from bascule.control.api.rest import registry_routes
from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.registry.store import Author
from bascule.model.snapshot import Snapshot
from bascule.model.status import ServerStatus
from bascule.node.assembly import Bridge
from bascule.node.connected_bridge import ConnectedBridge
from bascule.node.sync.ports import Report
from bascule.outbound.rules import NodeRules
from bascule.testing.server import ScriptedServer
from bascule.wire.api.addresses import NODE_REPORT
from bascule.wire.api.nodes import MAX_TEXT
from tests.asgi.caller import make_tokens
from tests.control.registry.memory_store import MemoryStore
from tests.waits import until

ME = Author("tester")


class Site:
    """A registry that is served, for nodes with a token of name n."""

    def __init__(self, service: RegistryService) -> None:
        self.service = service
        self.tokens = make_tokens()

    def routes(self) -> list[GuardedRoute]:
        return [
            *registry_routes(self.service, clock=SYSTEM_CLOCK),
            identity_route(
                lambda: Position(self.service.view.store_id, self.service.view.revision)
            ),
        ]

    @asynccontextmanager
    async def serving(
        self, only: Callable[[GuardedRoute], bool] = lambda _: True
    ) -> AsyncGenerator[str, None]:
        app = GuardedApp([one for one in self.routes() if only(one)], self.tokens)
        async with Serving(app) as server:
            yield server.url

    async def token(self) -> str:
        return (await self.tokens.mint("n", "node")).token

    @asynccontextmanager
    async def node(self, url: str) -> AsyncGenerator[ConnectedBridge, None]:
        rules = NodeRules(executables=("*",))
        async with Bridge.connect(url, token=await self.token(), rules=rules) as bridge:
            yield bridge

    async def state(self) -> str:
        return (await self.service.statuses())["a"].state


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with open_registry(MemoryStore()) as service:
        command, args = ScriptedServer(behaviours={"echo": "echo"}).command
        stdio = {"command": command, "args": list(args)}
        record = {"transport": "stdio", "stdio": stdio, "allowed_tools": ["*"]}
        await service.put("server", "a", record, ME)
        task = {"mcp": {"enabled": True, "default_server_ids": ["a"]}}
        await service.put("task", "t", task, ME)
        yield Site(service)


@pytest.mark.requirement("registry:node-reports")
async def test_a_connected_bridge_tells_how_its_servers_are(site: Site):
    async with site.serving() as url:
        async with site.node(url) as bridge:
            await bridge.session(task="t").tools()

            async def is_connected() -> bool:
                return await site.state() == "connected"

            await until(is_connected)
            [node] = site.service.standing.nodes()
            assert (node.node, node.state, node.revision) == ("n", "ok", 2)
        assert site.service.standing.nodes() == ()


async def test_a_registry_that_takes_no_reports_is_followed_in_silence(site: Site):
    async with site.serving(lambda one: one.path != NODE_REPORT) as url, site.node(url) as bridge:
        session = bridge.session(task="t")
        assert len(await session.tools()) == 1
        revision = (await site.service.put("task", "other", {}, ME)).revision

        async def has_followed() -> bool:
            return (await session.tools()).revision == revision

        await until(has_followed)
        assert bridge.problem is None
    assert site.service.standing.nodes() == ()


def report(**fields: Any) -> Report:
    return Report(1, "ok", (ServerStatus(server_id="a", state="down", **fields),))


async def test_a_registry_that_learns_to_take_reports_is_told_after_it_came_back(site: Site):
    async with site.serving(lambda one: one.path != NODE_REPORT) as url:
        api = ApiClient(url, await site.token())
        source = RegistrySnapshots(api, "n")
        await source.report(report())
        await source.leave()
    async with site.serving() as newer, ApiClient(newer, await site.token()) as client:
        source._api = client
        await source.report(report())
        assert site.service.standing.nodes() == ()
        await source.watch(Snapshot())
        await source.report(report())
        assert [one.node for one in site.service.standing.nodes()] == ["n"]
    await api.close()


async def test_texts_are_cut_before_they_are_sent(site: Site):
    async with site.serving() as url, ApiClient(url, await site.token()) as client:
        await RegistrySnapshots(client, "n").report(report(last_error="x" * 9_999))
        [node] = site.service.standing.nodes()
        assert node.servers[0].last_error == "x" * MAX_TEXT
