"""``Bridge.connect`` with a node's token: a node in this process that follows a registry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from bascule import Bridge, ConnectedBridge, NodeRules, SessionRefused
from bascule.asgi.guard import GuardedApp
from bascule.asgi.serve import Serving
from bascule.asgi.whoami import identity_route
from bascule.client.http import Unreachable
from bascule.clock import SYSTEM_CLOCK
from bascule.control.api.rest import registry_routes
from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.registry.store import Author
from bascule.errors import InvalidRecord
from bascule.model.kinds import Kind
from bascule.node.approvers import AllowAll
from bascule.node.contract import ToolSession
from bascule.testing import ScriptedServer
from tests.asgi.caller import make_tokens
from tests.children import children
from tests.control.registry.memory_store import MemoryStore
from tests.node.fakes import failed, succeeded
from tests.waits import until

ME = Author("tester")
ECHO = "mcp__a__echo"
ANYTHING = NodeRules()


class Registry:
    """A registry that is served alone, without a node of its own."""

    def __init__(self, service: RegistryService, store: MemoryStore) -> None:
        self.service = service
        self.store = store
        self.tokens = make_tokens()
        routes = [
            *registry_routes(service, clock=SYSTEM_CLOCK),
            identity_route(lambda: service.view.position),
        ]
        self.server = Serving(GuardedApp(routes, self.tokens))
        self.serving = AsyncExitStack()

    async def put(self, kind: Kind, key: str, **fields: Any) -> int:
        return (await self.service.put(kind, key, fields, ME)).revision

    async def server_a(self, *allowed: str, **env: str) -> int:
        command, args = ScriptedServer(behaviours={"echo": "echo", "env": "env"}).command
        stdio = {"command": command, "args": list(args), "env": env}
        return await self.put(
            "server", "a", transport="stdio", stdio=stdio, allowed_tools=list(allowed)
        )

    @asynccontextmanager
    async def node(self, **options: Any) -> AsyncGenerator[ConnectedBridge]:
        token = (await self.tokens.mint("n", "node")).token
        async with Bridge.connect(self.server.url, token=token, **options) as bridge:
            yield bridge


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    store = MemoryStore()
    async with open_registry(store) as service:
        registry = Registry(service, store)
        await registry.put(
            "task",
            "t",
            mcp={"enabled": True, "default_server_ids": ["a"], "allowed_server_ids": ["a"]},
        )
        async with registry.serving:
            await registry.serving.enter_async_context(registry.server)
            yield registry


async def at(bridge: ConnectedBridge, revision: int) -> None:
    """Wait until the node decides by a revision."""
    await listed_at(bridge.session(task="t"), revision)


async def listed_at(session: ToolSession, revision: int) -> None:
    async def reached() -> bool:
        return (await session.tools()).revision >= revision

    await until(reached)


@pytest.mark.requirement("bridge:connect", "registry:single-truth")
async def test_a_node_serves_the_registrys_servers_to_the_registrys_tasks(registry: Registry):
    await registry.server_a("*")
    before = children()
    async with registry.node(rules=ANYTHING) as bridge:
        async with bridge.session(task="t") as session:
            assert ECHO in (await session.tools()).names
            assert succeeded(await session.call(ECHO, {"text": "hello"})).text == "hello"
            assert (await session.explanation(ECHO)).allowed
            cut = await session.call(ECHO, {"text": "x" * 100}, max_output_bytes=20)
            assert cut.truncated is not None
            assert cut.truncated.handle is not None
            assert session.read_output(cut.truncated.handle, 95) == "x" * 5
            assert await session.output(cut.truncated.handle, 95) == "x" * 5
        with pytest.raises(SessionRefused):
            bridge.session(task="t", server_ids=["b"])
        with pytest.raises(InvalidRecord, match="no task"):
            bridge.session(task="another")
    assert children() <= before


@pytest.mark.requirement("policy:connected-registry-rules", "registry:single-truth")
async def test_a_node_follows_the_registry(registry: Registry):
    await registry.server_a("*")
    async with registry.node(rules=ANYTHING) as bridge:
        session = bridge.session(task="t")
        succeeded(await session.call(ECHO, {"text": "a"}))
        await at(bridge, await registry.server_a("other"))
        failed(await session.call(ECHO, {"text": "b"}), "mcp_policy_denied")
        await at(bridge, await registry.server_a("echo"))
        succeeded(await session.call(ECHO, {"text": "c"}))
        revision = (await registry.service.delete("task", "t", ME)).revision
        await listed_at(session, revision)
        failed(await session.call(ECHO, {"text": "d"}), "mcp_policy_denied")


async def test_records_from_elsewhere_start_and_read_nothing_unless_the_node_says_so(
    registry: Registry,
):
    await registry.server_a("*", SECRET="${ENV:MINE}")
    async with registry.node(environ={"MINE": "my own"}) as bridge:
        tools = await bridge.session(task="t").tools()
        assert len(tools) == 0
        assert tools.warnings[0].startswith("a: launch_denied")
    rules = NodeRules(executables=("*",), variables=())
    async with registry.node(environ={"MINE": "my own"}, rules=rules) as bridge:
        assert (await bridge.session(task="t").tools()).names == ()
    rules = NodeRules(executables=("*",), variables=("MINE",))
    async with registry.node(environ={"MINE": "my own"}, rules=rules) as bridge:
        assert ECHO in (await bridge.session(task="t").tools()).names


@pytest.mark.requirement("sync:implausible")
async def test_a_node_serves_on_when_its_registry_is_emptied_until_it_is_told_to_take_that(
    registry: Registry,
):
    await registry.server_a("*")
    async with registry.node(rules=ANYTHING) as bridge:
        session = bridge.session(task="t")
        registry.store.become(MemoryStore())
        await registry.service.catch_up()
        await until(lambda: "restart this node" in (bridge.problem or ""))
        succeeded(await session.call(ECHO, {"text": "still here"}))
        await bridge.accept_registry()
        failed(await session.call(ECHO, {"text": "gone"}), "mcp_invalid_arguments")


async def test_a_node_serves_on_when_its_registry_is_gone(registry: Registry):
    await registry.server_a("*")
    async with registry.node(rules=ANYTHING) as bridge:
        session = bridge.session(task="t")
        succeeded(await session.call(ECHO, {"text": "a"}))
        assert bridge.problem is None
        assert [(one.server_id, one.state) for one in bridge.statuses()] == [("a", "connected")]
        await registry.serving.aclose()
        await until(lambda: bridge.problem)
        succeeded(await session.call(ECHO, {"text": "b"}))


async def test_a_node_that_cannot_read_the_registry_does_not_start(registry: Registry):
    token = (await registry.tokens.mint("n", "node")).token
    await registry.serving.aclose()
    bridge = Bridge.connect(registry.server.url, token=token)
    with pytest.raises(Unreachable):
        await bridge.start()
    await bridge.close()


async def test_a_node_is_started_by_its_first_session_too(registry: Registry):
    await registry.server_a("*")
    token = (await registry.tokens.mint("n", "node")).token
    bridge = Bridge.connect(registry.server.url, token=token, rules=ANYTHING)
    sessions = [bridge.session(task="t") for _ in range(3)]
    outcomes = await asyncio.gather(*(one.call(ECHO, {"text": "a"}) for one in sessions))
    assert [outcome.text for outcome in outcomes] == ["a", "a", "a"]
    await bridge.close()


async def test_a_node_asks_an_approver_of_its_own_and_says_where_there_is_none(
    registry: Registry,
):
    await registry.put("platform", "platform", default_approval="always")
    await registry.server_a("*")
    async with registry.node(rules=ANYTHING) as bridge, bridge.session(task="t") as session:
        refused = failed(await session.call(ECHO, {"text": "x"}), "mcp_approval_required")
        assert "approver=" in refused.error.message
    async with (
        registry.node(rules=ANYTHING, approver=AllowAll()) as bridge,
        bridge.session(task="t") as session,
    ):
        assert succeeded(await session.call(ECHO, {"text": "x"}, approval="return")).text == "x"
