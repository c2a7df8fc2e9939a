"""Agents of scripted servers, and the few steps that every test of this folder takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomli_w

from bascule.manager import McpServerConfig
from bascule.manager.core import McpManager
from bascule.manager.status import ServerStatus
from bascule.testing import ScriptedHttpServer, ScriptedServer

BROKEN = McpServerConfig(name="broken", transport="stdio", command="/nowhere/at-all")


def stdio(name: str, server: ScriptedServer | None = None, **fields: Any) -> McpServerConfig:
    """Return the configuration of a scripted server in a process of its own."""
    command, args = (server or ScriptedServer()).command
    return McpServerConfig(
        name=name, transport="stdio", command=command, args=tuple(args), **fields
    )


def http(name: str, server: ScriptedHttpServer, **fields: Any) -> McpServerConfig:
    """Return the configuration of a scripted server over HTTP."""
    return McpServerConfig(name=name, transport="http", url=server.url, **fields)


def entry(name: str, server: ScriptedServer | None = None, **fields: Any) -> dict[str, Any]:
    """Return an entry of a file for a scripted server."""
    command, args = (server or ScriptedServer()).command
    return {"name": name, "transport": "stdio", "command": command, "args": args, **fields}


def write(
    path: Path, *agents: dict[str, Any], defaults: list[dict[str, Any]] | None = None
) -> Path:
    """Write a file of agents."""
    plain: dict[str, Any] = {"agents": list(agents)}
    if defaults:
        plain["defaults"] = {"mcp": defaults}
    path.write_text(tomli_w.dumps(plain), encoding="utf-8")
    return path


def states(manager: McpManager) -> dict[str, str]:
    return {status.name: status.state for status in manager.statuses()}


def status_of(manager: McpManager, name: str) -> ServerStatus:
    return next(status for status in manager.statuses() if status.name == name)


def started(starts: Path) -> int:
    """Return how often a server's script was started; the ids it notes are its own namespace's."""
    return len(starts.read_text(encoding="utf-8").split()) if starts.exists() else 0


def put(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")
