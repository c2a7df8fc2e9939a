"""Somebody whose calls need approval: asks through the API, as an agent does."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from bascule.wire.api.addresses import APPROVALS, TOKENS
from tests.browser.site import Site


class Asker:
    """A client of the demo's task, with a token of its own."""

    def __init__(self, site: Site, token: str) -> None:
        self.site = site
        self.token = token

    async def call(self, tool: str, **arguments: Any) -> tuple[int, Any]:
        body = {"name": f"mcp__notes__{tool}", "arguments": arguments}
        return await self.site.ask("POST", "/api/v1/tools/call", token=self.token, body=body)

    async def delete(self, note: str) -> str:
        """Ask to delete a note; return the id of the approval that this needs."""
        status, answer = await self.call("delete_note", name=note)
        assert status == 409, answer
        return answer["error"]["details"]["approval_id"]

    async def remove(self, note: str) -> None:
        """Delete a note, with the approval that this needs."""
        await self.decide(await self.delete(note), "approve")
        status, answer = await self.call("delete_note", name=note)
        assert status == 200, answer

    async def approval(self, id: str) -> Any:
        status, answer = await self.site.ask("GET", f"{APPROVALS}/{id}", token=self.site.admin)
        assert status == 200, answer
        return answer

    async def decide(self, id: str, decision: str, reason: str = "") -> None:
        """Decide as the administrator of the process."""
        body = {
            "decision": decision,
            "digest": (await self.approval(id))["digest"],
            "reason": reason,
        }
        place = f"{APPROVALS}/{id}/decision"
        status, answer = await self.site.ask("POST", place, token=self.site.admin, body=body)
        assert status == 200, answer


async def asker(site: Site, name: str = "agent") -> Asker:
    body = {"role": "client", "name": name, "task_id": "demo", "ttl_seconds": 600}
    status, answer = await site.ask("POST", TOKENS, token=site.admin, body=body)
    assert status == 201, answer
    return Asker(site, answer["token"])


@asynccontextmanager
async def asking(site: Site, name: str = "agent") -> AsyncGenerator[Asker]:
    """Give somebody who asks, and let nothing wait behind the block."""
    one = await asker(site, name)
    try:
        yield one
    finally:
        _, found = await site.ask("GET", f"{APPROVALS}?state=pending", token=site.admin)
        for left in found["approvals"]:
            await one.decide(left["id"], "deny")
