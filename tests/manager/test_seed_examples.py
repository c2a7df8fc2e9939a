"""The examples of the seed as they are written, with test servers behind their commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from bascule.manager import AgentFleet, AgentsFile, McpManager
from bascule.testing import ScriptedHttpServer, ScriptedServer
from tests.manager.agents import states

EXAMPLE = """\
[defaults]
# MCP servers inherited by all agents

[[defaults.mcp]]
name = "filesystem"
transport = "stdio"
command = "npx"
args = ["-y", "@modelcontextprotocol/server-filesystem", "/workspace"]

[[defaults.mcp]]
name = "sentry"
transport = "http"
url = "https://mcp.sentry.io"
headers = { "Authorization" = "Bearer ${SENTRY_TOKEN}" }

# Per-agent override
[[agents]]
id = "main"

[[agents.mcp]]
name = "postgres"
transport = "stdio"
command = "npx"
args = ["-y", "@modelcontextprotocol/server-postgres", "postgresql://..."]
"""


@pytest.mark.requirement("manager:config:seed-example")
def test_the_configuration_of_the_seed_means_what_the_seed_says(tmp_path: Path):
    path = tmp_path / "agents.toml"
    path.write_text(EXAMPLE, encoding="utf-8")
    config = AgentsFile(path).read().config
    filesystem, sentry, postgres = config.servers("main")
    assert (filesystem.name, filesystem.transport, filesystem.command, filesystem.args) == (
        "filesystem",
        "stdio",
        "npx",
        ("-y", "@modelcontextprotocol/server-filesystem", "/workspace"),
    )
    assert (sentry.transport, sentry.url) == ("http", "https://mcp.sentry.io")
    assert sentry.headers == {"Authorization": "Bearer ${SENTRY_TOKEN}"}
    assert (postgres.name, postgres.args[1]) == (
        "postgres",
        "@modelcontextprotocol/server-postgres",
    )
    assert all(server.enabled for server in (filesystem, sentry, postgres))
    assert [config.origin("main", s.name) for s in (filesystem, sentry, postgres)] == [
        "defaults",
        "defaults",
        "agent",
    ]


def program(folder: Path) -> None:
    """Put an ``npx`` in a folder that answers with a server for either package."""
    files, queries = ("read_file", "list_directory"), ("query",)
    for package, tools in (("filesystem", files), ("postgres", queries)):
        script = folder / f"{package}.json"
        ScriptedServer(behaviours=dict.fromkeys(tools, "echo")).saved_to(script)
    python, (*options, body, _) = ScriptedServer().command
    npx = folder / "npx"
    start = f'exec "{python}" {" ".join(options)} "{body}"'
    npx.write_text(f'#!/bin/sh\n{start} "{folder}/${{2##*server-}}.json"\n', encoding="utf-8")
    npx.chmod(0o755)


@pytest.mark.requirement("manager:config:seed-example", "manager:get-tools", "manager:adapter:name")
async def test_the_seeds_agent_starts_works_and_shuts_down(tmp_path: Path):
    program(tmp_path)
    async with ScriptedHttpServer(ScriptedServer(behaviours={"search": "echo"})) as remote:
        text = EXAMPLE.replace("https://mcp.sentry.io", remote.url)
        path = tmp_path / "agents.toml"
        path.write_text(text, encoding="utf-8")
        environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SENTRY_TOKEN": "t0ken-of-sentry"}
        async with AgentFleet(path, environ=environ) as fleet:
            manager = fleet.manager("main")
            assert set(states(manager).values()) == {"connected"}
            tools = {tool.name: tool for tool in await manager.get_tools()}
            assert list(tools) == [
                "filesystem_list_directory",
                "filesystem_read_file",
                "sentry_search",
                "postgres_query",
            ]
            for tool in tools.values():
                assert await tool.call({"text": "hello"}) == "hello"
            assert remote.requests[-1].headers["Authorization"] == "Bearer t0ken-of-sentry"
            block = "filesystem (2 tools), sentry (1 tool), postgres (1 tool)"
            first, last = manager.status_block().splitlines()
            assert first == f"MCP servers connected: {block}"
            assert last.startswith("MCP tool calls ended last: postgres_query (ok, ")
        assert set(states(manager).values()) == {"disconnected"}


async def test_the_seeds_start_up_lines(tmp_path: Path):
    """``McpManager::new(resolved_config.mcp.clone())``, then ``connect_all``, then a worker."""
    path = tmp_path / "agents.toml"
    path.write_text(EXAMPLE, encoding="utf-8")
    resolved_config = AgentsFile(path).read().config.servers("main")
    mcp_manager = McpManager(resolved_config, environ={"PATH": str(tmp_path)})
    await mcp_manager.connect_all()  # no npx, no token: each fails by itself
    errors = {s.name: s.last_error or "" for s in mcp_manager.statuses()}
    assert set(states(mcp_manager).values()) == {"down"}
    assert "npx" in errors["filesystem"]
    assert "SENTRY_TOKEN" in errors["sentry"]
    assert await mcp_manager.get_tools() == []
    await mcp_manager.disconnect_all()
