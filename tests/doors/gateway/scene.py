"""The gateway over a bridge with fakes in this process; every message to a client is checked."""

from __future__ import annotations

from typing import Any

from bascule.asgi.guard import GuardedApp
from bascule.audit.approvals import Approvals
from bascule.doors.gateway.api import gateway_routes
from bascule.doors.gateway.gateway import Gateway
from tests.doors.door import Door
from tests.doors.gateway.mcp_caller import McpCaller, in_process, opened

Json = dict[str, Any]


class Scene:
    """What a test needs: the door, the gateway, and clients of it."""

    def __init__(self, approvals: Approvals | None = None) -> None:
        self.door = Door(approvals=approvals)
        self.world = self.door.world
        self.gateway = Gateway(self.door.sessions, self.door.tokens.key_for, clock=self.door.clock)
        self.app = GuardedApp(gateway_routes(self.gateway), self.door.tokens)
        self.post = in_process(self.app)

    async def client(
        self, way: str = "all, modern", task: str = "writer", **headers: str
    ) -> McpCaller:
        """Return a client with a token of its own, ready to speak."""
        token = await self.door.minted(task)
        return (await opened(self.post, token, "fs", way, **headers))[0]

    async def call(self, way: str, tool: str, arguments: Json | None = None, **more: Any) -> Json:
        """Call a tool of ``fs`` once, with a token of its own."""
        token = await self.door.minted(more.pop("task", "writer"))
        client, named = await opened(self.post, token, "fs", way)
        return await client.call(named(tool), arguments, **more)
