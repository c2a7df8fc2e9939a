"""The usual call takes the short way: nothing is waited for, and its event is made later.

Here the same things happen in two worlds, one of which lets no call take it: every name is looked
up anew, every connection is waited for, every intent takes its time, every event is made at once.
Both have to decide, send, write, count and answer the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec import to_builtins

from bascule.audit.events import EndedCall, LeavingCall
from bascule.errors import (
    DeadlineExceeded,
    MalformedReply,
    NotDelivered,
    OutcomeUnknown,
    RemoteError,
    ServerUnavailable,
)
from bascule.model.session import SessionLimits
from bascule.node.ports import Route
from bascule.testing import FakeClock
from tests.node.fakes import (
    Answer,
    Doorman,
    FakeApprover,
    FakeCaller,
    Json,
    TracingLedger,
    World,
    text,
)
from tests.policy.build import server
from tests.scale import scaled

LEAK = "AKIA" + "Q3ZK7WXN5PLM2RTV"
FS = server(
    "fs",
    budgets={"max_concurrency": 1, "max_tool_output_bytes": 400},
    approval_policy={"default": "never", "per_tool": {"write": "always"}},
)
BLOCKING = server("fs", hygiene={"leaks": "block"}, budgets={"max_concurrency": 1})
RULES: dict[str, Any] = {"platform": {"tool_denylist": ["fs/delete"]}}
REVOKED: dict[str, Any] = {"platform": {"tool_denylist": ["fs/*"]}}


@dataclass
class Detour(FakeCaller):
    """A caller that lets no call leave at once."""

    connected: set[Route] = field(default_factory=set[Route])

    def way(self, route: Route) -> FakeCaller | None:
        if route not in self.connected:
            return None
        self.connected.remove(route)
        return super().way(route)

    async def connect(self, route: Route, until: float | None) -> None:
        await FakeClock().settle()
        self.connected.add(route)


class Deliberate(TracingLedger):
    """A ledger that takes its time for an intent, and makes every event at once."""

    def intent(self, leaving: LeavingCall) -> Awaitable[None]:
        return self._written(leaving)

    async def _written(self, leaving: LeavingCall) -> None:
        await FakeClock().settle()
        super().intent(leaving)

    def outcome(self, ended: EndedCall) -> None:
        super().outcome(ended)
        self.settle()


class Life:
    """One world and one session in it, to which things happen."""

    def __init__(self, *, detour: bool, limits: SessionLimits) -> None:
        self.approver = FakeApprover()
        self.detour = detour
        self.world = World(
            FS,
            approver=self.approver,
            clock=FakeClock(),
            caller=Detour() if detour else FakeCaller(),
            ledger=Deliberate if detour else TracingLedger,
            **RULES,
        )
        self.session = self.world.session(limits=limits, caller="alice")
        self.answers: list[Any] = []

    async def happen(self, step: Step) -> None:
        if self.detour:
            self.world.caller.epoch += 1  # so that no table is good any more
        async with asyncio.timeout(20):
            await getattr(self, step.kind)(step)
        self.world.apply(FS, **RULES)
        self.approver.answer = True

    def call(self, step: Step) -> asyncio.Task[Any]:
        return asyncio.create_task(
            self.session.call(f"mcp__fs__{step.tool}", step.arguments, **step.limits)
        )

    async def note(self, call: asyncio.Task[Any]) -> None:
        await asyncio.wait({call})
        outcome = "cancelled" if call.cancelled() else to_builtins(call.result())
        self.answers.append(outcome)

    async def plain(self, step: Step) -> None:
        self.world.caller.answers(step.tool, step.answer)
        call = self.call(step)
        await self.note(call)
        step.arguments["text"] = "changed since"  # what was written is what was sent

    async def gone(self, step: Step) -> None:
        """The caller leaves while the server works."""
        self.world.caller.answers(step.tool, doorman := Doorman())
        call = self.call(step)
        if await self._inside(call, doorman) is not None:
            call.cancel()
        await self.note(call)

    async def queued(self, step: Step) -> None:
        """Something happens while a call waits for a place."""
        self.world.caller.answers("read", doorman := Doorman())
        first = asyncio.create_task(self.session.call("mcp__fs__read", {"text": "first"}))
        door = await self._inside(first, doorman)
        second = self.call(step)
        await FakeClock().settle()
        self._disturb(step, second)
        if door is not None:
            door.set()
        await self.note(first)
        door = await self._inside(second, doorman)
        if door is not None:
            door.set()
        await self.note(second)

    async def _inside(self, call: asyncio.Task[Any], doorman: Doorman) -> asyncio.Event | None:
        """Wait until a call has reached its server, or ended before."""
        came = asyncio.create_task(doorman.next())
        await asyncio.wait({call, came}, return_when=asyncio.FIRST_COMPLETED)
        if came.done():
            return came.result()
        came.cancel()
        await asyncio.wait({came})
        return None

    async def asked(self, step: Step) -> None:
        """Something happens while a call waits for approval."""
        self.approver.think()
        self.approver.asked.clear()
        self.approver.answer = step.disturbance != "refuse"
        self.world.caller.answers("write", step.answer)
        call = asyncio.create_task(self.session.call("mcp__fs__write", step.arguments))
        asked = asyncio.create_task(self.approver.asked.wait())
        await asyncio.wait({call, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        await asyncio.wait({asked})
        self._disturb(step, call)
        self.approver.decided.set()
        await self.note(call)

    def _disturb(self, step: Step, call: asyncio.Task[Any]) -> None:
        if step.disturbance == "cancel":
            call.cancel()
        elif step.disturbance == "revoke":
            self.world.apply(FS, **REVOKED)
        elif step.disturbance == "tighten":
            self.world.apply(BLOCKING, **RULES)

    def told(self) -> dict[str, Any]:
        """Return everything that anybody could see afterwards."""
        ledger, core = self.world.ledger, self.world.core
        told = {
            "answers": self.answers,
            "sent": [(sent.tool, sent.payload, sent.timeout) for sent in self.world.sent],
            "events": [to_builtins(event) for event in ledger.events],
            "order": self.world.caller.trace,
            "budget": to_builtins(self.session.budget),
            "metrics": core.metrics.render(),
        }
        return _without(told, self.session.session_id)


def _without(value: Any, id: str) -> Any:
    """Leave out what differs between any two sessions."""
    if isinstance(value, dict):
        return {key: _without(item, id) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without(item, id) for item in value]
    return value.replace(id, "ID") if isinstance(value, str) else value


@dataclass
class Step:
    """Something that happens to a session."""

    kind: str
    tool: str
    arguments: Json
    limits: Json
    answer: Answer
    disturbance: str


ANSWERS: list[Answer] = [
    text("well"),
    text("ünf"),
    text("x" * 1000),
    text("a", "b", structuredContent={"a": 1}),
    text("no", isError=True),
    text(f"it is {LEAK}"),
    text("one\x1b[2J"),
    {"content": 7},
    {},
    DeadlineExceeded("late"),
    OutcomeUnknown("lost"),
    NotDelivered("never left"),
    ServerUnavailable("down"),
    RemoteError(-32602, "what"),
    MalformedReply("what?"),
]
ARGUMENTS: list[Json] = [
    {},
    {"text": "a"},
    {"text": 7},
    {"text": f"see {LEAK}"},
    {"text": "y" * 5000},
    {"deep": {"a": [1, 2.5, None]}, "big": 10**30},
]
LIMITS: list[Json] = [
    {},
    {},
    {"max_output_bytes": 50},
    {"max_output_bytes": 100_000},
    {"timeout": 60.0},
    {"idle_timeout": 60.0},
]
STEPS = st.builds(
    Step,
    kind=st.sampled_from(["plain", "plain", "plain", "gone", "queued", "asked"]),
    tool=st.sampled_from(["read", "read", "read", "delete", "missing"]),
    arguments=st.sampled_from(ARGUMENTS).map(dict[str, Any]),
    limits=st.sampled_from(LIMITS),
    answer=st.sampled_from(ANSWERS),
    disturbance=st.sampled_from(["none", "cancel", "revoke", "tighten", "refuse"]),
)
BUDGETS = st.builds(
    SessionLimits,
    max_total_tool_calls=st.sampled_from([None, 0, 2, 5]),
    max_tool_output_bytes=st.sampled_from([None, 300]),
)


def lived(steps: list[Step], limits: SessionLimits, *, detour: bool) -> dict[str, Any]:
    async def live() -> dict[str, Any]:
        life = Life(detour=detour, limits=limits)
        await life.session.tools()
        for step in steps:
            own = replace(step, arguments=dict(step.arguments))
            await life.happen(own)
        return life.told()

    return asyncio.run(live())


@settings(max_examples=scaled(600), deadline=None, phases=(Phase.explicit, Phase.generate))
@given(steps=st.lists(STEPS, min_size=1, max_size=6), limits=BUDGETS)
def test_the_short_way_decides_writes_and_answers_as_the_long_one(
    steps: list[Step], limits: SessionLimits
):
    short = lived(steps, limits, detour=False)
    long = lived(steps, limits, detour=True)
    for key in short:
        assert short[key] == long[key], key
