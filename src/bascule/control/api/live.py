"""One stream of all that moves: revisions, statuses, figures, approvals and ended calls.

The sources are followed once for all readers, while there are any. What comes is encoded once, and
readers of the same rights share the bytes. A reader that does not keep up is let go.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import ExitStack, aclosing, contextmanager, suppress

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi import sse
from bascule.asgi.errors import Refused
from bascule.asgi.guard import STILL, GuardedRoute, route
from bascule.asgi.parameters import only_parameters
from bascule.audit.approval_rows import ApprovalFilter
from bascule.audit.approvals import Approvals
from bascule.audit.events import CallEvent
from bascule.audit.events import EndedCall as Ended
from bascule.audit.figures import RecentFigures
from bascule.audit.log_lines import LoggedLedger
from bascule.audit.sent_calls import SentCalls
from bascule.auth.identity import Permission, Principal
from bascule.clock import Clock, rfc3339
from bascule.control.api import query
from bascule.control.api.approval_feed import ApprovalFeed
from bascule.control.api.approval_view import shown
from bascule.control.api.nodes import refuse_part
from bascule.control.registry.service import RegistryService
from bascule.control.registry.store import Change
from bascule.errors import BasculeError
from bascule.model.approval import Approval
from bascule.model.status import CombinedStatus
from bascule.wire.api.addresses import LIVE
from bascule.wire.api.live import EndedCall, Hello, RecordChange, RevisionMoved, StatusMoved
from bascule.wire.api.overview import Figures

#: What comes within this is sent together.
GATHER_SECONDS = 0.1
#: A source that failed is followed again after this.
AGAIN_SECONDS = 5.0
#: How many calls a second are told, at most.
MOST_CALLS = 50
#: How many changes of one revision are listed.
MOST_CHANGES = 500
#: How many events are sent together, at most, and how many sendings may wait for a reader.
MOST_GATHERED = 500
MOST_WAITING = 64
Still = Callable[[], Awaitable[Principal | None]]


class Rights(Struct, frozen=True):
    """What a reader may be told: by permission, and of some tasks alone if ``tasks`` says so."""

    permissions: frozenset[Permission]
    tasks: tuple[str, ...] | None

    def among(self, pieces: Iterable[Piece]) -> bytes:
        """Return what a reader may be told of these."""
        return b"".join(piece.text for piece in pieces if self._admit(piece))

    def _admit(self, piece: Piece) -> bool:
        seen = self.tasks is None or all(task in self.tasks for task in piece.task)
        return seen and piece.permission in self.permissions


class Piece(Struct, frozen=True, kw_only=True):
    """An event as it is sent, and who may read it; ``task`` is empty where it is about none."""

    text: bytes
    permission: Permission
    task: tuple[str | None, ...] = ()


_PERMISSIONS: tuple[Permission, ...] = (
    "registry:read",
    "metrics:read",
    "approvals:read",
    "audit:read",
)


def rights_of(asking: Principal) -> Rights:
    """Return what somebody may be told."""
    may = frozenset[Permission](permission for permission in _PERMISSIONS if asking.may(permission))
    return Rights(may, asking.tasks)


class Reader:
    """What waits for one reader: bytes that it shares with others."""

    def __init__(self, rights: Rights) -> None:
        self.rights = rights
        self._waiting: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._late = False

    def put(self, text: bytes) -> None:
        """Leave something to be sent; nothing at all has the token looked at."""
        if text or not self._waiting:
            self._waiting.append(text)
        if len(self._waiting) > MOST_WAITING:
            self._late = True
            self._waiting.clear()
        self._news.set()

    async def next(self) -> bytes:
        """Wait for the next; raise Refused once too much has waited."""
        while not self._waiting:
            if self._late:
                raise Refused("compacted", "too much was not read: open the stream again")
            self._news.clear()
            await self._news.wait()
        return self._waiting.popleft()


class Live:
    """Follows everything for its readers. ``run`` it beside them."""

    def __init__(
        self,
        service: RegistryService,
        figures: RecentFigures,
        *,
        clock: Clock,
        approvals: Approvals | None = None,
        ledger: LoggedLedger | None = None,
        sent: SentCalls | None = None,
    ) -> None:
        self._sent = sent
        self._service = service
        self._figures = figures
        self._clock = clock
        self._approvals = approvals
        self._ledger = ledger
        self._readers: set[Reader] = set()
        self._wanted = asyncio.Event()
        self._unwanted = asyncio.Event()
        #: Where the first reader began.
        self._since = 0
        self._reported = asyncio.Event()
        service.standing.listen(self._reported.set)
        self._gathered: list[Piece] = []
        #: How servers stand, and what waits for approval: what a new reader is told first.
        self._standing: dict[tuple[str, str], Piece] = {}
        self._news = asyncio.Event()
        #: What tells of each call that ended, here or at a node elsewhere.
        self._ended: deque[Callable[[], CallEvent]] = deque(maxlen=MOST_CALLS)

    def routes(self) -> list[GuardedRoute]:
        """Return the route of the stream."""
        return [route(LIVE, self._watch, ["GET"], permission="registry:read")]

    async def run(self) -> None:
        """Follow the sources while anybody reads, until cancelled."""
        while True:
            await self._wanted.wait()
            with self._subscribed():
                async with asyncio.TaskGroup() as group:
                    works = [self._revisions(), self._statuses(), self._steps(), self._sending()]
                    tasks = [group.create_task(work) for work in works]
                    await self._unwanted.wait()
                    for task in tasks:
                        task.cancel()

    # --- the readers' side

    async def _watch(self, request: Request) -> Response:
        """Stream what happens, each event to those who may read it."""
        only_parameters(request)
        asking = query.principal(request)
        refuse_part(self._service, asking)
        rights = rights_of(asking)
        return sse.EventStream(self._read(rights, request.scope[STILL]), self._clock)

    async def _read(self, rights: Rights, still: Still) -> AsyncGenerator[sse.Event | bytes, None]:
        with self._joined(rights) as reader:
            now, revision = rfc3339(self._clock.now()) or "", self._service.view.revision
            yield sse.Event(event="hello", data=Hello(revision=revision, now=now))
            while True:
                text = await reader.next()
                await still()
                if text:
                    yield text

    @contextmanager
    def _joined(self, rights: Rights) -> Generator[Reader]:
        reader = Reader(rights)
        reader.put(rights.among(self._standing.values()))
        if not self._readers:
            self._since = self._service.view.revision
            self._unwanted.clear()
            self._wanted.set()
        self._readers.add(reader)
        try:
            yield reader
        finally:
            self._readers.discard(reader)
            if not self._readers:
                self._wanted.clear()
                self._unwanted.set()

    # --- the sources

    @contextmanager
    def _subscribed(self) -> Generator[None]:
        """Be told of what ends and of each second, for a while."""
        with ExitStack() as stack:
            stack.callback(self._forget)
            stack.callback(self._figures.subscribe(self._second))
            if self._ledger is not None:
                self._ledger.on_ended = self._on_ended
            if self._sent is not None:
                stack.callback(self._sent.subscribe(self._on_sent))
            yield

    def _on_ended(self, ended: Ended) -> None:
        self._ended.append(ended.event)

    def _on_sent(self, event: CallEvent) -> None:
        self._ended.append(lambda: event)

    def _forget(self) -> None:
        if self._ledger is not None:
            self._ledger.on_ended = None
        self._ended.clear()
        self._gathered.clear()
        self._standing.clear()

    async def _revisions(self) -> None:
        since = self._since
        while True:
            try:
                async with aclosing(await self._service.watch(since)) as events:
                    async for event in events:
                        since = event.revision
                        if isinstance(event, Change):
                            self._add("revision", moved(event), "registry:read")
            except BasculeError:  # those in between are not known any more
                since = self._service.view.revision
                self._add("revision", RevisionMoved(revision=since, changes=()), "registry:read")
            await self._clock.sleep(AGAIN_SECONDS)

    async def _statuses(self) -> None:
        """Tell how all servers stand, then each that stands otherwise, when a node reports."""
        told: dict[str, CombinedStatus] = {}
        while True:
            self._reported.clear()
            found = await self._service.statuses()
            for id, status in found.items():
                if told.get(id) != status:
                    moved = StatusMoved(server_id=id, status=status)
                    self._standing["status", id] = self._add("status", moved, "registry:read")
            for id in told.keys() - found.keys():
                self._standing.pop(("status", id), None)
            told = found
            await self._reported.wait()

    async def _steps(self) -> None:
        """Tell what is pending, then every step of approvals."""
        while self._approvals is not None:
            feed = ApprovalFeed(self._approvals, ApprovalFilter())
            with suppress(BasculeError):
                async with aclosing(feed.steps()) as steps:
                    async for one in steps:
                        if one is not None:
                            self._step(one)
            await self._clock.sleep(AGAIN_SECONDS)

    def _step(self, one: Approval) -> None:
        piece = self._add("approval", shown(one), "approvals:read", one.call.task_id)
        if one.state == "pending":
            self._standing["approval", one.id] = piece
        else:
            self._standing.pop(("approval", one.id), None)

    def _second(self, figures: Figures) -> None:
        """Tell a second's figures and its calls; whoever gets nothing has its token looked at."""
        for told in self._ended:
            call = ended_call(told())
            self._add("call", call, "audit:read", call.task_id)
        self._ended.clear()
        self._add("figures", figures, "metrics:read")
        self._send(always=True)

    # --- sending

    def _add(self, name: str, data: Struct, permission: Permission, *task_id: str | None) -> Piece:
        text = sse.encode(sse.Event(event=name, data=data))
        piece = Piece(text=text, permission=permission, task=task_id)
        self._gathered.append(piece)
        if len(self._gathered) >= MOST_GATHERED:
            self._send()
        self._news.set()
        return piece

    async def _sending(self) -> None:
        """Send what comes together."""
        while True:
            await self._news.wait()
            await self._clock.sleep(GATHER_SECONDS)
            self._send()

    def _send(self, *, always: bool = False) -> None:
        """Give every reader what it may be told, the same bytes to all with the same rights."""
        self._news.clear()
        pieces, self._gathered = self._gathered, []
        made: dict[Rights, bytes] = {}
        for reader in self._readers:
            text = made.get(reader.rights)
            if text is None:
                text = made[reader.rights] = reader.rights.among(pieces)
            if text or always:
                reader.put(text)


def moved(change: Change) -> RevisionMoved:
    """Return what a revision did, of very much the beginning."""
    entries = change.entries[:MOST_CHANGES]
    return RevisionMoved(
        revision=change.revision,
        changes=tuple(
            RecordChange(
                kind=entry.kind,
                id=entry.id,
                action="delete" if entry.stored is None else "upsert",
            )
            for entry in entries
        ),
        more=len(change.entries) - len(entries),
    )


def ended_call(event: CallEvent) -> EndedCall:
    """Return what is told of a call that ended: nothing that it said or was said to it."""
    return EndedCall(
        request_id=event.request_id,
        at=rfc3339(event.timestamp) or "",
        server_id=event.server_id,
        tool_name=event.tool_name,
        task_id=event.task_id,
        person=event.person,
        status=event.status,
        code=event.code,
        duration_ms=round(event.duration_ms, 3),
    )
