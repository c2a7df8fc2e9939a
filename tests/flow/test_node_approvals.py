"""Calls that need approval at a node beside its control plane; real processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from openai import AsyncOpenAI

from tests.flow.node_process import Plane, filled, lists_notes, node, plane, until_state
from tests.flow.test_node_serve import port_of
from tests.flow.up_process import Json, Up, run
from tests.waits import SOON_SECONDS, until

APPROVALS = "/admin/api/approvals"
DELETE = "mcp__notes__delete_note"
RULES: Json = {"rules": [{"tools": ["notes/delete_note"], "effect": "require_approval"}]}


class Site(Struct):
    """A control plane that wants approval for one tool, a node, and a client's token."""

    plane: Plane
    node: Up
    client: str
    #: The node's own.
    token: str

    async def call(self, **more: Any) -> tuple[int, Json]:
        """Delete a note; return what comes of it."""
        body = {"name": DELETE, "arguments": {"name": "shopping"}, **more}
        return await self.node.ask("POST", "/api/v1/tools/call", token=self.client, body=body)

    async def asked(self) -> str:
        """Call, and return the id of the question."""
        status, outcome = await self.call()
        assert (status, outcome["error"]["code"]) == (409, "mcp_approval_required"), outcome
        return outcome["error"]["details"]["approval_id"]

    async def decide(self, id: str, verb: str = "approve") -> None:
        words = ("approvals", verb, id, *(("--yes",) if verb == "approve" else ()), "--json")
        code, _, err = await run(*words, "--data-dir", str(self.plane.up.data))
        assert code == 0, err

    async def question(self, id: str) -> Json:
        return await self.plane.up.get(f"{APPROVALS}/{id}")

    async def state(self, id: str) -> str:
        return (await self.question(id))["state"]

    async def pending(self) -> list[Json]:
        return (await self.plane.up.get(f"{APPROVALS}?state=pending"))["approvals"]

    async def one_pending(self) -> str:
        """Wait until there is a question; return its id."""

        async def is_there() -> bool:
            return len(await self.pending()) == 1

        await until(is_there)
        return (await self.pending())[0]["id"]

    async def has_note(self) -> bool:
        _, outcome = await self.node.call(self.client, "mcp__notes__list_notes")
        return "shopping" in json.dumps(outcome)


@asynccontextmanager
async def site(folder: Path, **env: str) -> AsyncGenerator[Site]:
    async with filled(folder / "plane") as (served, token, client):
        await served.put("platform", "", RULES)
        async with node(folder / "node", served.grpc, token, **env) as up:
            yield Site(served, up, client, token)


@pytest.mark.requirement("approval:nodes")
async def test_a_call_at_a_node_runs_once_when_somebody_has_approved_it(tmp_path: Path):
    async with site(tmp_path) as at:
        id = await at.asked()
        assert await at.asked() == id
        asked = await at.question(id)
        assert (asked["node"], asked["whole"], asked["caller"]) == ("east", True, "client")
        assert json.loads(asked["arguments"]) == {"name": "shopping"}
        listed = await run("approvals", "list", "--data-dir", str(at.plane.up.data))
        assert "client at east" in listed[1]
        await at.decide(id)
        assert await at.has_note()
        status, outcome = await at.call()
        assert (status, outcome["ok"]) == (200, True), outcome
        assert not await at.has_note()
        assert await at.state(id) == "claimed"
        assert await at.asked() != id
        trail = await at.plane.up.get(f"/admin/api/audit?approval_id={id}")
        kinds = [(one["event"], one["body"].get("node")) for one in trail["entries"]]
        print(kinds)
