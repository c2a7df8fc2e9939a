"""The tools API and the gateway over a bridge with fakes, and tokens for them."""

from __future__ import annotations

import json
from typing import Any

from bascule.asgi.guard import GuardedApp
from bascule.audit.approvals import Approvals
from bascule.doors.gateway.api import gateway_routes
from bascule.doors.gateway.gateway import Gateway
from bascule.doors.sessions import MAX_PER_PERSON, MAX_PER_TOKEN, Sessions
from bascule.doors.tools.api import tools_routes
from bascule.model.role import Role
from bascule.testing.clock import FakeClock
from tests.asgi.caller import Answer, ask, make_tokens
from tests.control.api.contract import refuse_undescribed
from tests.node.fakes import World
from tests.policy.build import server

#: Lets people in who have no record, where tasks can say so.
ANYBODY = {"users": "open"}
TASKS: dict[str, Any] = {
    "writer": {"enabled": True, "default_server_ids": ["fs"]},
    "reader": {"enabled": True, "default_server_ids": ["fs"], "tool_allowlist": ["fs/read"]},
    "bound": {"enabled": True, "default_server_ids": ["fs"], "allowed_server_ids": ["fs"]},
    "off": {"enabled": False},
    "open": {"enabled": True, "default_server_ids": ["fs"], **ANYBODY},
}
ASKS = {"default": "never", "per_tool": {"delete": "always"}}


class Door:
    """The tools API and the gateway over a bridge with fakes, and tokens for them."""

    def __init__(
        self,
        *,
        max_per_person: int = MAX_PER_PERSON,
        max_per_token: int = MAX_PER_TOKEN,
        approvals: Approvals | None = None,
    ) -> None:
        self.clock = FakeClock()
        record = server("fs", approval_policy=ASKS, effects={"read": ["read"]})
        self.world = World(record, tasks=TASKS, approver=approvals)
        self.tokens = make_tokens()
        self.sessions = Sessions(
            self.world.core,
            self.tokens,
            clock=self.clock,
            max_per_person=max_per_person,
            max_per_token=max_per_token,
        )
        self.routes = tools_routes(self.sessions, approvals)
        self.gateway = Gateway(self.sessions, self.tokens.key_for)
        self.app = GuardedApp([*self.routes, *gateway_routes(self.gateway)], self.tokens)

    async def minted(self, task: str = "writer", role: Role = "client") -> str:
        task_id = task if role == "client" else None
        return (await self.tokens.mint("alice", role, task_id=task_id)).token

    async def token(self, task: str = "writer", role: Role = "client") -> dict[str, str]:
        return {"Authorization": f"Bearer {await self.minted(task, role)}"}

    async def acting(self, task: str = "open", name: str = "gateway") -> dict[str, str]:
        """Return the headers of a token that acts for users."""
        minted = await self.tokens.mint(name, "client", task_id=task, acts_for_users=True)
        return {"Authorization": f"Bearer {minted.token}"}

    async def call(self, headers: dict[str, str], body: Any, query: str = "") -> Answer:
        return await self._post("/api/v1/tools/call", headers, body, query)

    async def own(self, headers: dict[str, str], body: Any, query: str = "") -> Answer:
        """Tell of a call of a tool of the caller's own."""
        return await self._post("/api/v1/tools/own", headers, body, query)

    async def _post(self, path: str, headers: dict[str, str], body: Any, query: str) -> Answer:
        sent = {**headers, "Content-Type": "application/json", "Content-Length": "1"}
        chunks = [body if isinstance(body, bytes) else json.dumps(body).encode()]
        answer = await ask(self._asked(query), "POST", path, sent, chunks=chunks)
        refuse_undescribed(self.routes, "POST", path, answer)
        return answer

    async def get(self, path: str, headers: dict[str, str]) -> Answer:
        address, _, query = path.partition("?")
        answer = await ask(self._asked(query), "GET", address, headers)
        refuse_undescribed(self.routes, "GET", address, answer)
        return answer

    def _asked(self, query: str) -> Any:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await self.app({**scope, "query_string": query.encode()}, receive, send)

        return app
