"""Servers that nobody here wrote, behind the gateway: the same as through ``Bridge.open``."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bascule.model.outcome import Outcome
from bascule.model.server import ServerRecord
from bascule.node.assembly import Bridge
from bascule.node.bridge.session import Session
from bascule.server import Server
from bascule.wire.records import encode
from checks.npm import NODE
from tests.asgi.caller import Answer
from tests.doors.gateway.clients.desk import bascule
from tests.doors.gateway.clients.homes import packages, python
from tests.doors.gateway.mcp_caller import WAYS, Json, McpCaller
from tests.flow.up_process import Up

BUDGETS = {"connect_timeout_ms": 25_000, "list_timeout_ms": 20_000, "tool_timeout_ms": 20_000}
#: What only other versions than the newest have.
OLDER = {"execution"}
COMMITTED = {
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "PATH": "/usr/bin:/bin:/usr/local/bin",
}


def calls(folder: Path) -> dict[str, list[tuple[str, Json]]]:
    """Return what each server is asked: things that it says in the same words twice."""
    tokyo = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    repository = {"repo_path": str(folder)}
    return {
        "time": [
            ("convert_time", tokyo),
            ("get_current_time", {"timezone": "Nowhere/Else"}),
            ("get_current_time", {}),
        ],
        "files": [
            ("read_text_file", {"path": str(folder / "poem.txt")}),
            ("list_directory", {"path": str(folder)}),
            ("read_text_file", {"path": "/etc/hostname"}),
        ],
        "git": [
            ("git_status", repository),
            ("git_log", repository),
            ("git_show", {**repository, "revision": "nothing"}),
        ],
        "everything": [
            ("echo", {"message": "Über allen Gipfeln"}),
            ("get-sum", {"a": 1, "b": 2}),
            ("get-structured-content", {"location": "New York"}),
            ("get-tiny-image", {}),
            ("get-annotated-message", {"messageType": "error", "includeImage": True}),
            ("get-resource-links", {"count": 3}),
            ("get-resource-reference", {"resourceType": "Text", "resourceId": 1}),
            ("get-sum", {"a": "one"}),
        ],
    }


def records(folder: Path) -> list[ServerRecord]:
    """Return the records of the real servers, over a folder with a file and a commit."""
    (folder / "poem.txt").write_text("Über allen Gipfeln\n", encoding="utf-8")
    for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "-m", "Goethe")):
        name = ("-c", "user.name=g", "-c", "user.email=g@example.org")
        subprocess.run(["git", *name, *words], cwd=folder, env=COMMITTED, check=True, timeout=30)
    npm = packages() / "node_modules" / "@modelcontextprotocol"
    files, everything = npm / "server-filesystem/dist/index.js", npm / "server-everything/dist"
    commands: dict[str, list[str | Path]] = {
        "time": [sys.executable, "-m", "mcp_server_time"],
        "files": [NODE, files, folder],
        "git": [python("frameworks"), "-m", "mcp_server_git", "--repository", folder],
        "everything": [NODE, everything / "index.js", "stdio"],
    }
    return [
        Server.stdio(id, *map(str, words), allowed_tools=["*"], budgets=BUDGETS)
        for id, words in commands.items()
    ]


async def behind(up: Up, servers: list[ServerRecord]) -> str:
    """Put the servers into a process; return the token of a task that may use them all."""
    ids = ",".join(server.server_id for server in servers)
    config = {"mcp.enabled": "true", "mcp.default_server_ids": ids}
    written = [(f"servers/{server.server_id}", encode(server)) for server in servers]
    for path, body in (*written, ("tasks/all", {"task_id": "all", "config": config})):
        status, answer = await up.ask("PUT", f"/admin/api/mcp/{path}", token=up.admin, body=body)
        assert status == 201, answer
    return await up.token("all")


async def reached(up: Up, path: str, headers: dict[str, str], body: bytes) -> Answer:
    async with up.http.post(up.url + path, headers=headers, data=body) as answer:
        heads = [(name.lower(), value) for name, value in answer.headers.items()]
        return Answer(answer.status, heads, await answer.read())


def result(outcome: Outcome) -> dict[str, Any]:
    """Return what a client is to be told of an outcome, without what only a client is told."""
    told: dict[str, Any] = {"content": [dict(block) for block in outcome.content]}
    if outcome.structured is not None:
        told["structuredContent"] = outcome.structured
    return told if outcome.ok else {**told, "isError": True}


def definition(tool: Mapping[str, Any], *, modern: bool) -> dict[str, Any]:
    hidden = {"name", *(OLDER if modern else ())}
    return {key: value for key, value in tool.items() if key not in hidden}


async def same_tools(session: Session, caller: McpCaller, server_id: str) -> dict[str, str]:
    """Compare the definitions; return the names that this route has for the server's own."""
    through = [tool for tool in await session.tools() if tool.server_id == server_id]
    is_whole = caller.route == "/mcp"
    names = {tool.name: tool.model_name if is_whole else tool.name for tool in through}
    answer = await caller.ask("tools/list")
    listed = {tool["name"]: tool for tool in answer.json["result"]["tools"]}
    assert set(names.values()) <= set(listed) if is_whole else set(names) == set(listed)
    for tool in through:
        shown = definition(listed[names[tool.name]], modern=caller.modern)
        assert shown == definition(tool.definition, modern=caller.modern)
    return names


async def same_result(caller: McpCaller, name: str, arguments: Json, outcome: Outcome) -> None:
    answer = await caller.ask("tools/call", {"name": name, "arguments": arguments})
    told = answer.json["result"]
    meta = told.pop("_meta", {})
    assert told.pop("resultType", None) == ("complete" if caller.modern else None)
    if outcome.error is None or outcome.error.code == "mcp_tool_error":
        assert told == result(outcome)
    else:
        assert meta["bascule/error"]["code"] == outcome.error.code


@pytest.mark.requirement("gateway:real-servers")
@pytest.mark.timeout(240)
async def test_real_servers_are_the_same_through_the_gateway_as_through_a_bridge(tmp_path: Path):
    folder = tmp_path / "work"
    folder.mkdir()
    servers = await asyncio.to_thread(records, folder)
    ids = [server.server_id for server in servers]
    async with (
        bascule(tmp_path / "data") as up,
        Bridge.open(servers) as bridge,
        bridge.session(server_ids=ids) as session,
    ):
        token = await behind(up, servers)
        assert (await session.tools()).warnings == ()

        async def post(path: str, headers: dict[str, str], body: bytes) -> Answer:
            return await reached(up, path, headers, body)

        for one_server, modern in WAYS.values():
            for server_id in ids:
                route = f"/mcp/servers/{server_id}" if one_server else "/mcp"
                caller = McpCaller(post, token, route, modern=modern)
                await caller.open()
                names = await same_tools(session, caller, server_id)
                for name, arguments in calls(folder)[server_id]:
                    outcome = await session.call(f"{server_id}/{name}", arguments)
                    await same_result(caller, names[name], arguments, outcome)
