"""Callers of a node that several workers serve, each with a connection to one of them."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from bascule.testing.server import ScriptedServer, do
from bascule.wire.era import LEGACY
from tests.doors.gateway.mcp_caller import McpCaller, over_http
from tests.flow.node_process import Plane
from tests.flow.up_process import Json, Up, serving
from tests.waits import until

WORKERS = ("--workers", "2")
TASK: Json = {"task_id": "t", "mcp": {"enabled": True, "default_server_ids": ["s"]}}
_MARK = re.compile(r"w(\d+)-\d+$")


def scripted(folder: Path) -> Json:
    """Make the record of a server: it echoes, says much, hangs, and waits for a file."""
    behaviours = {
        "echo": "echo",
        "much": do("big", bytes=4096),
        "hangs": do("sleep_until_cancelled"),
        "gated": do("gate", path=folder / "gate"),
        "careful": "echo",
    }
    script = ScriptedServer(behaviours=behaviours, journal=folder / "journal")
    return {
        "server_id": "s",
        "transport": "stdio",
        "stdio": script.stdio,
        "allowed_tools": ["*"],
        "approval_policy": {"per_tool": {"careful": "always"}},
    }


@asynccontextmanager
async def two_workers(folder: Path, *words: str, **env: str) -> AsyncGenerator[tuple[Up, str]]:
    """Serve a control plane with two workers, one server and a task; give a client's token."""
    async with workers(folder, 2, *words, **env) as found:
        yield found


@asynccontextmanager
async def workers(
    folder: Path, count: int, *words: str, **env: str
) -> AsyncGenerator[tuple[Up, str]]:
    """Serve the same with so many workers."""
    given = ("--empty", "--workers", str(count), *words)
    async with serving(folder / "data", *given, **env) as up:
        plane = Plane(up, "")
        await plane.put("servers", "s", scripted(folder))
        await plane.put("tasks", "t", TASK)
        token = await up.token("t")
        await until(lambda: _is_known(up, token, count))
        yield up, token


async def _is_known(up: Up, token: str, count: int) -> bool:
    """Say whether all workers know a token and its task."""
    async with AsyncExitStack() as stack:
        return len(await lines_to(up, token, stack, count)) == count


class Line:
    """One connection to a node, and so to one worker."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token
        self.http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=1),
            timeout=aiohttp.ClientTimeout(total=15),
        )
        self.headers = {"Authorization": f"Bearer {token}"}

    async def ask(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, Json]:
        url = self.url + path
        async with self.http.request(
            method, url, headers=self.headers, json=body, params=query
        ) as answer:
            return answer.status, await answer.json()

    async def call(self, tool: str, **more: Any) -> Json:
        """Call a tool; return the outcome."""
        return (await self.ask("POST", "/api/v1/tools/call", {"name": tool, **more}))[1]

    async def worker(self) -> int | None:
        """Return who is at the other end; None where that does not know the caller yet."""
        outcome = await self.call("s/echo", arguments={"text": "who"})
        return None if not outcome.get("ok") else worker_of(outcome)

    def mcp(self, *, modern: bool) -> McpCaller:
        """Return an MCP client on this connection."""
        return McpCaller(over_http(self.http, self.url), self.token, modern=modern)

    async def notify(self, method: str, session: str, params: Json) -> int:
        """Send a notification in a legacy session; return the status."""
        headers = {**self.headers, "Mcp-Session-Id": session, "MCP-Protocol-Version": LEGACY[0]}
        body = {"jsonrpc": "2.0", "method": method, "params": params}
        async with self.http.post(f"{self.url}/mcp", headers=headers, json=body) as answer:
            return answer.status

    async def close(self) -> None:
        await self.http.close()


def worker_of(outcome: Json) -> int:
    """Return which worker made a call."""
    found = _MARK.search(outcome["request_id"])
    assert found is not None, outcome
    return int(found[1])


async def lines_to(up: Up, token: str, stack: AsyncExitStack, count: int = 2) -> dict[int, Line]:
    """Connect until each of so many workers has answered, or a token is not known to one."""
    found: dict[int, Line] = {}
    for _ in range(64):
        line = Line(up.url, token)
        stack.push_async_callback(line.close)
        worker = await line.worker()
        if worker is None:
            return {}
        found.setdefault(worker, line)
        if len(found) == count:
            break
    return found


def text_of(answer: Any) -> str:
    """Return the text of an MCP result."""
    return json.loads(answer.body)["result"]["content"][0]["text"]
