"""Fifty tenants beside each other: nobody ever gets an answer that was another's."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bascule.asgi.bounded_http import Limits
from bascule.asgi.connections import Caps
from bascule.asgi.guard import GuardedApp
from bascule.asgi.serve import Serving
from bascule.audit.events import CallEvent
from bascule.audit.ledger import MemoryLedger
from bascule.auth.tokens import Tokens
from bascule.client.http import ApiClient
from bascule.doors.sessions import Sessions
from bascule.doors.tools.api import tools_routes
from bascule.model.server import ServerRecord, Sharing
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.node.assembly import Bridge
from bascule.testing.server import ScriptedServer, do
from tests.asgi.caller import make_tokens
from tests.flow.matrix import PLACES
from tests.flow.servers import PATIENT
from tests.scale import SOAK, scaled

TENANTS = 50
CALLS = scaled(20_000)
#: Every request of every tenant has this id. With a connection for each session, the servers see
#: equal ids too: each connection counts its requests from 1.
SAME_ID = {"X-Request-Id": "1"}
#: Answers come at once, or after progress.
SCRIPT = ScriptedServer(behaviours={"echo": "echo", "slow": do("progress", count=2)})
#: All tenants come from one address, and at once.
CROWDED = Limits(connections=Caps(strangers=512))
BUDGETS = {"max_concurrency": 64, "tool_timeout_ms": 60_000, "list_timeout_ms": 60_000}
WAYS: list[tuple[str, Sharing]] = [
    ("stdio legacy", "shared"),
    ("stdio modern", "shared"),
    ("http modern json", "shared"),
    ("http modern json", "session"),
    ("http modern json", "task"),
    ("http legacy sse", "shared"),
    ("http legacy sse", "session"),
]


class Tenant:
    """One token, and what came back to it that it did not ask for."""

    def __init__(self, number: int, token: str, token_id: str) -> None:
        self.number = number
        self.token = token
        self.token_id = token_id
        self.answered = 0
        self.crossed: list[str] = []

    async def call(self, api: ApiClient, tool: str, turn: int) -> None:
        """Make a call whose text is this tenant's, and look whose text comes back."""
        text = f"tenant {self.number} call {turn}"
        body = {"name": f"mcp__fs__{tool}", "arguments": {"text": text}}
        answer = await api.request(
            "POST", "/api/v1/tools/call", body=body, headers=SAME_ID, seconds=60
        )
        outcome: Any = answer.body
        self.answered += 1
        if text != outcome["text"]:
            self.crossed.append(f"{text!r} got {outcome}")


@asynccontextmanager
async def served(record: ServerRecord, ledger: MemoryLedger) -> AsyncGenerator[tuple[str, Tokens]]:
    """Serve the tools API over a bridge to one server, with a task for each tenant."""
    tasks = {
        f"task-{number}": TaskRecord(
            task_id=f"task-{number}", mcp=TaskPolicy(enabled=True, default_server_ids=("fs",))
        )
        for number in range(TENANTS)
    }
    snapshot = Snapshot(revision=1, servers={"fs": record}, tasks=tasks)
    tokens = make_tokens()
    async with (
        Bridge.open(snapshot, settings=PATIENT, ledger=ledger) as bridge,
        Sessions(bridge, tokens) as sessions,
        Serving(GuardedApp(tools_routes(sessions), tokens), limits=CROWDED) as server,
    ):
        yield server.url, tokens


async def work(url: str, tenant: Tenant, calls: int) -> None:
    """Make a tenant's calls, several at once, over connections of its own."""
    dice = random.Random(tenant.number)
    async with ApiClient(url, tenant.token) as api:
        for first in range(0, calls, 4):
            turns = range(first, min(first + 4, calls))
            tools = [dice.choice(("echo", "echo", "slow")) for _ in turns]
            pairs = zip(tools, turns, strict=True)
            await asyncio.gather(*(tenant.call(api, *pair) for pair in pairs))


@pytest.mark.requirement("security:tenants:crossed")
@pytest.mark.timeout(3600 if SOAK else 120)
@pytest.mark.parametrize(("way", "sharing"), WAYS)
async def test_no_tenant_gets_an_answer_that_was_anothers(way: str, sharing: Sharing):
    [place] = [one for one in PLACES if one.name == way]
    ledger = MemoryLedger(limit=4 * CALLS + 1000)
    async with (
        place.serving(SCRIPT, "fs", budgets=BUDGETS, sharing=sharing) as record,
        served(record, ledger) as (url, tokens),
    ):
        tenants: list[Tenant] = []
        for number in range(TENANTS):
            made = await tokens.mint("same name", "client", task_id=f"task-{number}")
            tenants.append(Tenant(number, made.token, made.record.id))
        async with asyncio.timeout(3000 if SOAK else 100):
            await asyncio.gather(*(work(url, one, CALLS // TENANTS) for one in tenants))
    assert [crossed for tenant in tenants for crossed in tenant.crossed] == []
    assert sum(tenant.answered for tenant in tenants) == CALLS // TENANTS * TENANTS
    tasks = {tenant.token_id: f"task-{tenant.number}" for tenant in tenants}
    written = ledger.calls()
    assert len(written) == CALLS // TENANTS * TENANTS
    for event in written:
        assert_own(event, tasks)


def assert_own(event: CallEvent, tasks: dict[str, str]) -> None:
    """Check that what was written of a call names one tenant throughout."""
    assert event.token_id is not None
    assert event.task_id == tasks[event.token_id]
    assert event.request_id.startswith(f"{event.session_id}-")
