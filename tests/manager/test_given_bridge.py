"""An agent on somebody else's bridge: the registry rules, the manager only chooses."""

from __future__ import annotations

from typing import Any

import pytest

from bascule import Bridge, Server, ServerRecord
from bascule.asgi.serve import Serving
from bascule.manager import McpManager, McpServerConfig, ToolFilter
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskRecord
from bascule.outbound.rules import NodeRules
from bascule.testing import FakeClock, ScriptedServer, do
from bascule.wire.records import decode
from tests.doors.door import Door
from tests.manager.agents import states, status_of
from tests.node.fakes import text
from tests.waits import until


def record(server_id: str, **fields: Any) -> ServerRecord:
    server = ScriptedServer(
        behaviours={"echo": "echo", "other": "echo", "big": do("big", bytes=60_000)}
    )
    command, args = server.command
    return Server.stdio(server_id, command, *args, **fields)


async def test_names_refer_to_servers_of_the_bridge_and_its_records_rule():
    async with Bridge.open([record("a", allow=["echo", "big"]), record("b")]) as bridge:
        async with McpManager(["a"], bridge=bridge) as manager:
            assert states(manager) == {"a": "connected"}
            tools = {tool.name: tool for tool in await manager.get_tools()}
            assert list(tools) == ["a_big", "a_echo"]
            assert await tools["a_echo"].call({"text": "hi"}) == "hi"
            assert len((await tools["a_big"].call()).encode()) <= 50_000
        assert {s.server_id: s.state for s in bridge.statuses()} == {
            "a": "connected",
            "b": "disconnected",
        }


async def test_reconciling_changes_which_servers_are_used_and_ends_none():
    async with (
        Bridge.open([record("a"), record("b")]) as bridge,
        McpManager(["a"], bridge=bridge) as manager,
    ):
        tools = ToolFilter(include=("echo",))
        await manager.reconcile([McpServerConfig(name="b", tools=tools)])
        assert [tool.name for tool in await manager.get_tools()] == ["b_echo"]
        assert {s.state for s in bridge.statuses()} == {"connected"}
        assert (await manager.reconnect("b")).state == "connected"


async def test_a_server_the_bridge_does_not_have_fails_alone_with_the_reason():
    async with (
        Bridge.open([record("a")]) as bridge,
        McpManager(["a", "missing"], bridge=bridge) as manager,
    ):
        assert states(manager) == {"a": "connected", "missing": "down"}
        assert status_of(manager, "missing").last_error
        assert len(await manager.get_tools()) == 3


async def test_a_server_outside_the_task_is_refused_and_the_agent_goes_on():
    plain = {"task_id": "t", "mcp": {"enabled": True, "allowed_server_ids": ["a"]}}
    task = decode(TaskRecord, plain)[0]
    servers = {one.server_id: one for one in (record("a"), record("b"))}
    snapshot = Snapshot(store_id="s", revision=1, servers=servers, tasks={"t": task})
    async with (
        Bridge.open(snapshot) as bridge,
        McpManager(["a", "b"], bridge=bridge, task="t") as manager,
    ):
        assert states(manager) == {"a": "connected", "b": "down"}


def test_options_that_would_have_no_effect_are_refused():
    bridge = Bridge.open([])
    with pytest.raises(ValueError, match="rules"):
        McpManager([], bridge=bridge, rules=NodeRules())


async def test_an_agent_works_over_a_registry_elsewhere_and_sees_it_go_and_come_back():
    door, clock = Door(), FakeClock()
    door.world.caller.answers("read", text("from elsewhere"))
    server = Serving(door.app)
    async with server:
        token, port = await door.minted("reader"), server.port
        bridge = Bridge.connect(server.url, token=token)
        manager = McpManager(["fs", "other"], bridge=bridge, clock=clock)
        await manager.connect_all()
        assert states(manager) == {"fs": "connected", "other": "down"}
        [read] = await manager.get_tools()
        assert (read.name, await read.call({"text": "x"})) == ("fs_read", "from elsewhere")
    assert (await read.call({"text": "x"})).is_error
    assert await manager.get_tools() == []
    await clock.advance(2)
    assert status_of(manager, "fs").phase == "failed"
    async with Serving(door.app, "127.0.0.1", port):
        await clock.advance(11)
        await until(lambda: states(manager)["fs"] == "connected")
        assert await read.call({"text": "x"}) == "from elsewhere"
        await manager.disconnect_all()
        await bridge.close()
