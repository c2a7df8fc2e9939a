"""Records for a test, taken away again; and a server whose words are as bad as can be."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bascule.testing.server import ScriptedServer, do, tool
from tests.browser.site import Site

RECORDS = "/admin/api/mcp"
#: Markup, a mark that turns the direction of writing, and a colour of terminals.
HOSTILE = "<img src=x onerror=alert(1)> \u202egnp.exe \x1b[31m<script>alert(1)</script>"
SHOWN = "<img src=x onerror=alert(1)> \\u202egnp.exe \\x1b[31m<script>alert(1)</script>"
ISSUE = {
    "type": "object",
    "required": ["title", "kind"],
    "properties": {
        "title": {"type": "string", "description": HOSTILE},
        "kind": {"enum": ["bug", "question"]},
        "count": {"type": "integer", "maximum": 5},
        "urgent": {"type": "boolean"},
        "labels": {"type": "array", "items": {"type": "string"}},
        "author": {"type": "object", "properties": {"name": {"type": "string"}}},
        "either": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
    },
}
WIDE = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(3000)}}


@asynccontextmanager
async def standing(site: Site, **records: list[dict[str, Any]]) -> AsyncGenerator[None]:
    """Let records be there, by kind: ``tasks=[{...}]``; the first field of each is its key."""
    places = [
        (f"{RECORDS}/{kind}/{next(iter(record.values()))}", record)
        for kind, given in records.items()
        for record in given
    ]
    for place, record in places:
        status, answer = await site.ask("PUT", place, token=site.admin, body=record)
        assert status in (200, 201), answer
    try:
        yield
    finally:
        for place, _ in reversed(places):
            await site.ask("DELETE", place, token=site.admin)


async def listed(site: Site, server: str) -> None:
    """Ask a server for its tools, so that they are known."""
    place = f"{RECORDS}/servers/{server}/test"
    status, answer = await site.ask("POST", place, token=site.admin)
    assert (status, answer["ok"]) == (200, True), answer


def lab(folder: Path, name: str = "lab") -> dict[str, Any]:
    """Make the record of a server with tools of every kind; they read unless they say otherwise."""
    server = ScriptedServer(
        tools=[
            tool("file_issue", inputSchema=ISSUE, annotations={"title": HOSTILE}),
            tool("write_wide", inputSchema=WIDE),
            tool("delete_all", description=HOSTILE * 40),
            tool("read_long"),
            tool("read_slowly"),
        ],
        behaviours={
            "file_issue": "structured",
            "write_wide": "echo",
            "delete_all": do("echo", text="all gone"),
            "read_long": do("big", bytes=1_000_000),
            "read_slowly": do("progress", worded=True),
        },
    )
    return {
        "server_id": name,
        "transport": "stdio",
        "display_name": f"Lab {HOSTILE}",
        "tags": ["lab"],
        "stdio": server.saved_to(folder / f"{name}.json").stdio,
        "allowed_tools": ["*"],
        "effects": {"read": ["read_*"]},
        "approval_policy": {"default": "never", "per_tool": {"delete_*": "always"}},
        "budgets": {"max_tool_output_bytes": 4_000_000},
    }


def crowd(folder: Path, count: int, name: str = "crowd") -> dict[str, Any]:
    """Make the record of a server with many tools (512 at the most); every third writes."""
    words = [f"{'read' if n % 3 else 'write'}_thing_{n:05}" for n in range(count)]
    server = ScriptedServer(tools=[tool(one) for one in words], behaviours={})
    return {
        "server_id": name,
        "transport": "stdio",
        "stdio": server.saved_to(folder / f"{name}.json").stdio,
        "allowed_tools": ["*"],
        "effects": {"read": ["read_*"]},
    }
