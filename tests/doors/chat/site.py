"""The chat door on a real HTTP server, over a bridge with fakes, for OpenAI's own client."""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from openai import AsyncOpenAI

from bascule.asgi.guard import GuardedApp, GuardedRoute
from bascule.asgi.serve import Limits, Serving
from bascule.audit.approvals import Approvals
from bascule.audit.metrics import Metrics
from bascule.audit.parked_turns import ParkedTurns
from bascule.auth.tokens import Tokens
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.demo.rehearsal import REHEARSAL, Rehearsal
from bascule.doors.chat.api import ChatParts, ModelChooser, chat_routes
from bascule.doors.gateway.api import gateway_routes
from bascule.doors.gateway.gateway import Gateway
from bascule.doors.sessions import Sessions
from bascule.doors.tools.api import tools_routes
from bascule.loop.backends import Backends, Chosen, UnknownModel
from bascule.loop.budgets import DEFAULT_SETTINGS, LoopSettings
from bascule.model.backend import BackendRecord
from bascule.model.server import ServerRecord
from bascule.model.snapshot import Snapshot
from bascule.outbound.rules import NodeRules
from bascule.testing import ScriptedUpstream
from tests.asgi.caller import make_tokens
from tests.doors.door import ANYBODY
from tests.loop.fakes import FakeUpstream, Json
from tests.node.fakes import World
from tests.policy.build import server

READ, WRITE = "mcp__fs__read", "mcp__fs__write"
TASKS: dict[str, Json] = {
    "writer": {"enabled": True, "default_server_ids": ["fs"]},
    "reader": {"enabled": True, "default_server_ids": ["fs"], "tool_allowlist": ["fs/read"]},
    "off": {"enabled": False},
    "bare": {},
    "open": {"enabled": True, "default_server_ids": ["fs"], **ANYBODY},
}


class FakeBackends:
    """One backend named ``fake`` with one model ``m``."""

    def __init__(self, upstream: FakeUpstream) -> None:
        self.upstream = upstream

    async def choose(self, model: str) -> Chosen:
        if model.removeprefix("fake/") != "m":
            raise UnknownModel(f"no backend answers for the model {model!r}")
        return Chosen(self.upstream, "m")

    async def models(self) -> list[Json]:
        row = {"object": "model", "created": 1, "owned_by": "fake"}
        return [{"id": name, **row} for name in ("fake/m", "m")]


class Site:
    """What a test needs of the door."""

    def __init__(
        self,
        *,
        settings: LoopSettings = DEFAULT_SETTINGS,
        clock: Clock = SYSTEM_CLOCK,
        backends: ModelChooser | None = None,
        records: tuple[ServerRecord, ...] = (server("fs"), server("git")),
        approvals: Approvals | None = None,
        parked: ParkedTurns | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        self.world = World(*records, approver=approvals, tasks=TASKS)
        self.upstream = FakeUpstream()
        self.tokens: Tokens = tokens or make_tokens()
        self.metrics = Metrics()
        self.sessions = Sessions(self.world.core, self.tokens)
        self.routes: list[GuardedRoute] = [
            *chat_routes(
                self.sessions,
                backends or FakeBackends(self.upstream),
                ChatParts(
                    settings=settings,
                    metrics=self.metrics,
                    clock=clock,
                    parked=parked,
                    questions=approvals,
                ),
            ),
            *tools_routes(self.sessions),
            *gateway_routes(Gateway(self.sessions, self.tokens.key_for)),
        ]
        self.app = GuardedApp(self.routes, self.tokens)
        self.url = ""

    def script(self, *steps: Any) -> FakeUpstream:
        """Let the upstream take these steps from now on."""
        self.upstream.script(*steps)
        return self.upstream

    async def token(self, task: str = "writer") -> str:
        return (await self.tokens.mint("alice", "client", task_id=task)).token

    @asynccontextmanager
    async def client(self, task: str = "writer") -> AsyncGenerator[AsyncOpenAI, None]:
        """Return OpenAI's client with a token for a task."""
        token = await self.token(task)
        async with AsyncOpenAI(
            base_url=f"{self.url}/v1", api_key=token, max_retries=0, timeout=10
        ) as client:
            yield client

    async def post(
        self, body: bytes, task: str | None = "writer", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a body as it is; return status, headers and the answer's bytes."""
        given = {"Content-Type": "application/json", **(headers or {})}
        if task is not None:
            given["Authorization"] = f"Bearer {await self.token(task)}"
        async with (
            aiohttp.ClientSession() as http,
            http.post(
                f"{self.url}/v1/chat/completions", data=io.BytesIO(body), headers=given
            ) as answer,
        ):
            found = {name.lower(): value for name, value in answer.headers.items()}
            return answer.status, found, await answer.read()


@asynccontextmanager
async def backed(
    key: str | None = None, **site_options: Any
) -> AsyncGenerator[tuple[Site, ScriptedUpstream], None]:
    """Serve a site whose one backend ``a``, with a model ``m``, is a scripted server."""
    async with ScriptedUpstream(key=key) as upstream:
        record = BackendRecord(name="a", base_url=upstream.url, models=("m",))
        backends = Backends(
            lambda: Snapshot(backends={"a": record}),
            rules=NodeRules(),
            built_in={REHEARSAL: Rehearsal()},
            environ={},
        )
        try:
            async with serving(Site(backends=backends, **site_options)) as site:
                yield site, upstream
        finally:
            await backends.close()


@asynccontextmanager
async def serving(site: Site) -> AsyncGenerator[Site, None]:
    """Serve a site while the block runs."""
    async with site.sessions, Serving(site.app, limits=Limits(drain_seconds=1)) as server_:
        site.url = server_.url
        yield site
