"""Fakes of the bridge's ports: real implementations that do what a test tells them.

``FakeCaller`` is a ``ToolCaller`` in memory, ``FakeApprover`` an ``Approver`` that waits when it
should, ``World`` a bridge joined to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import convert
from msgspec.structs import replace

from bascule.audit.events import (
    CallEvent,
    CallIntent,
    EndedCall,
    LeavingCall,
    SessionOpened,
    ToolsListed,
)
from bascule.audit.ledger import MemoryLedger
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import BasculeError, ServerUnavailable
from bascule.model.call import NOTHING_BESIDE, Beside, Progress
from bascule.model.outcome import Failed, Outcome, Success
from bascule.model.platform import PlatformRecord
from bascule.model.server import ServerRecord
from bascule.model.snapshot import Snapshot
from bascule.model.status import ServerStatus
from bascule.model.task import TaskRecord
from bascule.model.tool import describe
from bascule.model.user import UserRecord
from bascule.node.bridge.core import BridgeCore
from bascule.node.bridge.session import Session
from bascule.node.ports import (
    ApprovalRequest,
    Approvals,
    Approver,
    InputHandler,
    Listing,
    Outgoing,
    Route,
    StillStarting,
)
from bascule.node.settings import NodeSettings
from bascule.node.sharing import Belonging
from tests.policy.build import server
from tests.waits import SOON_SECONDS

Json = dict[str, Any]
TEXT_SCHEMA: Json = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "count": {"type": "integer"}},
}


def text(*texts: str, **more: Any) -> Json:
    """Make a result of text blocks."""
    return {"content": [{"type": "text", "text": each} for each in texts], **more}


def definition(name: str, **more: Any) -> Json:
    return {"name": name, "description": f"The {name} tool.", "inputSchema": TEXT_SCHEMA, **more}


@dataclass(frozen=True)
class Sent:
    """One call as it reached the other side of the bridge."""

    server: str
    session: str
    tool: str
    payload: bytes
    timeout: float
    until: float | None
    again: bool
    on_progress: Callable[[Progress], None] | None
    decide: Callable[[], Awaitable[None]] | None = None
    beside: Beside = NOTHING_BESIDE


Answer = Json | BasculeError | Callable[[Sent], Awaitable[Json]]


@dataclass
class FakeCaller:
    """A ``ToolCaller`` that answers from a table and remembers what reached it."""

    epoch: int = 0
    known_values: frozenset[str] = frozenset()
    reference_values: frozenset[str] = frozenset()
    sent: list[Sent] = field(default_factory=list[Sent])
    listed: list[str] = field(default_factory=list[str])
    #: How often a server's list was waited for.
    asked: int = 0
    released: list[str] = field(default_factory=list[str])
    offered: dict[str, InputHandler] = field(default_factory=dict[str, InputHandler])
    introduced: dict[str, Belonging] = field(default_factory=dict[str, Belonging])
    trace: list[str] = field(default_factory=list[str])
    #: Servers that nobody should wait for, and whether they have not failed so before.
    slow: dict[str, bool] = field(default_factory=dict[str, bool])
    _listings: dict[str, Listing | BasculeError] = field(
        default_factory=dict[str, "Listing | BasculeError"]
    )
    _answers: dict[str, Answer] = field(default_factory=dict[str, "Answer"])
    _gates: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])
    _connecting: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])
    _versions: int = 0

    def offers(
        self,
        record: ServerRecord,
        *tools: str | Json,
        warnings: Iterable[str] = (),
        instructions: str | None = None,
    ) -> None:
        """Let a server list these tools from now on."""
        self._versions += 1
        self.epoch += 1
        definitions = [definition(each) if isinstance(each, str) else each for each in tools]
        described = sorted((describe(record, each) for each in definitions), key=lambda t: t.name)
        self._listings[record.server_id] = Listing(
            tuple(described), tuple(warnings), self._versions, instructions=instructions
        )

    def fails(self, server_id: str, error: BasculeError) -> None:
        """Let a server's list fail from now on."""
        self._listings[server_id] = error

    def answers(self, tool: str, answer: Answer) -> None:
        """Give a tool's result, its error, or what it does."""
        self._answers[tool] = answer

    def hold_listing(self, server_id: str) -> asyncio.Event:
        """Let the lists of a server wait until the event is set."""
        return self._gates.setdefault(server_id, asyncio.Event())

    def statuses(self) -> list[ServerStatus]:
        listed = [one for one, found in self._listings.items() if isinstance(found, Listing)]
        return [ServerStatus(server_id=one, state="connected") for one in listed]

    async def reconnect(self, server_id: str) -> None:
        self.epoch += 1
        self.trace.append(f"reconnect {server_id}")

    def hide(self, *values: str) -> None:
        """Let these be values that came from references, and credentials."""
        self.known_values = self.reference_values = frozenset(values)

    async def listing(self, server_id: str, session_id: str, *, patient: bool = True) -> Listing:
        del session_id
        self.listed.append(server_id)
        self.asked += 1
        if not patient and server_id in self.slow:
            raise StillStarting("starting", hopeful=self.slow[server_id])
        gate = self._gates.get(server_id)
        if gate is not None:
            await gate.wait()
        found = self._listings.get(server_id) or ServerUnavailable(f"no server {server_id!r}")
        if isinstance(found, BasculeError):
            raise found
        return found

    def fresh(self, server_id: str, session_id: str) -> Listing | None:
        """Return what a server lists at once."""
        del session_id
        found = self._listings.get(server_id)
        gate = self._gates.get(server_id)
        if isinstance(found, Listing) and server_id not in self.slow and gate is None:
            self.listed.append(server_id)
            return found
        return None

    def hold_connecting(self, server_id: str) -> asyncio.Event:
        """Let calls of a server wait for its connection until the event is set."""
        return self._connecting.setdefault(server_id, asyncio.Event())

    def way(self, route: Route) -> FakeCaller | None:
        gate = self._connecting.get(route.server_id)
        return self if gate is None or gate.is_set() else None

    async def connect(self, route: Route, until: float | None) -> None:
        self.trace.append("connect")
        async with asyncio.timeout_at(until):
            await self._connecting[route.server_id].wait()

    def progress(self, server_id: str, session_id: str) -> str | None:
        del session_id
        return "starting" if server_id in self.slow else None

    async def send(self, call: Outgoing) -> Json:
        route = call.route
        sent = Sent(
            route.server_id,
            route.session_id,
            route.tool,
            call.arguments,
            call.timeout,
            call.until,
            route.again,
            call.beside.on_progress,
            call.decide,
            call.beside,
        )
        self.sent.append(sent)
        self.trace.append("send")
        answer = self._answers.get(route.tool, text("done"))
        if isinstance(answer, BasculeError):
            raise answer
        return answer if isinstance(answer, dict) else await answer(sent)

    def introduce(self, session_id: str, whose: Belonging) -> None:
        self.introduced[session_id] = whose

    def offer(self, session_id: str, inputs: InputHandler) -> None:
        self.offered[session_id] = inputs

    async def release(self, session_id: str) -> None:
        self.released.append(session_id)


class Doorman:
    """A tool that lets each call in, and answers when told to; no call passes by itself."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self._came: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    async def __call__(self, sent: Sent) -> Json:
        self.inside += 1
        self.most = max(self.most, self.inside)
        door = asyncio.Event()
        self._came.put_nowait(door)
        try:
            await door.wait()
        finally:
            self.inside -= 1
        return text(sent.tool)

    async def next(self) -> asyncio.Event:
        """Wait for the next call to arrive; setting its event lets it answer."""
        async with asyncio.timeout(SOON_SECONDS):
            return await self._came.get()


class FakeApprover:
    """An ``Approver`` that remembers the questions and answers when the test does."""

    def __init__(self, *, answer: bool = True) -> None:
        self.answer = answer
        self.questions: list[ApprovalRequest] = []
        self.asked = asyncio.Event()
        self.decided = asyncio.Event()
        self.decided.set()

    def think(self) -> None:
        """Wait with every answer until ``decided`` is set."""
        self.decided.clear()

    async def approve(self, request: ApprovalRequest) -> bool:
        self.questions.append(request)
        self.asked.set()
        await self.decided.wait()
        return self.answer


#: Under which the ledgers of worlds digest arguments.
DIGEST_KEY = bytes(32)


class TracingLedger(MemoryLedger):
    """A ledger in memory that also says, in one line with others, what it wrote."""

    def __init__(self, trace: list[str]) -> None:
        super().__init__()
        self.digest_key = DIGEST_KEY
        self.trace = trace

    def intent(self, leaving: LeavingCall) -> Awaitable[None] | None:
        self.trace.append("intent")
        return super().intent(leaving)

    def outcome(self, ended: EndedCall) -> None:
        super().outcome(ended)
        self.trace.append(ended.status)

    def opened(self) -> list[SessionOpened]:
        return [event for event in self.events if isinstance(event, SessionOpened)]

    def listings(self) -> list[ToolsListed]:
        return [event for event in self.events if isinstance(event, ToolsListed)]

    def intents(self) -> list[CallIntent]:
        return [event for event in self.events if isinstance(event, CallIntent)]

    @property
    def last(self) -> CallEvent:
        return self.calls()[-1]


class World:
    """A bridge over fakes: ``fs`` offers read, write and delete unless records are given."""

    def __init__(
        self,
        *records: ServerRecord,
        approver: Approver | Approvals | None = None,
        clock: Clock = SYSTEM_CLOCK,
        settings: NodeSettings | None = None,
        caller: FakeCaller | None = None,
        ledger: type[TracingLedger] = TracingLedger,
        **snapshot: Any,
    ) -> None:
        self.caller = caller or FakeCaller()
        self.ledger = ledger(self.caller.trace)
        self.approver = approver
        self.records: tuple[ServerRecord, ...] = records or (server("fs"),)
        for record in self.records:
            self.caller.offers(record, "read", "write", "delete")
        self.core = BridgeCore(
            snapshot_of(1, self.records, snapshot),
            self.caller,
            self.ledger,
            approver=approver,
            clock=clock,
            settings=settings,
        )

    def session(self, *server_ids: str, **options: Any) -> Session:
        """Open a session; without servers and without a task it uses all of them."""
        if not server_ids and "task" not in options and "server_ids" not in options:
            server_ids = tuple(record.server_id for record in self.records)
        if server_ids:
            options["server_ids"] = list(server_ids)
        return self.core.session(**options)

    def apply(self, *records: ServerRecord, **snapshot: Any) -> None:
        """Let the registry move on by one revision."""
        revision = self.core.snapshot.revision + 1
        self.core.snapshot = snapshot_of(revision, records or self.records, snapshot)

    @property
    def sent(self) -> list[Sent]:
        return self.caller.sent


def snapshot_of(
    revision: int, records: Iterable[ServerRecord], fields: Mapping[str, Any]
) -> Snapshot:
    tasks: Mapping[str, Any] = fields.get("tasks", {})
    users: Mapping[str, Any] = fields.get("users", {})
    return replace(
        Snapshot(
            revision=revision,
            servers={record.server_id: record for record in records},
            platform=convert(fields.get("platform", {}), PlatformRecord),
        ),
        tasks={
            key: convert({"task_id": key, "mcp": mcp}, TaskRecord) for key, mcp in tasks.items()
        },
        users={key: convert({"user_id": key} | one, UserRecord) for key, one in users.items()},
    )


def succeeded(outcome: Outcome) -> Success:
    assert isinstance(outcome, Success), outcome
    return outcome


def cut(outcome: Outcome) -> Success:
    """Return a result that was cut, which is an answer all the same."""
    assert isinstance(outcome, Success), outcome
    assert outcome.truncated is not None, outcome
    assert outcome.truncated.error.code == "mcp_output_too_large"
    return outcome


def failed(outcome: Outcome, code: str) -> Failed:
    assert isinstance(outcome, Failed), outcome
    assert outcome.error.code == code, outcome
    return outcome
