"""Hosts for guests of tests, over a bridge in this process and over one that is connected."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from bascule import Bridge
from bascule.asgi.guard import GuardedApp
from bascule.asgi.serve import Serving
from bascule.audit.approvals import Approvals
from bascule.doors.hostcalls.host import Host, LogLine, Output
from bascule.doors.sessions import Sessions
from bascule.doors.tools.api import tools_routes
from bascule.model.session import UNLIMITED, SessionLimits, SessionRequest
from bascule.node.bridge.opening import Opening
from bascule.node.contract import AnyBridge
from tests.asgi.caller import make_tokens
from tests.node.fakes import FakeCaller, World
from tests.policy.build import server

TASKS: dict[str, Any] = {
    "writer": {
        "enabled": True,
        "default_server_ids": ["fs"],
        "allowed_server_ids": ["fs", "spare"],
    },
    "reader": {"enabled": True, "default_server_ids": ["fs"], "tool_allowlist": ["fs/read"]},
    "off": {"enabled": False, "default_server_ids": ["fs"]},
    "thrifty": {
        "enabled": True,
        "default_server_ids": ["fs"],
        "max_iterations": 3,
        "max_total_tool_calls": 2,
        "tool_output": "auto",
    },
}
ASKS = {"default": "never", "per_tool": {"delete": "always"}}
SERVERS = (
    server("fs", approval_policy=ASKS, effects={"read": ["read"]}, display_name="Files"),
    server("spare"),
    server("other"),
)


class Hosts:
    """Makes hosts: of a task, over one bridge with fakes."""

    def __init__(self, *, is_connected: bool, approvals: Approvals | None = None) -> None:
        self.is_connected = is_connected
        self.world = World(*SERVERS, tasks=TASKS, approver=approvals)
        self._tokens = make_tokens()
        sessions = Sessions(self.world.core, self._tokens)
        self._server = Serving(GuardedApp(tools_routes(sessions, approvals), self._tokens))
        self._ending = AsyncExitStack()
        self._minted: dict[str, str] = {}

    @property
    def caller(self) -> FakeCaller:
        return self.world.caller

    @property
    def local(self) -> AnyBridge:
        """Return the bridge of this process; it needs neither beginning nor end."""
        core: Any = self.world.core
        return core

    async def start(self) -> None:
        if self.is_connected:
            await self._ending.enter_async_context(self._server)
            for task in TASKS:
                minted = await self._tokens.mint("alice", "client", task_id=task)
                self._minted[task] = minted.token

    def __call__(self, task: str = "writer", **options: Any) -> Host:
        given: dict[str, Any] = {"listener": _unheard, **self.fields(task, **options)}
        return Host(**given)

    def fields(
        self,
        task: str = "writer",
        *,
        request: SessionRequest = SessionRequest(),  # noqa: B008 - immutable
        budget: SessionLimits = UNLIMITED,
        **options: Any,
    ) -> dict[str, Any]:
        """Return what a host has, but for who listens."""
        named = None if self.is_connected else task
        opening = Opening(task=named, caller="alice", request=request, limits=budget)
        return {"bridge": self._bridge(task), "opening": opening, **options}

    def _bridge(self, task: str) -> AnyBridge:
        if not self.is_connected:
            return self.local
        bridge = Bridge.connect(self._server.url, token=self._minted[task])
        self._ending.push_async_callback(bridge.close)
        return bridge

    async def end_server(self) -> None:
        await self._ending.aclose()


def _unheard(_said: Output | LogLine) -> None:
    """Hear nothing."""


@pytest.fixture(params=["here", "connected"])
async def hosts(request: pytest.FixtureRequest) -> AsyncIterator[Hosts]:
    made = Hosts(is_connected=request.param == "connected")
    await made.start()
    yield made
    await made.end_server()
