"""Approvals: questions that wait for somebody, and answers that are used once.

``Approvals`` is what the bridge asks and what people decide by; where they are kept is a store, in
memory or in the ledger's database. Each step is one transaction there, with its row of the chain.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Coroutine, Sequence
from contextlib import suppress
from typing import Protocol, TypeAlias, TypeVar

from msgspec.structs import replace

from bascule.audit import approval_steps as steps
from bascule.audit.approval_rows import ApprovalFilter, Date, MemoryRows, Sealer, SqlRows
from bascule.audit.approval_settings import ApprovalSettings
from bascule.audit.approval_steps import ApprovalRefused, Decision
from bascule.audit.events import LeavingCall
from bascule.audit.journaled_ledger import JournaledLedger
from bascule.audit.ledger import LedgerUnavailable
from bascule.audit.ledger_file import writing
from bascule.audit.upkeep import look_after
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.db.errors import StoreUnavailable
from bascule.db.group import Group
from bascule.db.statements import Statements
from bascule.errors import BasculeError, BudgetExceeded, OutcomeUnknown
from bascule.model.approval import (
    STEPS,
    Answer,
    Approval,
    ApprovalRequest,
    Approved,
    Denied,
    ExactCall,
    OnWaiting,
    Shown,
    Waiting,
)

logger = logging.getLogger("bascule.approvals")
T = TypeVar("T")
AnyRows: TypeAlias = MemoryRows | SqlRows
OnStep: TypeAlias = Callable[[Approval], None]
Unsubscribe: TypeAlias = Callable[[], None]
_Refusal: TypeAlias = ApprovalRefused | BudgetExceeded
_REFUSALS = (ApprovalRefused, BudgetExceeded)

#: How often those who wait look whether another process has decided.
_POLL_SECONDS = 1.0
_SWEEP_SECONDS = 5.0
_FORGET_SECONDS = 3_600.0
_PENDING = ApprovalFilter(states=("pending",), limit=2**31)
#: For how long what came to its end can be listed.
KEPT_SECONDS = 7 * 86_400.0


class ApprovalStore(Protocol):
    """What keeps approvals."""

    async def step(self, work: Callable[[AnyRows], T]) -> T:
        """Run a step as one transaction; it is durable on return. Raise LedgerUnavailable."""
        ...

    async def read(self, work: Callable[[AnyRows], T]) -> T:
        """Look at one state of the rows."""
        ...

    async def tidy(self) -> None:
        """Have nothing left behind of what was removed."""
        ...

    def refuse(self, leaving: LeavingCall) -> None:
        """Refuse a call that may not leave now, as the ledger would."""
        ...

    def on_news(self, ring: Callable[[], None]) -> None:
        """Call a function when others have made steps, as far as that is heard of."""
        ...


class MemoryStore:
    """Approvals of this process alone."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.rows = MemoryRows()
        self._date = Date(clock)

    async def step(self, work: Callable[[AnyRows], T]) -> T:
        """Run a step at once."""
        self.rows.begin(self._date)
        return work(self.rows)

    async def read(self, work: Callable[[AnyRows], T]) -> T:
        """Look at the rows, as of now."""
        self.rows.begin(self._date)
        return work(self.rows)

    async def tidy(self) -> None:
        """Leave nothing: nothing is on a disk."""

    def refuse(self, leaving: LeavingCall) -> None:
        """Refuse nothing."""

    def on_news(self, ring: Callable[[], None]) -> None:
        """Hear of nothing: there are no others."""


class LedgerStore:
    """Approvals in the ledger's database, each step with its row of the chain."""

    def __init__(
        self, ledger: JournaledLedger, sealer: Sealer, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._ledger = ledger
        self._sealer = sealer
        self._date = Date(clock)
        self._group: Group[Statements] = Group(ledger.database)
        self._epoch = ledger.epoch()
        self._forgot = False
        #: Whether the log says already that nothing can be read.
        self._unread = False

    async def open(self) -> LedgerStore:
        """Void what is open if the ledger was restored or copied."""

        await self._write(lambda _: None, opening=True)
        return self

    def close(self) -> None:
        """Let go of the mark beside the ledger."""
        self._epoch.close()

    async def step(self, work: Callable[[AnyRows], T]) -> T:
        """Run a step; those that come together share a commit."""
        return await self._write(work)

    async def read(self, work: Callable[[AnyRows], T]) -> T:
        """Look at one state of the rows."""
        try:
            found = await self._ledger.database.read(lambda found: work(self._rows(found)))
        except StoreUnavailable as error:
            if not self._unread:
                logger.warning("approvals cannot be read: %s", error)
            self._unread = True
            raise LedgerUnavailable("approvals cannot be read now; see the log") from None
        self._unread = False
        return found

    async def tidy(self) -> None:
        """Empty the write-ahead log of what was removed."""
        if self._forgot:
            self._forgot = False
            await self._ledger.database.forget_log()

    def refuse(self, leaving: LeavingCall) -> None:
        """Refuse a call that may not leave now, as the ledger would."""
        self._ledger.refuse(leaving)

    def on_news(self, ring: Callable[[], None]) -> None:
        """Call a function when another replica has made steps."""
        self._ledger.bells.append(ring)

    async def _write(self, work: Callable[[SqlRows], T], *, opening: bool = False) -> T:
        def run(statements: Statements) -> tuple[T, SqlRows]:
            rows = self._rows(statements)
            if (opening or self._epoch.always) and self._epoch.renew(statements, rows.steps):
                rows.voided = len(steps.void_all(rows, self._epoch.reason))
            result = work(rows)
            rows.finish()
            return result, rows

        try:
            with writing(self._ledger.database, "an approval"):
                result, rows = await self._group.write(run, after=lambda done: self._done(done[1]))
        except LedgerUnavailable:
            self._ledger.note_added(0)  # which finds out what is wrong, and mends it
            raise
        if rows.moved:
            self._ledger.note_added(rows.number)
        return result

    def _rows(self, statements: Statements) -> SqlRows:
        ledger = self._ledger
        return SqlRows(statements, self._sealer, self._date, ledger.journal_id, ledger.tables)

    def _done(self, rows: SqlRows) -> None:
        """Right after the commit, whoever still waits for it."""
        if rows.voided:
            logger.warning("%d approvals are void: %s", rows.voided, self._epoch.reason)
        self._forgot = self._forgot or rows.forgot
        if rows.moved or self._epoch.always:
            self._epoch.mark(rows.steps)


class Approvals:
    """The approvals of one process. ``run`` it beside whatever asks."""

    def __init__(
        self,
        store: ApprovalStore,
        settings: ApprovalSettings | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.settings = settings or ApprovalSettings()
        self._store = store
        self._clock = clock
        self._listeners: list[OnStep] = []
        self._moved = asyncio.Event()
        #: How many calls wait for each question, or may come back to it.
        self._interested: Counter[str] = Counter()
        self._withdrawing: set[asyncio.Task[None]] = set()
        self._forget_at = clock.monotonic()
        self._stopping = False
        #: Says which tokens there are, where questions of others are to be taken back.
        self.living: Callable[[], Awaitable[Container[str]]] | None = None
        #: How often others were heard to have made steps.
        self.heard = 0
        store.on_news(self._hear)

    # --- the bridge's side

    async def ask(
        self,
        request: ApprovalRequest,
        wait: float | None,
        told: OnWaiting | None = None,
        *,
        node: str | None = None,
    ) -> Answer:
        """Return the answer to a question, or that there is none yet after so long.

        Whoever is cancelled meanwhile takes the question back, unless others have asked it too;
        who names it by its id has asked it before, and is not another one. ``node`` is the one
        elsewhere that asks.
        Raise LedgerUnavailable, BudgetExceeded, or OutcomeUnknown where the approval that is asked
        for was used, and nothing more is known.
        """
        approval = await self._asked(request, node)
        if isinstance(approval, Denied):
            return approval
        answer = self._answer(approval, request.call)
        if not isinstance(answer, Waiting):
            return answer
        self._join(approval, request, node)
        if wait == 0:
            return answer
        if told is not None:
            told(answer)
        try:
            approval = await self.settled(approval.id, wait)
        except asyncio.CancelledError:
            self.leave(approval.id)
            raise
        return self._answer(approval, request.call)

    async def _asked(self, request: ApprovalRequest, node: str | None) -> Approval | Denied:
        asking = asyncio.ensure_future(
            self._step(lambda rows: steps.ask(rows, request, self.settings, node))
        )
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            self._in_background(self._never_mind(asking, request))
            raise

    async def _never_mind(
        self, asking: asyncio.Future[Approval | Denied], request: ApprovalRequest
    ) -> None:
        """Take a question back that was being written when whoever asked it hung up."""
        with suppress(BasculeError):
            approval = await asking
            if isinstance(approval, Approval) and approval.state == "pending":
                self._join(approval, request)
                self.leave(approval.id)

    def _join(self, approval: Approval, request: ApprovalRequest, node: str | None = None) -> None:
        """Count who has asked; one that came from elsewhere has somebody there."""
        known, own = approval.id in self._interested, approval.request_id == request.request_id
        if not known and (request.approval_id or not own):
            self._interested[approval.id] = 1
        # A node that has not heard the answer asks again, and is no second one.
        again = known and own and node is not None
        if request.approval_id is None and not again:
            self._interested[approval.id] += 1

    def _answer(self, approval: Approval, call: ExactCall) -> Answer:
        if approval.state == "pending":
            return Waiting(approval.id, approval.expires_at)
        if approval.state == "approved":
            return Approved(call, approval.id)
        if approval.state == "claimed":
            raise OutcomeUnknown(f"{approval.id} was used already; what came of that is not known")
        return Denied(steps.in_words(approval), approval.id)

    def leave(self, id: str) -> None:
        """Take a question back, if nobody else has asked it; in the background."""
        self._interested[id] -= 1
        if self._interested[id] <= 0:
            del self._interested[id]
            if not self._stopping:
                self._in_background(self.withdraw(id, "whoever asked has hung up"))

    def _in_background(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._withdrawing.add(task)
        task.add_done_callback(self._withdrawing.discard)

    async def claim(
        self, approved: Approved, call: ExactCall, leaving: LeavingCall, *, node: str | None = None
    ) -> bool:
        """Claim an approval for the call as it is now; say whether its intent is written, too.

        ``node`` is the one elsewhere that claims: again, where it has not heard the answer. Raise
        ApprovalRefused if it cannot be, LedgerUnavailable if that cannot be written.
        """
        if approved.approval_id is None:
            raise AssertionError("there is nothing to claim")
        self._store.refuse(leaving)
        id, intent = approved.approval_id, leaving.intent()
        await self._step(lambda rows: steps.claim(rows, id, call, intent, node))
        return True

    # --- the people's side

    async def decide(self, id: str, decision: Decision) -> Approval:
        """Decide on a question; raise ApprovalRefused."""
        return await self._step(lambda rows: steps.decide(rows, id, decision, self.settings))

    async def withdraw(self, id: str, reason: str) -> None:
        """Take a question back that nobody has decided on."""
        with suppress(LedgerUnavailable):  # it expires, then
            await self._step(lambda rows: steps.withdraw(rows, id, reason))

    async def get(self, id: str) -> Approval | None:
        """Return one approval."""
        return await self._store.read(lambda rows: rows.get(id))

    async def current(self, id: str) -> Approval | None:
        """Return one approval; one whose time is up has ended."""
        found = await self.get(id)
        if found is None or found.state not in STEPS or found.expires_at > self._clock.now():
            return found
        await self._step(steps.expire)
        return await self.get(id)

    async def shown(self, id: str) -> Shown | None:
        """Return what is shown of a question, while it can still be used."""
        return await self._store.read(lambda rows: rows.shown(id))

    async def listing(self, wanted: ApprovalFilter) -> list[Approval]:
        """Return those that are wanted, the newest first."""
        return await self._store.read(lambda rows: rows.listing(wanted))

    async def pending(self) -> list[Approval]:
        """Return all that wait for a decision, the oldest first."""
        return (await self.listing(_PENDING))[::-1]

    async def note_told(self, id: str) -> None:
        """Remember that the hook knows of a question, so that it is not asked again."""

        def work(rows: AnyRows) -> None:
            found = rows.get(id)
            if found is not None and found.state == "pending":
                rows.amend(replace(found, told=True))

        await self._step(work)

    async def settled(self, id: str, seconds: float | None) -> Approval:
        """Wait until a question is not pending any more, at most so long; return it as it is.

        A process that ends waits no longer. Raise ApprovalRefused if there is none.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while (await self._found(id)).state == "pending" and not self._stopping:
                    await self.moved(_POLL_SECONDS)
        return await self._found(id)

    async def moved(self, seconds: float) -> bool:
        """Wait until anything is decided, asked or ended here, at most so long; say if it was."""
        moved = self._moved
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await moved.wait()
        return moved.is_set()

    def subscribe(self, on_step: OnStep) -> Unsubscribe:
        """Call a function after every step that is made here."""
        self._listeners.append(on_step)
        return lambda: self._listeners.remove(on_step)

    # --- upkeep

    async def run(self) -> None:
        """End what nobody decides on in time, and forget what is old, until cancelled."""
        await look_after("approvals", self.sweep, _SWEEP_SECONDS, self._clock)

    async def sweep(self) -> None:
        """Do that once."""
        if await self._store.read(lambda rows: rows.due()):
            await self._step(steps.expire)
        if self._clock.monotonic() >= self._forget_at:
            self._forget_at = self._clock.monotonic() + _FORGET_SECONDS
            before = self._clock.now() - KEPT_SECONDS
            await self._store.step(lambda rows: rows.forget(before))
        await self._withdraw_orphans()
        await self._store.tidy()

    async def _withdraw_orphans(self) -> None:
        """Take back what tokens have asked that are no more: nobody could use the answer."""
        if self.living is None:
            return
        pending = await self.pending()
        asking = {one.id: token for one in pending if (token := one.call.token_id) is not None}
        living = await self.living() if asking else ()
        for id, token in asking.items():
            if token not in living:
                await self.withdraw(id, "the token that asked has ended")

    @property
    def stopping(self) -> bool:
        """Whether the process ends: nobody should wait for a step any more."""
        return self._stopping

    def stop(self) -> None:
        """Let whoever waits come back later: the process ends, and questions stay."""
        self._stopping = True
        self._moved.set()

    async def close(self) -> None:
        """Wait for what is being taken back."""
        while self._withdrawing:
            await asyncio.gather(*self._withdrawing)

    async def _found(self, id: str) -> Approval:
        found = await self.current(id)
        if found is None:
            raise steps.unknown(id)
        return found

    async def _step(self, work: Callable[[AnyRows], T]) -> T:
        """Make a step. What is refused is raised here: what ended meanwhile has ended."""

        def run(rows: AnyRows) -> tuple[T | _Refusal, Sequence[Approval]]:
            try:
                return work(rows), tuple(rows.moved)
            except _REFUSALS as refusal:
                return refusal, tuple(rows.moved)

        result, moved = await self._store.step(run)
        for approval in moved:
            self._tell(approval)
        if moved:
            self._wake()
        if isinstance(result, _REFUSALS):
            raise result
        return result

    def _hear(self) -> None:
        """Have those who wait look again: somebody elsewhere has made a step."""
        self.heard += 1
        self._wake()

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    def _tell(self, approval: Approval) -> None:
        if approval.state != "pending":
            self._interested.pop(approval.id, None)
        for listener in tuple(self._listeners):
            listener(approval)
