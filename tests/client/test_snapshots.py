"""A registry read from elsewhere: whole, of one moment, with what only a node may see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.guard import GuardedApp, route
from bascule.asgi.json import json_response
from bascule.asgi.serve import Serving
from bascule.client.http import ApiClient, ApiError
from bascule.client.snapshots import ATTEMPTS, RegistrySnapshots, Restless
from bascule.clock import SYSTEM_CLOCK
from bascule.control.api.rest import registry_routes
from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.registry.store import Author
from bascule.model.snapshot import Kind, Snapshot
from tests.asgi.caller import make_tokens
from tests.control.registry.memory_store import MemoryStore

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
)


class Registry:
    """A registry that is served, and a node's way to read it."""

    def __init__(self, service: RegistryService, client: ApiClient) -> None:
        self.service = service
        self.source = RegistrySnapshots(client)

    async def put(self, kind: Kind, key: str, **fields: Any) -> int:
        return (await self.service.put(kind, key, fields, ME)).revision


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    tokens = make_tokens()
    token = (await tokens.mint("n", "node")).token
    async with open_registry(MemoryStore()) as service:
        app = GuardedApp(registry_routes(service, clock=SYSTEM_CLOCK), tokens)
        async with Serving(app) as server, ApiClient(server.url, token) as client:
            yield Registry(service, client)


async def test_an_empty_registry_is_a_snapshot(registry: Registry):
    assert await registry.source.snapshot() == registry.service.snapshot()


@pytest.mark.requirement("registry:single-truth")
async def test_a_node_reads_exactly_what_the_registry_holds(registry: Registry):
    for kind, key, fields in RECORDS:
        await registry.put(kind, key, **fields)
    found = await registry.source.snapshot()
    assert found == registry.service.snapshot()
    stdio = found.servers["fs"].stdio
    assert stdio is not None
    assert stdio.env == {"TOKEN": "a literal secret"}
    assert found.tasks["reader"].config == {"colour": "blue"}


async def test_revisions_come_as_they_are_written(registry: Registry):
    before = await registry.source.snapshot()
    stream = await registry.source.watch(before)
    async with aclosing(stream), asyncio.timeout(5):
        revision = await registry.put("task", "a")
        assert await anext(stream) == revision
        revision = await registry.put("task", "b")
        assert await anext(stream) == revision


async def test_a_watch_from_another_store_is_told(registry: Registry):
    elsewhere = Snapshot(store_id="another", revision=0)
    async with aclosing(await registry.source.watch(elsewhere)) as stream, asyncio.timeout(5):
        with pytest.raises(ApiError) as gone:
            await anext(stream)
    assert gone.value.status == 410


class Moving:
    """A registry that changes whenever its tasks are read, so many times."""

    def __init__(self, changes: int) -> None:
        self.changes = changes
        self.revision = 1
        self.lists = 0

    async def servers(self, request: Request) -> Response:
        self.lists += 1
        return self._list("servers")

    async def tasks(self, request: Request) -> Response:
        if self.changes:
            self.changes -= 1
            self.revision += 1
        return self._list("tasks")

    async def others(self, request: Request) -> Response:
        return self._list(request.path_params["kind"])

    async def platform(self, request: Request) -> Response:
        return json_response({"tool_denylist": [f"at_{self.revision}"]})

    def _list(self, name: str) -> Response:
        return json_response({"store_id": "s", "revision": self.revision, name: []})

    async def app(self) -> tuple[GuardedApp, str]:
        tokens = make_tokens()
        made = [
            ("/api/v1/mcp/servers", self.servers),
            ("/admin/api/mcp/tasks", self.tasks),
            ("/admin/api/mcp/platform", self.platform),
            ("/admin/api/mcp/{kind}", self.others),
        ]
        routes = [route(path, one, ["GET"], permission="registry:read") for path, one in made]
        return GuardedApp(routes, tokens), (await tokens.mint("n", "node")).token


@pytest.mark.parametrize("changes", [0, 1, 3])
async def test_a_registry_that_changes_is_read_again_until_it_is_of_one_moment(changes: int):
    moving = Moving(changes)
    app, token = await moving.app()
    async with Serving(app) as server, ApiClient(server.url, token) as client:
        found = await RegistrySnapshots(client).snapshot()
    assert found.revision == 1 + changes
    assert found.platform.tool_denylist == (f"at_{1 + changes}",)
    assert moving.lists == 2 + changes


async def test_a_registry_that_never_holds_still_is_given_up():
    moving = Moving(1_000)
    app, token = await moving.app()
    async with Serving(app) as server, ApiClient(server.url, token) as client:
        with pytest.raises(Restless):
            await RegistrySnapshots(client).snapshot()
    assert moving.lists == 1 + ATTEMPTS
