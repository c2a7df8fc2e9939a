"""A control plane and a node, each a real process, and short ways to ask them things."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from bascule.wire.api.nodes import NodeStanding
from tests.cli.served import process
from tests.flow.up_process import Json, Up, run, serving_by
from tests.waits import until

ADMIN = "/admin/api/mcp"
#: What the demo's server is started by, as a node has to allow it.
LINE = f"{sys.executable} -m bascule.demo.server"
TASK: Json = {"task_id": "t", "mcp": {"enabled": True, "default_server_ids": ["notes"]}}


def notes(**fields: Any) -> Json:
    """Make a record of the demo's server; ``env`` is that of its process."""
    stdio = {"command": sys.executable, "args": ["-m", "bascule.demo.server"]}
    stdio |= {"env": fields.pop("env", {})}
    return {
        "server_id": "notes",
        "transport": "stdio",
        "stdio": stdio,
        "allowed_tools": ["*"],
        **fields,
    }


class Plane:
    """A control plane that serves; ``grpc`` is where nodes follow it."""

    def __init__(self, up: Up, grpc: str) -> None:
        self.up = up
        self.grpc = grpc

    async def put(self, kind: str, id: str, record: Json) -> None:
        path = f"{ADMIN}/{kind}/{id}".rstrip("/")
        status, answer = await self.up.ask("PUT", path, token=self.up.admin, body=record)
        assert status in {200, 201}, answer

    async def token(self, role: str, *words: str) -> tuple[str, str]:
        """Make a token; return it and its id."""
        given = ("tokens", "create", "--role", role, *words, "--json")
        code, out, err = await run(*given, "--data-dir", str(self.up.data))
        assert code == 0, err
        made = json.loads(out)
        return made["token"], made["id"]


@asynccontextmanager
async def plane(data: Path, *words: str, **env: str) -> AsyncGenerator[Plane]:
    """Serve a control plane alone."""
    async with serving_by(("registry", "serve"), data, *words, **env) as up:
        yield Plane(up, (await up.next_lines(1))[0].rpartition(" ")[2])


@asynccontextmanager
async def filled(data: Path, **env: str) -> AsyncGenerator[tuple[Plane, str, str]]:
    """Serve one with a server and a task; give the tokens of a node and a client too."""
    async with plane(data, **env) as served:
        await served.put("servers", "notes", notes())
        await served.put("tasks", "t", TASK)
        node, _ = await served.token("node", "--name", "east")
        client, _ = await served.token("client", "--task", "t")
        yield served, node, client


def node(
    data: Path, registry: str, token: str, *words: str, **env: str
) -> AbstractAsyncContextManager[Up]:
    """Serve a node that may start the demo's server."""
    given = ("--registry", registry, "--allow-executable", LINE, *words)
    return serving_by(("node", "serve"), data, *given, BASCULE_TOKEN=token, **env)


async def not_started(data: Path, *words: str, **env: str) -> str:
    """Start a node that cannot start; return what it says."""
    given = ("node", "serve", "--port", "0", "--data-dir", str(data), *words)
    done = await asyncio.to_thread(process, *given, **env)
    assert (done.code, done.out) == (1, ""), done.err
    return done.err


async def standing(up: Up, action: str = "status") -> NodeStanding:
    """Ask a node how it stands, as its owner."""
    code, out, err = await run("node", action, "--json", "--data-dir", str(up.data))
    assert code == 0, err
    return msgspec.json.decode(out, type=NodeStanding)


async def lists_notes(up: Up, token: str) -> bool:
    """Call a tool of the demo's server; say whether it answered."""
    status, outcome = await up.call(token, "notes/list_notes")
    return status == 200 and bool(outcome["ok"])


async def until_state(up: Up, state: str) -> NodeStanding:
    """Wait until a node stands so."""

    async def stands_so() -> bool:
        return (await standing(up)).state == state

    await until(stands_so)
    return await standing(up)
