"""Sections over scripted servers, and what every test of this folder looks at from outside."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bascule.section import (
    McpIntegrationSection,
    McpServerConfig,
    Session,
    StdioTransport,
    Tool,
    ToolResult,
)
from bascule.testing import ScriptedServer, tool

ISSUE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "owner": {"type": "string"},
        "repo": {"type": "string"},
        "title": {"type": "string"},
    },
    "required": ["owner", "repo", "title"],
}


def github(**more: Any) -> ScriptedServer:
    """A server with the tools of the specification's examples."""
    described = {
        "create_issue": "Create a new issue in a repository",
        "list_issues": "List issues with optional filters",
        "get_issue": "Get details of a specific issue",
        "delete_repo": "Delete a repository",
    }
    tools = [tool(name, description=text) for name, text in described.items()]
    tools[0]["inputSchema"] = ISSUE
    behaviours = {name: more.pop(name, "echo") for name in described}
    return ScriptedServer(behaviours=behaviours, tools=tools, **more)


def filesystem(**more: Any) -> ScriptedServer:
    described = {
        "read_file": "Read contents of a file",
        "write_file": "Write contents to a file",
    }
    tools = [tool(name, description=text) for name, text in described.items()]
    return ScriptedServer(behaviours=dict.fromkeys(described, "echo"), tools=tools, **more)


def stdio(server: ScriptedServer | None = None) -> StdioTransport:
    command, args = (server or ScriptedServer()).command
    return StdioTransport(command=command, args=tuple(args))


def config(server: ScriptedServer | None = None, name: str = "a", **fields: Any) -> McpServerConfig:
    return McpServerConfig(name=name, transport=stdio(server), **fields)


def section_of(*servers: McpServerConfig, **options: Any) -> McpIntegrationSection:
    options.setdefault("session", Session())
    return McpIntegrationSection(servers=list(servers), **options)


def named(section: McpIntegrationSection, name: str) -> Tool[Any, Any]:
    return {tool.name: tool for tool in section.tools()}[name]


def names(section: McpIntegrationSection) -> list[str]:
    return [tool.name for tool in section.tools()]


def run(
    section: McpIntegrationSection, name: str, params: Mapping[str, Any] | None = None
) -> ToolResult[Any]:
    return named(section, name).run(params, context=section.context())


async def beside(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call something that blocks, in a thread."""
    return await asyncio.to_thread(function, *args, **options)


def bridge_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "bascule-bridge"]


def starts_of(path: Path) -> int:
    """How often a server was started."""
    return path.read_text(encoding="utf-8").count("\n") if path.exists() else 0
