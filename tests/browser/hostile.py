"""A process whose servers, records and people say what could deceive, wherever they may."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bascule.testing import ScriptedServer, do
from bascule.testing.server import tool
from bascule.wire.api.addresses import ADMIN, TOKENS
from tests.browser.site import Site, serving

#: Markup that would ask for something, a reversal, what cannot be seen, and terminal control.
MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>{{7*7}}"
EVIL = f"{MARKUP}\"'`\u202egnp.exe\u200b\u2066"
#: What of it must not reach a document as it is.
RAW = "\u202e\u200b\u2066\x1b"
LONG = f"{EVIL}\x1b[31m" + "w" * 100_000
BIG = 9007199254740993

#: As many as are let in.
_MANY = {f"p{n}": {"type": "string"} for n in range(4_500)}
_STRANGE = {
    "__proto__": {"type": "string", "description": EVIL},
    "constructor": {"type": "string", "title": EVIL},
    "toString": {"type": "integer"},
    "choice": {"enum": ["", "a", "a", EVIL], "description": EVIL},
    "big": {"type": "integer", "maximum": BIG},
}


def _taking(properties: Mapping[str, object]) -> dict[str, object]:
    return {"type": "object", "properties": properties}


def _tools() -> list[dict[str, Any]]:
    said = {"title": EVIL, "description": EVIL, "annotations": {"title": EVIL, EVIL: EVIL}}
    return [
        tool("loop", **said, inputSchema=_taking({"loop": {"$ref": "#/properties/loop"}})),
        tool("key", **said, inputSchema=_taking({EVIL: {"type": "string"}})),
        tool("long", **{**said, "description": LONG}),
        tool("strange", **said, inputSchema=_taking(_STRANGE)),
        tool("many", **said, inputSchema=_taking(_MANY)),
        tool("__proto__", **said),
        tool("constructor", **said),
        tool(f"named {EVIL}", **said),
        tool("fails", **said),
    ]


def _server(folder: Path) -> ScriptedServer:
    answer = {
        "content": [{"type": "text", "text": LONG}],
        "structuredContent": {"__proto__": EVIL, "big": BIG, EVIL: EVIL},
    }
    answers = do("stderr", text=EVIL, then=do("fixed", result=answer))
    return ScriptedServer(
        name=EVIL,
        instructions=EVIL,
        tools=_tools(),
        behaviours={
            "strange": answers,
            "fails": do("rpc_error", code=-32000, message=LONG, data={"why": EVIL}),
        },
        at_start=[do("stderr", text=EVIL)],
    ).saved_to(folder / "script.json")


def _records(folder: Path) -> dict[str, dict[str, Any]]:
    stdio = {**_server(folder).stdio, "env": {"__proto__": EVIL}}
    return {
        "servers": {
            "server_id": "evil",
            "transport": "stdio",
            "display_name": EVIL,
            "tags": ["evil"],
            "allowed_tools": ["*"],
            "approval_policy": {"per_tool": {"constructor": "always"}},
            "stdio": stdio,
        },
        "broken": {
            "server_id": "broken",
            "transport": "stdio",
            "display_name": EVIL,
            "stdio": {"command": f"/none/{EVIL}"},
        },
        "tasks": {
            "task_id": "evil",
            "name": EVIL,
            "description": EVIL,
            "mcp": {"enabled": True, "default_server_ids": ["evil"], "users": "open"},
            "config": {"big": BIG, "__proto__": {EVIL: EVIL}},
        },
        "profiles": {"name": "evil", "description": EVIL, "default_server_ids": ["evil"]},
        "users": {"user_id": "evil", "display_name": EVIL, "groups": ["evil"]},
        "backends": {"name": "evil", "base_url": "http://127.0.0.1:9/", "models": ["evil"]},
    }


def agents(folder: Path) -> str:
    """Write of an agent with the same server, and with one that cannot be started."""
    entries = {
        "evil": _server(folder).stdio,
        "broken": {"command": f"/none/{EVIL}", "args": [EVIL]},
    }
    lines = ["[[agents]]", 'id = "main"']
    for name, stdio in entries.items():
        lines += ["[[agents.mcp]]", f'name = "{name}"', 'transport = "stdio"']
        lines += [f"{word} = {json.dumps(stdio[word])}" for word in ("command", "args")]
    return "\n".join(lines)


@asynccontextmanager
async def hostile(folder: Path) -> AsyncGenerator[Site]:
    """Serve all of it while the block lasts."""
    file = folder / "agents.toml"
    file.write_text(agents(folder), encoding="utf-8")
    async with serving(folder / "data", "--empty", "--agents", str(file)) as site:
        for kind, record in _records(folder).items():
            place = f"{ADMIN}/{'servers' if kind == 'broken' else kind}"
            status, answer = await site.ask("POST", place, token=site.admin, body=record)
            assert status == 201, answer
        yield site


async def caller(site: Site) -> str:
    """Make a client of the task, with a name as bad as a token's may be."""
    body = {"role": "client", "name": MARKUP, "task_id": "evil", "person": "evil"}
    status, answer = await site.ask("POST", TOKENS, token=site.admin, body=body)
    assert status == 201, answer
    return answer["token"]
