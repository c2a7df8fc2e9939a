"""An agent's secrets: a new version reaches the servers of every agent, and no call fails."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from bascule.manager import AgentFleet, McpManager
from bascule.testing import ScriptedServer
from tests.manager.agents import entry, states, write
from tests.waits import SOON_SECONDS

SCRIPT = ScriptedServer(behaviours={"env": "env"})


async def used(manager: McpManager) -> str:
    """Return the value that a call was made with."""
    async with asyncio.timeout(SOON_SECONDS):
        [tool] = await manager.get_tools()
        said = await tool.call({})
    assert not said.is_error, said
    return json.loads(said)["env"]["TOKEN"]


async def test_every_agent_of_a_fleet_is_given_the_new_version(tmp_path: Path):
    server = entry("s", SCRIPT, env={"TOKEN": "secret://token"})
    path = write(
        tmp_path / "agents.toml", {"id": "one", "mcp": [server]}, {"id": "two", "mcp": [server]}
    )
    vault = {"token": "v1"}
    async with AgentFleet(path, secrets=vault) as fleet:
        managers = [fleet.manager(agent) for agent in ("one", "two")]
        values = [await used(manager) for manager in managers]
        calling = [asyncio.create_task(used(manager)) for manager in managers]
        vault["token"] = "v2"
        fleet.renew_secret("token")
        values += [await used(manager) for manager in managers]
        assert values == ["v1", "v1", "v2", "v2"]
        assert set(await asyncio.gather(*calling)) <= {"v1", "v2"}
        assert [states(manager) for manager in managers] == [{"s": "connected"}] * 2
