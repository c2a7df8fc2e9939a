"""A new configuration for a running agent: what is new, gone, changed and left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bascule.errors import InvalidRecord
from bascule.manager import McpManager, Reconciled, ToolFilter
from bascule.testing import ScriptedServer
from tests.flow.processes import traces
from tests.manager.agents import BROKEN, started, states, stdio


@pytest.mark.requirement(
    "manager:reload:new", "manager:reload:removed", "manager:reload:changed",
    "manager:reload:unchanged", "manager:hot-reload",
)  # fmt: skip
async def test_each_kind_of_change_touches_its_own_servers_alone(tmp_path: Path):
    files = {name: tmp_path / name for name in ("same", "gone", "moved", "new")}
    servers = {name: stdio(name, ScriptedServer(starts=path)) for name, path in files.items()}
    same, gone, moved, new = servers.values()
    async with McpManager([same, gone, moved]) as manager:
        process = traces(str(files["same"]))
        plan = await manager.reconcile([new, same, replace(moved, env={"X": "1"})])
        assert plan == Reconciled(
            added=("new",), removed=("gone",), changed=("moved",), unchanged=("same",)
        )
        assert {name: started(path) for name, path in files.items()} == {
            "same": 1,
            "gone": 1,
            "moved": 2,
            "new": 1,
        }
        assert traces(str(files["same"])) == process
        assert traces(str(files["gone"])) == []
        assert list(states(manager)) == ["new", "same", "moved"]
        assert set(states(manager).values()) == {"connected"}


@pytest.mark.requirement("manager:worker:fixed-set", "manager:worker:new-set")
async def test_a_worker_keeps_its_tools_and_the_next_one_gets_the_new_set():
    one = stdio("one", ScriptedServer(behaviours={"a": "echo"}))
    other = stdio("one", ScriptedServer(behaviours={"a": "echo", "b": "echo"}))
    async with McpManager([one, stdio("two")]) as manager:
        [a, echo] = worker = await manager.get_tools()
        await manager.reconcile([other])
        assert [tool.name for tool in worker] == ["one_a", "two_echo"]
        assert await a.call({"text": "still here"}) == "still here"
        removed = await echo.call({"text": "x"})
        assert (removed.is_error, removed.code) == (True, "mcp_unavailable")
        assert "was removed" in removed
        assert [tool.name for tool in await manager.get_tools()] == ["one_a", "one_b"]


async def test_a_change_of_the_filter_alone_keeps_the_connection(tmp_path: Path):
    starts = tmp_path / "starts"
    server = ScriptedServer(behaviours={"a": "echo", "b": "echo"}, starts=starts)
    async with McpManager([stdio("s", server)]) as manager:
        [a, b] = await manager.get_tools()
        await manager.reconcile([stdio("s", server, tools=ToolFilter(exclude=("b",)))])
        assert started(starts) == 1
        assert [tool.name for tool in await manager.get_tools()] == ["s_a"]
        assert await a.call({"text": "x"}) == "x"
        assert (await b.call({"text": "x"})).code == "mcp_policy_denied"


async def test_a_server_is_disabled_and_enabled_again(tmp_path: Path):
    starts = tmp_path / "starts"
    config = stdio("s", ScriptedServer(starts=starts))
    async with McpManager([config]) as manager:
        [echo] = await manager.get_tools()
        await manager.reconcile([replace(config, enabled=False)])
        assert (states(manager), traces(str(starts))) == ({"s": "disabled"}, [])
        assert "is disabled" in await echo.call({"text": "x"})
        await manager.reconcile([config])
        assert states(manager) == {"s": "connected"}
        assert await echo.call({"text": "back"}) == "back"


async def test_a_configuration_that_cannot_be_used_changes_nothing():
    async with McpManager([stdio("s")]) as manager:
        with pytest.raises(InvalidRecord):
            await manager.reconcile([stdio("t"), replace(BROKEN, command="${")])
        assert states(manager) == {"s": "connected"}


async def test_what_is_reconciled_before_the_start_is_what_starts():
    manager = McpManager([BROKEN])
    await manager.reconcile([stdio("s")])
    assert states(manager) == {"s": "disconnected"}
    async with manager:
        assert states(manager) == {"s": "connected"}


async def test_the_old_configuration_may_be_given_as_the_seed_gives_it(tmp_path: Path):
    one, two = stdio("one", ScriptedServer(starts=tmp_path / "one")), stdio("two")
    async with McpManager([one]) as manager:
        plan = await manager.reconcile([one], [one, two])
        assert plan == Reconciled(added=("two",), unchanged=("one",))
        assert started(tmp_path / "one") == 1


async def test_what_means_the_same_is_unchanged_however_it_was_written(tmp_path: Path):
    config = stdio("one", ScriptedServer(starts=tmp_path / "one"))
    async with McpManager([config]) as manager:
        loose: Any = {"args": list(config.args), "command": Path(config.command or "")}
        plan = await manager.reconcile([replace(config, **loose)])
        assert plan == Reconciled(unchanged=("one",))
        assert started(tmp_path / "one") == 1
