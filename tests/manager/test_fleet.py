"""All agents of a file: started, followed when the file changes, changed through it, ended."""

from __future__ import annotations

import asyncio
import os
import stat
import tomllib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bascule.errors import InvalidRecord
from bascule.manager import (
    AgentFleet,
    AgentsFile,
    ConfigRefused,
    ConfigReloaded,
    ManagerEvent,
    UnknownServer,
)
from bascule.manager.edits import Inherited, ServerExists
from bascule.manager.file import FileBusy, NotWritten, UnknownAgent
from bascule.model.json import is_array, is_object
from bascule.testing import FakeClock, ScriptedServer
from tests.flow.processes import traces
from tests.manager.agents import entry, put, started, states, text_of, write
from tests.waits import until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agents.toml"


@asynccontextmanager
async def followed(path: Path, seen: list[ManagerEvent]) -> AsyncGenerator[AgentFleet]:
    """Run a fleet that follows its file."""
    async with AgentFleet(path, on_event=seen.append) as fleet:
        following = asyncio.create_task(fleet.follow())
        try:
            yield fleet
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


def mode_and_neighbours(path: Path) -> tuple[int, list[str]]:
    return stat.S_IMODE(path.stat().st_mode), [one.name for one in path.parent.iterdir()]


def of(seen: list[ManagerEvent], kind: type[Any]) -> list[Any]:
    return [event for event in seen if isinstance(event, kind)]


@pytest.mark.requirement("manager:per-agent", "manager:config:defaults")
async def test_every_agent_has_a_manager_of_its_own(path: Path, tmp_path: Path):
    shared = entry("shared", ScriptedServer(starts=tmp_path / "starts"))
    write(path, {"id": "one"}, {"id": "two", "mcp": [entry("own")]}, defaults=[shared])
    async with AgentFleet(path) as fleet:
        assert states(fleet.manager("one")) == {"shared": "connected"}
        assert states(fleet.manager("two")) == {"shared": "connected", "own": "connected"}
        assert started(tmp_path / "starts") == 2
        assert [(a.agent_id, a.servers, a.connected, a.tools) for a in fleet.agents()] == [
            ("one", 1, 1, 1),
            ("two", 2, 2, 2),
        ]
        with pytest.raises(UnknownAgent, match=r"no agent 'three' \(known: one, two\)"):
            fleet.manager("three")
    assert traces(str(tmp_path / "starts")) == []


@pytest.mark.requirement("manager:hot-reload", "manager:reload:new", "manager:reload:removed")
async def test_a_file_that_is_replaced_is_followed(path: Path, tmp_path: Path):
    seen: list[ManagerEvent] = []
    kept = entry("kept", ScriptedServer(starts=tmp_path / "kept"))
    gone = entry("gone", ScriptedServer(starts=tmp_path / "gone"))
    write(path, {"id": "main", "mcp": [kept, gone]}, {"id": "old", "mcp": [entry("x")]})
    async with followed(path, seen) as fleet:
        old = fleet.manager("old")
        write(
            tmp_path / "next", {"id": "main", "mcp": [kept, entry("new")]}, {"id": "fresh"}
        ).replace(path)
        await until(lambda: of(seen, ConfigReloaded))
        assert states(fleet.manager("main")) == {"kept": "connected", "new": "connected"}
        assert started(tmp_path / "kept") == 1
        assert traces(str(tmp_path / "gone")) == []
        assert [agent.agent_id for agent in fleet.agents()] == ["main", "fresh"]
        assert states(old) == {"x": "disconnected"}


@pytest.mark.requirement("manager:hot-reload")
async def test_a_broken_file_keeps_the_old_configuration_and_is_reported(path: Path):
    seen: list[ManagerEvent] = []
    write(path, {"id": "main", "mcp": [entry("a")]})
    good = text_of(path)
    async with followed(path, seen) as fleet:
        put(path, good + "\n[[mcp_servers]]\nname = 'x'\n")
        await until(lambda: of(seen, ConfigRefused))
        assert states(fleet.manager("main")) == {"a": "connected"}
        [problem] = fleet.problems()
        assert problem.startswith("mcp_servers: is not read; write [[defaults.mcp]]")
        put(path, good)
        await until(lambda: not fleet.problems())
        await asyncio.to_thread(path.unlink)
        await until(lambda: len(of(seen, ConfigRefused)) == 2)
        assert "cannot be read" in fleet.problems()[0]
        assert states(fleet.manager("main")) == {"a": "connected"}


async def test_a_broken_file_at_the_start_is_refused_with_all_its_problems(path: Path):
    put(path, "[[mcp]]\n[[agents]]\n")
    with pytest.raises(InvalidRecord) as caught:
        await AgentFleet(path).start()
    assert len(caught.value.problems) == 2
    with pytest.raises(InvalidRecord, match="cannot be read"):
        await AgentFleet(path.with_name("missing")).start()


# --- changes through the file


async def test_a_created_server_is_in_the_file_and_connected(path: Path):
    write(path, {"id": "main"})
    commented = text_of(path) + "\n# by hand\n"
    put(path, commented)
    await asyncio.to_thread(path.chmod, 0o640)
    async with AgentFleet(path) as fleet:
        changed = await fleet.create("main", entry("a", env={"KEY": "hidden"}))
        assert changed.server is not None
        assert (changed.server.state, changed.server.origin) == ("connected", "agent")
        assert changed.server.config["env"] == {"KEY": "***"}
        assert [tool.name for tool in await fleet.manager("main").get_tools()] == ["a_echo"]
    text = text_of(path)
    assert text.endswith("# by hand\n")
    assert tomllib.loads(text)["agents"][0]["mcp"][0]["env"] == {"KEY": "hidden"}
    assert mode_and_neighbours(path) == (0o640, ["agents.toml"])


async def test_what_is_wrong_is_refused_before_anything_is_written(path: Path):
    write(path, {"id": "main", "mcp": [entry("a")]})
    before = text_of(path)
    async with AgentFleet(path) as fleet:
        with pytest.raises(ServerExists):
            await fleet.create("main", entry("a"))
        with pytest.raises(InvalidRecord, match="command: is required"):
            await fleet.create("main", {"name": "b", "transport": "stdio"})
        with pytest.raises(InvalidRecord, match=r"env.A: is masked"):
            await fleet.create("main", entry("b", env={"A": "***"}))
        with pytest.raises(UnknownAgent):
            await fleet.create("nobody", entry("b"))
        with pytest.raises(UnknownServer):
            await fleet.merge("main", "b", {"enabled": False})
        with pytest.raises(UnknownServer):
            await fleet.remove("main", "b")
    assert text_of(path) == before


async def test_a_hidden_header_is_not_sent_to_another_address(path: Path):
    far = {"name": "far", "transport": "http", "url": "https://example.org/mcp", "enabled": False}
    write(path, {"id": "main", "mcp": [{**far, "headers": {"X-Key": "t0p-secret"}}]})
    before = text_of(path)
    async with AgentFleet(path) as fleet:
        [view] = fleet.servers("main")
        with pytest.raises(InvalidRecord, match="another address"):
            await fleet.merge("main", "far", {"url": "https://other.org/mcp"})
        with pytest.raises(InvalidRecord, match="another address"):
            await fleet.replace("main", "far", {**view.config, "url": "http://example.org/mcp"})
        assert text_of(path) == before
        await fleet.merge("main", "far", {"url": "https://example.org/elsewhere"})
        moved = {"url": "https://other.org", "headers": {"X-Key": "another"}}
        await fleet.merge("main", "far", moved)
    assert "t0p-secret" not in text_of(path)


async def test_hidden_values_are_kept_when_they_come_back_masked(path: Path):
    secret = {"TOKEN": "t0p-secret", "LEVEL": "${LEVEL:-info}"}
    args = [*entry("a")["args"], "--password=hunter22"]
    write(path, {"id": "main", "mcp": [{**entry("a"), "args": args, "env": secret}]})
    async with AgentFleet(path) as fleet:
        [view] = fleet.servers("main")
        env, shown = view.config["env"], view.config["args"]
        assert is_object(env)
        assert env["TOKEN"] == "***"
        assert is_array(shown)
        assert shown[-1] == "***"
        assert "t0p-secret" not in repr(view)
        await fleet.replace("main", "a", {**view.config, "timeout_ms": 5000})
        await fleet.merge("main", "a", {"env": {"MORE": "x"}, "timeout_ms": None})
        await fleet.merge("main", "a", {"enabled": False})
    [written] = tomllib.loads(text_of(path))["agents"][0]["mcp"]
    assert written == {
        **entry("a"),
        "args": args,
        "env": {**secret, "MORE": "x"},
        "enabled": False,
    }


async def test_a_default_is_overridden_for_one_agent_and_comes_back(path: Path):
    write(path, {"id": "one"}, {"id": "two"}, defaults=[entry("shared")])
    async with AgentFleet(path) as fleet:
        with pytest.raises(Inherited, match=r"\[\[defaults.mcp\]\]"):
            await fleet.remove("one", "shared")
        changed = await fleet.merge("one", "shared", {"enabled": False})
        assert changed.server is not None
        assert (changed.server.origin, changed.server.state) == ("override", "disabled")
        assert states(fleet.manager("two")) == {"shared": "connected"}
        changed = await fleet.remove("one", "shared")
        assert changed.server is not None
        assert (changed.server.origin, changed.server.state) == ("defaults", "connected")
        assert (await fleet.remove("defaults", "shared")).server is None
        assert fleet.servers("one") == fleet.servers("two") == []
        await fleet.create("defaults", entry("again"))
        assert states(fleet.manager("two")) == {"again": "connected"}


async def test_changes_at_the_same_time_are_all_written(path: Path):
    write(path, {"id": "main"}, {"id": "other"})
    async with AgentFleet(path) as fleet:
        added = [fleet.create("main", entry(f"s{i}", enabled=False)) for i in range(5)]
        by_hand = [AgentsFile(path).set("other", entry(f"h{i}", enabled=False)) for i in range(5)]
        await asyncio.gather(*added, *by_hand)
    agents = tomllib.loads(text_of(path))["agents"]
    assert {one["name"] for one in agents[0]["mcp"]} == {f"s{i}" for i in range(5)}
    assert {one["name"] for one in agents[1]["mcp"]} == {f"h{i}" for i in range(5)}


async def test_a_file_that_somebody_else_holds_is_busy_after_a_while(path: Path):
    import fcntl

    write(path, {"id": "main"})
    clock = FakeClock()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        editing = asyncio.create_task(AgentsFile(path, clock=clock).set("main", entry("a")))
        async with asyncio.timeout(10):
            while not editing.done():
                await clock.advance(0.1)
                await asyncio.to_thread(lambda: None)
        with pytest.raises(FileBusy):
            await editing
    finally:
        os.close(folder)


async def test_a_file_that_cannot_be_written_is_told_and_the_agents_go_on(tmp_path: Path):
    folder = tmp_path / "folder"
    folder.mkdir()
    path = write(folder / "agents.toml", {"id": "main", "mcp": [entry("a")]})
    async with AgentFleet(path) as fleet:
        folder.rename(tmp_path / "elsewhere")
        with pytest.raises(NotWritten, match="cannot be written: No such file"):
            await fleet.create("main", entry("b"))
        assert states(fleet.manager("main")) == {"a": "connected"}


async def test_a_linked_file_stays_a_link(path: Path, tmp_path: Path):
    real = write(tmp_path / "real.toml", {"id": "main"})
    await asyncio.to_thread(path.symlink_to, real)
    await AgentsFile(path).set("main", entry("a"))
    await AgentsFile(path).drop("main", "a")
    assert await asyncio.to_thread(path.is_symlink)
    assert "mcp" not in text_of(real)


async def test_a_reload_by_order_says_what_is_wrong(path: Path):
    write(path, {"id": "main"})
    async with AgentFleet(path) as fleet:
        assert await fleet.reload() == ()
        put(path, "nonsense")
        assert "not valid TOML" in (await fleet.reload())[0]
        with pytest.raises(InvalidRecord):
            await fleet.create("main", entry("a"))
        assert text_of(path) == "nonsense"
