"""A call that needs approval does not run, whichever door it comes through."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from bascule import Bridge, Server, ServerRecord
from bascule.asgi.guard import GuardedApp
from bascule.doors.gateway.api import gateway_routes
from bascule.doors.gateway.gateway import Gateway
from bascule.doors.sessions import Sessions
from bascule.executor import McpExecutor, ToolCall
from bascule.manager import McpManager
from bascule.model.server import ApprovalPolicy
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.section import McpServerConfig, StdioTransport
from bascule.testing import ScriptedServer
from tests.asgi.caller import make_tokens
from tests.doors.gateway.mcp_caller import WAYS, code_of, in_process, opened
from tests.section.section_servers import run, section_of


def asking(journal: Path) -> ServerRecord:
    """Make a server with a tool that needs approval, which writes down what it is sent."""
    command, args = ScriptedServer(
        behaviours={"read": "echo", "delete": "echo"}, journal=journal
    ).command
    policy = ApprovalPolicy(per_tool={"delete": "always"})
    return replace(Server.stdio("fs", command, *args), approval_policy=policy)


def called(journal: Path) -> list[str]:
    """Return which tools the server was asked to run."""
    messages = [json.loads(line) for line in journal.read_bytes().splitlines()]
    return [each["params"]["name"] for each in messages if each.get("method") == "tools/call"]


async def test_not_through_a_manager(tmp_path: Path):
    journal = tmp_path / "journal"
    async with (
        Bridge.open([asking(journal)]) as bridge,
        McpManager(["fs"], bridge=bridge) as manager,
    ):
        tools = {tool.name: tool for tool in await manager.get_tools()}
        assert "needs approval" in await tools["fs_delete"].call({"text": "x"})
        assert await tools["fs_read"].call({"text": "x"}) == "x"
    assert called(journal) == ["read"]


async def test_not_through_an_executor(tmp_path: Path):
    journal = tmp_path / "journal"
    async with (
        Bridge.open([asking(journal)]) as bridge,
        McpExecutor(["fs"], bridge=bridge) as executor,
    ):
        await executor.discover(["fs"])
        refused = await executor.execute(ToolCall("1", "fs_delete", {"text": "x"}))
        done = await executor.execute(ToolCall("2", "fs_read", {"text": "x"}))
    assert (refused.is_error, done.is_error) == (True, False)
    assert "mcp_approval_required" in str(refused.output)
    assert called(journal) == ["read"]


@pytest.mark.parametrize("way", WAYS)
async def test_not_through_the_gateway(tmp_path: Path, way: str):
    journal = tmp_path / "journal"
    task = TaskRecord(task_id="t", mcp=TaskPolicy(enabled=True, default_server_ids=("fs",)))
    records = {"fs": replace(asking(journal), allowed_tools=("*",))}
    tokens = make_tokens()
    token = (await tokens.mint("alice", "client", task_id="t")).token
    async with (
        Bridge.open(Snapshot(revision=1, servers=records, tasks={"t": task})) as bridge,
        Sessions(bridge, tokens) as sessions,
    ):
        app = GuardedApp(gateway_routes(Gateway(sessions, tokens.key_for)), tokens)
        caller, named = await opened(in_process(app), token, "fs", way)
        refused = await caller.call(named("delete"), {"text": "x"})
        done = await caller.call(named("read"), {"text": "x"})
    assert (code_of(refused), code_of(done)) == ("mcp_approval_required", None)
    assert called(journal) == ["read"]


def test_not_through_a_section(tmp_path: Path):
    journal = tmp_path / "journal"
    unused = McpServerConfig(name="fs", transport=StdioTransport(command="/no/such/program"))
    with (
        Bridge.blocking([asking(journal)]) as bridge,
        section_of(unused, bridge=bridge) as section,
    ):
        assert not run(section, "fs_delete", {"text": "x"}).success
        assert run(section, "fs_read", {"text": "x"}).success
    assert called(journal) == ["read"]
