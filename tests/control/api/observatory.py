"""The overview and the live stream over a registry, approvals and a ledger, with fake time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from bascule.asgi.guard import GuardedApp
from bascule.audit.approvals import Approvals
from bascule.audit.approvals import MemoryStore as Questions
from bascule.audit.figures import RecentFigures
from bascule.audit.ledger import MemoryLedger
from bascule.audit.log_lines import LoggedLedger
from bascule.audit.metrics import Metrics
from bascule.auth.identity import Principal
from bascule.auth.memory_token_store import MemoryTokenStore
from bascule.auth.tokens import Tokens
from bascule.control.api.attention import Watched
from bascule.control.api.live import GATHER_SECONDS, Live
from bascule.control.api.overview import overview_routes
from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.registry.status import NodeReport
from bascule.model.role import ROLES, Role
from bascule.model.status import ServerStatus
from bascule.testing.clock import FakeClock
from bascule.wire.api.addresses import LIVE, NODES, OVERVIEW
from tests.asgi.caller import KEY, Answer
from tests.control.api.approval_office import asked, by
from tests.control.api.desk import Counter, Stream
from tests.control.registry.memory_store import MemoryStore


class Known:
    """A principal for each role, by the role's name, and some who see the task home alone."""

    def __init__(self) -> None:
        self.principals: dict[str, Principal] = {
            role: Principal(role, role, None, f"tok-{role}") for role in ROLES
        }
        limited: tuple[Role, ...] = ("viewer", "approver")
        for role in limited:
            name = f"home-{role}"
            self.principals[name] = Principal(name, role, None, f"tok-{name}", tasks=("home",))

    async def verify(self, token: str) -> Principal | None:
        return self.principals.get(token)


class Registry(MemoryStore):
    """A store of records that may refuse writes."""

    words: str | None = None

    @property
    def refusal(self) -> str | None:
        return self.words


class Trouble:
    """A ledger's state; ``trouble`` says what is wrong."""

    number = backlog = 0
    trouble: str | None = None


class Observatory(Counter):
    """Everything that is watched, and the routes."""

    store: Registry

    def __init__(self, service: RegistryService, clock: FakeClock, folder: Path) -> None:
        self.service = service
        self.clock = clock
        self.metrics = Metrics()
        self.approvals = Approvals(Questions(clock), clock=clock)
        self.ledger = LoggedLedger(MemoryLedger(limit=0))
        self.trouble = Trouble()
        self.problems: tuple[str, ...] = ()
        self.known = Known()
        self.figures = RecentFigures(self.metrics, clock=clock)
        self.live = Live(
            service, self.figures, clock=clock, approvals=self.approvals, ledger=self.ledger
        )
        tokens = Tokens(MemoryTokenStore(), KEY, clock, setup_file=folder / "setup-token")
        watched = Watched(
            service=service,
            tokens=tokens,
            approvals=self.approvals,
            ledger=self.trouble,
            problems=lambda: self.problems,
        )
        routes = [
            *overview_routes(watched, self.figures, clock=clock, versions={"n1": "1.2"}),
            *self.live.routes(),
        ]
        super().__init__(routes, tokens)
        self.app = GuardedApp(routes, self.known)
        self.headers = {"viewer": by("viewer")}

    async def overview(self, who: str = "admin") -> Any:
        answer = await self.get(OVERVIEW, who)
        assert answer.status == 200, answer.body
        return answer.json

    async def codes(self, who: str = "admin") -> list[str]:
        return [one["code"] for one in (await self.overview(who))["attention"]]

    async def nodes(self, who: str = "admin") -> Answer:
        return await self.get(NODES, who)

    async def get(self, path: str, who: str) -> Answer:
        return await self.ask("GET", path, role=None, headers=by(who))

    async def question(self, task_id: str = "home", **fields: Any) -> None:
        """Have a call wait for a decision."""
        await self.approvals.ask(asked(task_id=task_id, **fields), 0)

    async def reported(
        self, state: str, error: str | None = None, *, node: str = "ok", name: str = "n1"
    ) -> None:
        """Have a node say how the server fs is, and how it is itself."""
        status = ServerStatus(server_id="fs", state=state, last_error=error)
        now = self.clock.now()
        report = NodeReport(node=name, revision=1, state=node, servers=(status,), at=now)
        await self.service.standing.report(report)

    @asynccontextmanager
    async def reading(self, who: str = "admin") -> AsyncGenerator[Stream]:
        """Read the live stream after its first event, as somebody."""
        self.headers = {"viewer": by(who)}
        async with self.stream(LIVE) as stream:
            assert (await stream.next()).event == "hello"
            await self.clock.settle()
            yield stream

    async def gather(self) -> None:
        """Have what came meanwhile be sent."""
        await self.clock.advance(GATHER_SECONDS)


async def told(stream: Stream) -> tuple[str, Any]:
    """Return the next event: its name and its data."""
    event = await stream.next()
    return event.event, json.loads(event.data)


@asynccontextmanager
async def open_observatory(folder: Path) -> AsyncGenerator[Observatory]:
    clock = FakeClock()
    async with AsyncExitStack() as stack:
        store = Registry(clock=clock)
        service = await stack.enter_async_context(open_registry(store, clock=clock))
        found = Observatory(service, clock, folder)
        found.store = store
        running = asyncio.ensure_future(found.live.run())
        stack.callback(running.cancel)
        yield found
