"""The chat door on a real HTTP server, with real backends and a server of files that is a fake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from bascule.asgi.guard import GuardedApp
from bascule.asgi.serve import Limits, Serving
from bascule.audit.approvals import Approvals
from bascule.demo.rehearsal import REHEARSAL, Rehearsal
from bascule.doors.chat.api import ChatParts, chat_routes
from bascule.doors.sessions import Sessions
from bascule.doors.tools.api import tools_routes
from bascule.loop.backends import Backends
from bascule.loop.budgets import DEFAULT_SETTINGS, LoopSettings
from bascule.model.backend import BackendRecord
from bascule.model.server import ServerRecord
from bascule.model.snapshot import Snapshot
from bascule.outbound.rules import NodeRules
from bascule.testing import ScriptedUpstream
from tests.asgi.caller import make_tokens
from tests.cli.served import Done, command
from tests.node.fakes import World
from tests.policy.build import server

TASKS = {"writer": {"enabled": True, "default_server_ids": ["fs"]}}


class Site:
    """A process with the chat door, a server of files and whatever backends a test adds."""

    def __init__(
        self,
        record: ServerRecord | None = None,
        approvals: Approvals | None = None,
        settings: LoopSettings = DEFAULT_SETTINGS,
    ) -> None:
        self.world = World(record or server("fs"), approver=approvals, tasks=TASKS)
        self.tokens = make_tokens()
        self.sessions = Sessions(self.world.core, self.tokens)
        self.records: dict[str, BackendRecord] = {}
        self.backends = Backends(
            lambda: Snapshot(backends=dict(self.records)),
            rules=NodeRules(),
            built_in={REHEARSAL: Rehearsal()},
            environ={},
        )
        parts = ChatParts(settings=settings, questions=approvals)
        routes = [*chat_routes(self.sessions, self.backends, parts), *tools_routes(self.sessions)]
        self.app = GuardedApp(routes, self.tokens)
        self.found: dict[str, str] = {}

    def add(self, upstream: ScriptedUpstream, name: str = "scripted") -> None:
        self.records[name] = BackendRecord(name=name, base_url=upstream.url, models=("m",))

    @property
    def options(self) -> tuple[str, ...]:
        return ("--url", self.found["BASCULE_URL"], "--token", self.found["BASCULE_TOKEN"])

    async def command(self, *words: str, given: str = "") -> Done:
        """Run the command beside what serves it, which it finds by variables."""
        return await asyncio.to_thread(command, "chat", *words, given=given, **self.found)


@asynccontextmanager
async def chat_site(made: Site | None = None) -> AsyncGenerator[Site]:
    """Serve a site while the block runs, with a token for its task."""
    made = made or Site()
    async with made.sessions, Serving(made.app, limits=Limits(drain_seconds=1)) as serving:
        token = (await made.tokens.mint("ada", "client", task_id="writer")).token
        made.found = {"BASCULE_URL": serving.url, "BASCULE_TOKEN": token}
        yield made
    await made.backends.close()
