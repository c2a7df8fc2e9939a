"""An agent's servers from its start to its end, with real processes and real HTTP."""

from __future__ import annotations

import asyncio
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from bascule.errors import InvalidRecord, ServerUnavailable
from bascule.manager import (
    ManagerEvent,
    McpManager,
    McpServerConfig,
    ServerDisabled,
    ServerStateChanged,
    ToolFilter,
    UnknownServer,
)
from bascule.testing import ScriptedHttpServer, ScriptedServer, do, tool
from tests.children import children
from tests.flow.processes import traces
from tests.manager.agents import BROKEN, http, started, states, status_of, stdio
from tests.scale import SOAK
from tests.waits import until


def names(tools: list[Any]) -> list[str]:
    return [each.name for each in tools]


@pytest.mark.requirement(
    "manager:connect-all", "manager:get-tools", "manager:worker:only-connected"
)
async def test_a_broken_server_neither_blocks_nor_fails_the_agent():
    slow = stdio("slow", ScriptedServer(on={"server/discover": "never", "initialize": "never"}))
    async with ScriptedHttpServer() as remote:
        configs = [BROKEN, stdio("local"), slow, http("remote", remote)]
        manager = McpManager(configs, agent_id="main", startup_seconds=1.0)
        async with asyncio.timeout(10):
            await manager.connect_all()
        assert states(manager) == {
            "broken": "down",
            "local": "connected",
            "slow": "connecting",
            "remote": "connected",
        }
        assert names(await manager.get_tools()) == ["local_echo", "remote_echo"]
        await manager.disconnect_all()


async def test_servers_are_connected_all_at_once(tmp_path: Path):
    listed = do("fixed", result={"tools": [tool("echo")]})
    waits = do("gate", path=str(tmp_path / "open"), then=listed)
    server = ScriptedServer(on={"tools/list": waits}, era="legacy", starts=tmp_path / "starts")
    manager = McpManager([stdio("a", server), stdio("b", server), stdio("c", server)])
    connecting = asyncio.create_task(manager.connect_all())
    try:
        await until(lambda: started(tmp_path / "starts") == 3)
        assert set(states(manager).values()) == {"connecting"}
        (tmp_path / "open").touch()
        async with asyncio.timeout(10):
            await connecting
        assert set(states(manager).values()) == {"connected"}
    finally:
        await manager.disconnect_all()


@pytest.mark.requirement("manager:disconnect-all", "manager:shutdown")
async def test_disconnecting_leaves_no_process_and_no_http_session(tmp_path: Path):
    starts = tmp_path / "starts"
    async with ScriptedHttpServer(ScriptedServer(era="legacy")) as remote:
        local = stdio("local", ScriptedServer(starts=starts))
        manager = McpManager([local, http("remote", remote)])
        await manager.connect_all()
        assert len(traces(str(starts))) > 0
        assert len(remote.sessions) == 1
        await manager.disconnect_all()
        assert traces(str(starts)) == []
        assert remote.sessions == []
        assert set(states(manager).values()) == {"disconnected"}
        assert await manager.get_tools() == []


@pytest.mark.requirement("manager:reconnect", "manager:worker:fixed-set")
async def test_a_tool_taken_before_a_reconnect_works_after_it(tmp_path: Path):
    starts = tmp_path / "starts"
    async with McpManager([stdio("a", ScriptedServer(starts=starts))]) as manager:
        [echo] = await manager.get_tools()
        first = set(traces(str(starts)))
        status = await manager.reconnect("a")
        assert status.state == "connected"
        assert first
        assert not first & set(traces(str(starts)))
        assert started(starts) == 2
        assert await echo.call({"text": "still"}) == "still"


async def test_a_reconnect_that_fails_says_why_and_goes_on_trying():
    async with McpManager([BROKEN, stdio("off", enabled=False)]) as manager:
        with pytest.raises(ServerUnavailable, match="command not found"):
            await manager.reconnect("broken")
        assert status_of(manager, "broken").next_attempt_at is not None
        with pytest.raises(UnknownServer, match="no server 'missing'"):
            await manager.reconnect("missing")
        with pytest.raises(ServerDisabled):
            await manager.reconnect("off")


@pytest.mark.requirement("manager:states", "pool:states:seed-words")
async def test_the_states_of_a_connection_are_told_apart():
    seen: list[ManagerEvent] = []
    configs = [stdio("good"), BROKEN, stdio("off", enabled=False)]
    manager = McpManager(configs, agent_id="main", on_event=seen.append)
    assert {s.name: s.phase for s in manager.statuses()} == {
        "good": "disconnected",
        "broken": "disconnected",
        "off": "disconnected",
    }
    await manager.connect_all()
    assert {s.name: s.phase for s in manager.statuses()} == {
        "good": "connected",
        "broken": "failed",
        "off": "disconnected",
    }
    assert states(manager)["off"] == "disabled"
    assert "command not found" in (status_of(manager, "broken").last_error or "")
    await manager.disconnect_all()
    moves = [(e.server, e.old, e.new) for e in seen if isinstance(e, ServerStateChanged)]
    assert [move[1:] for move in moves if move[0] == "good"] == [
        ("disconnected", "connecting"),
        ("connecting", "connected"),
        ("connected", "disconnected"),
    ]
    assert [move[2] for move in moves if move[0] == "broken"] == [
        "connecting",
        "down",
        "disconnected",
    ]
    assert not [move for move in moves if move[0] == "off"]


@pytest.mark.requirement("manager:config:enabled")
async def test_a_disabled_server_is_not_started(tmp_path: Path):
    off = stdio("off", ScriptedServer(starts=tmp_path / "starts"), enabled=False)
    async with McpManager([off]) as manager:
        assert await manager.get_tools() == []
    assert started(tmp_path / "starts") == 0


@pytest.mark.requirement("manager:list-changed", "manager:worker:new-set")
async def test_a_changed_tool_list_is_seen_by_the_next_worker():
    server = ScriptedServer(
        behaviours={"grow": do("change_tools", tools=[tool("grow"), tool("fresh")])},
    )
    async with McpManager([stdio("a", server)]) as manager:
        first = await manager.get_tools()
        assert names(first) == ["a_grow"]
        await first[0].call({})

        async def grown() -> bool:
            return names(await manager.get_tools()) == ["a_fresh", "a_grow"]

        await until(grown)
        assert names(first) == ["a_grow"]
        assert status_of(manager, "a").tools == ("fresh", "grow")


@pytest.mark.requirement("manager:per-agent")
async def test_each_agent_has_its_own_servers_and_connections(tmp_path: Path):
    starts = tmp_path / "starts"
    shared = stdio("a", ScriptedServer(starts=starts))
    async with (
        McpManager([shared], agent_id="one") as one,
        McpManager([shared, stdio("b")], agent_id="two") as two,
    ):
        assert started(starts) == 2
        assert names(await one.get_tools()) == ["a_echo"]
        assert names(await two.get_tools()) == ["a_echo", "b_echo"]
        await one.disconnect_all()
        [echo, _] = await two.get_tools()
        assert await echo.call({"text": "mine"}) == "mine"


@pytest.mark.requirement("manager:interpolation:connect-time")
async def test_references_are_resolved_each_time_a_server_connects():
    environ = {"WORD": "first", "COMMAND": ""}
    command, args = ScriptedServer(behaviours={"env": "env"}).command
    environ["COMMAND"] = command
    local = McpServerConfig(
        name="a",
        transport="stdio",
        command="${COMMAND}",
        args=tuple(args),
        env={"SEEN": "<${WORD}>"},
    )
    async with McpManager([local], environ=environ) as manager:
        [env] = await manager.get_tools()
        assert "<first>" in await env.call({})
        environ["WORD"] = "second"
        assert "<first>" in await env.call({})
        await manager.reconnect("a")
        assert "<second>" in await env.call({})


@pytest.mark.requirement("manager:interpolation:connect-time", "manager:config:http")
async def test_references_are_resolved_in_urls_and_headers():
    async with ScriptedHttpServer() as remote:
        environ = {"PORT": str(remote.port), "SENTRY_TOKEN": "s3cr3t-token"}
        config = McpServerConfig(
            name="sentry",
            transport="http",
            url="http://127.0.0.1:${PORT}/mcp",
            headers={"Authorization": "Bearer ${SENTRY_TOKEN}"},
        )
        async with McpManager([config], environ=environ) as manager:
            assert states(manager) == {"sentry": "connected"}
            assert remote.requests[-1].headers["Authorization"] == "Bearer s3cr3t-token"


@pytest.mark.requirement("manager:interpolation:missing")
async def test_a_missing_variable_fails_that_server_by_name_alone(tmp_path: Path):
    starts = tmp_path / "starts"
    config = stdio("a", ScriptedServer(starts=starts), env={"KEY": "${NOWHERE_SET}"})
    environ: dict[str, str] = {}
    async with McpManager([config, stdio("b")], environ=environ) as manager:
        assert states(manager) == {"a": "down", "b": "connected"}
        assert "NOWHERE_SET" in (status_of(manager, "a").last_error or "")
        assert started(starts) == 0
        environ["NOWHERE_SET"] = "now"
        await manager.reconnect("a")
        assert states(manager)["a"] == "connected"


@pytest.mark.requirement("manager:status-block")
async def test_the_status_block_names_connected_servers_only():
    tools = ToolFilter(exclude=("secret_*",))
    server = ScriptedServer(behaviours={"one": "echo", "two": "echo", "secret_three": "echo"})
    configs = [stdio("a", server, tools=tools), BROKEN, stdio("off", enabled=False), stdio("b")]
    manager = McpManager(configs)
    assert manager.status_block() == ""
    await manager.connect_all()
    assert manager.status_block() == "MCP servers connected: a (2 tools), b (1 tool)"
    await manager.disconnect_all()
    assert manager.status_block() == ""


@pytest.mark.requirement("manager:status-block:calls")
async def test_the_status_block_shows_calls_that_run_and_the_last_that_ended(tmp_path: Path):
    gate = tmp_path / "gate"
    server = ScriptedServer(
        behaviours={
            "bad": do("error", message="no"),
            "echo": "echo",
            "wait": do("gate", path=str(gate)),
        }
    )
    async with McpManager([stdio("a", server)]) as manager:
        tools = {tool.name: tool for tool in await manager.get_tools()}
        await tools["a_echo"].call({"text": "secret words"})
        await tools["a_bad"].call({})
        waiting = asyncio.ensure_future(tools["a_wait"].call({}))
        await until(lambda: manager.running_calls)
        servers, running, last = manager.status_block().splitlines()
        assert servers == "MCP servers connected: a (3 tools)"
        assert re.fullmatch(r"MCP tool calls running: a_wait \(\d+\.\d s\)", running)
        assert re.fullmatch(
            r"MCP tool calls ended last: a_bad \(mcp_tool_error, \S+ s\), a_echo \(ok, \S+ s\)",
            last,
        )
        gate.touch()
        await waiting
        assert not manager.running_calls
        assert manager.last_calls[0].name == "a_wait"
        for _ in range(9):
            await tools["a_echo"].call({"text": "x"})
        assert [call.name for call in manager.last_calls] == ["a_echo"] * 5
        assert "secret" not in manager.status_block()


@pytest.mark.requirement("manager:status-block:calls")
async def test_a_call_whose_caller_left_runs_no_more(tmp_path: Path):
    server = ScriptedServer(behaviours={"wait": do("gate", path=str(tmp_path / "never"))})
    async with McpManager([stdio("a", server)]) as manager:
        [wait] = await manager.get_tools()
        waiting = asyncio.ensure_future(wait.call({}))
        await until(lambda: manager.running_calls)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert not manager.running_calls
        assert "a_wait (cancelled, " in manager.status_block()


async def test_a_server_that_dies_is_connected_again(tmp_path: Path):
    starts = tmp_path / "starts"
    server = ScriptedServer(
        behaviours={"die": do("die", signal="KILL"), "echo": "echo"}, starts=starts
    )
    async with McpManager([stdio("a", server)]) as manager:
        [die, echo] = await manager.get_tools()
        assert (await die.call({})).code == "mcp_outcome_unknown"
        await until(lambda: started(starts) == 2)
        await until(lambda: states(manager)["a"] == "connected")
        assert await echo.call({"text": "back"}) == "back"


def test_a_name_twice_and_a_mistake_are_refused_at_once():
    with pytest.raises(InvalidRecord, match="given twice"):
        McpManager([stdio("a"), stdio("a")])
    with pytest.raises(InvalidRecord, match="transport: is required"):
        McpManager(["only-a-name"])
    with pytest.raises(ValueError, match="a task is for a given bridge"):
        McpManager([], task="t")


async def _cycle(manager: McpManager) -> None:
    await manager.connect_all()
    assert set(states(manager).values()) == {"connected"}
    [local, remote] = await manager.get_tools()
    assert await local.call({"text": "l"}) == "l"
    assert await remote.call({"text": "r"}) == "r"
    await manager.disconnect_all()


def _left_over() -> tuple[int, int, int]:
    return len(children()), threading.active_count(), psutil.Process().num_fds()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"args": "-y pkg"}, "args: must be a list, not a string"),
        ({"url": "https://example.com"}, "url: is not used by transport 'stdio'"),
        ({"transport": "ws"}, "transport: 'ws' is not one of: http, sse, stdio"),
        ({"transport": "streamable-http"}, "url: is required by transport 'http'"),
        ({"tools": {"only": ["a"]}}, "tools.only: unknown field"),
    ],
)
def test_a_configuration_made_in_code_is_held_to_the_rules_of_a_file(
    fields: dict[str, Any], problem: str
):
    given: dict[str, Any] = {"name": "a", "transport": "stdio", "command": "x", **fields}
    with pytest.raises(InvalidRecord) as refused:
        McpManager([McpServerConfig(**given)])
    assert problem in refused.value.problems


@pytest.mark.requirement("manager:disconnect-all")
@pytest.mark.timeout(600)
async def test_many_cycles_leave_no_process_thread_or_descriptor():
    # One thread for what blocks: how many there are otherwise depends on how busy the machine is.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    async with ScriptedHttpServer() as remote:
        manager = McpManager([stdio("local"), http("remote", remote)])
        for _ in range(3):  # what is made once, is made
            await _cycle(manager)
        await until(lambda: remote.connections == 0)
        before = _left_over()
        for _ in range(1000 if SOAK else 30):
            await _cycle(manager)
        await until(lambda: remote.connections == 0)
        await until(lambda: _left_over() <= before)
        assert _left_over() == before
