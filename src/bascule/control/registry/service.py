"""The registry as its faces use it: REST, the command line and the loader are thin over this.

Every write is planned on the newest view and committed only if that is still the newest one, so
that what is checked across records (one namespace, one owner) holds at the moment of the commit,
whoever else writes. Input is plain values, read by the one validator. Nothing is masked here. What
a write allows that was not allowed before is noted first; what cannot be noted is not written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bascule.audit.events import Act
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.control.registry.acceptance import Acceptance
from bascule.control.registry.advice import advice, needs_advice
from bascule.control.registry.assignments import Assignments, AssignmentStore
from bascule.control.registry.authority import refuse_ungoverned
from bascule.control.registry.carryover import Brings
from bascule.control.registry.duties import Duties, Duty, LocalDuties
from bascule.control.registry.errors import (
    AlreadyExists,
    HeadMoved,
    NotFound,
    NotOwned,
)
from bascule.control.registry.history import compare, way_back
from bascule.control.registry.hub import CAPACITY, Hub
from bascule.control.registry.loosenings import loosenings
from bascule.control.registry.nodes import NodeReports
from bascule.control.registry.offload import apart
from bascule.control.registry.plan import (
    Draft,
    Edit,
    KindData,
    draft_import,
    draft_of,
    planned,
)
from bascule.control.registry.standing import Standing
from bascule.control.registry.status import CombinedStatus
from bascule.control.registry.store import (
    PATIENCE,
    Author,
    Change,
    Head,
    Key,
    Proposal,
    Retention,
    Store,
    Stored,
    View,
    Write,
    Writer,
)
from bascule.control.registry.succession import announce
from bascule.control.registry.written import Written
from bascule.db.errors import StoreUnavailable
from bascule.model.json import JsonObject
from bascule.model.kinds import Kind
from bascule.model.snapshot import Snapshot
from bascule.policy.access import Catalogue
from bascule.wire.api.history import RevisionDiff
from bascule.wire.api.imports import ImportMode

_ATTEMPTS = 50
#: How long a write waits for those before it.
_WAIT_SECONDS = 30.0
Note: TypeAlias = Callable[[Act], Awaitable[None]]


class Settings(Struct, frozen=True, kw_only=True):
    """How the registry keeps house."""

    retention: Retention = Retention()
    ring: int = CAPACITY
    bookmark_seconds: float = 10.0
    poll_seconds: float = 2.0
    compact_seconds: float = 300.0
    forget_seconds: float = 3_600.0


class RegistryService:
    """One registry. ``open_registry`` makes it, with its upkeep running."""

    def __init__(
        self,
        store: Store,
        view: View,
        *,
        clock: Clock = SYSTEM_CLOCK,
        settings: Settings | None = None,
        reports: NodeReports | None = None,
        duties: Duties | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings or Settings()
        #: What only one replica does at a time.
        self.duties: Duties = duties or LocalDuties()
        #: What nodes say about servers, which moves no revision.
        self.standing = Standing(reports, clock=clock)
        self._hub = Hub(store, view, capacity=self._settings.ring)
        #: What nodes serve.
        self.assignments = Assignments(lambda: self.view)
        self._writing = asyncio.Lock()
        self._bell = asyncio.Event()
        #: What waits for an administrator.
        self.acceptance = Acceptance(store, clock)
        self._snapshot = view.snapshot()
        #: Writes down what a write loosens, before it is done, or raises (``Ledger.note``).
        self.note: Note | None = None
        #: The tools that a node knows of, fit to be read, if one is joined to it.
        self.known_tools: Callable[[], Catalogue] = dict
        #: Follow the changes after a position, and ask whether one is in the store's history.
        self.watch, self.check = self._hub.watch, self._hub.check
        #: Have a bookmark sent to whoever watches; that also happens every so often by itself.
        self.tick, self.bookmark_seconds = self._hub.tick, self._settings.bookmark_seconds
        store.listen(self._hub.publish)

    # --- reading

    @property
    def view(self) -> View:
        """Return every object at the newest revision."""
        return self._hub.view

    @property
    def refusal(self) -> str | None:
        """Say why the store refuses writes now, if it does."""
        return self._store.refusal

    def snapshot(self) -> Snapshot:
        """Return the records at the newest revision, as policy and nodes use them."""
        made, view = self._snapshot, self.view
        if (made.position, made.predecessor) != (view.position, view.predecessor):
            self._snapshot = view.snapshot()
        return self._snapshot

    async def head(self) -> Head:
        """Return the store's identity, its newest revision and the oldest that is kept."""
        return await self._store.head()

    async def get(self, kind: Kind, key: str) -> Stored:
        """Return one object; the platform record is there even before it is written."""
        found = self.view.platform if kind == "platform" else self.view.get(kind, key)
        if found is None or found.id != key:
            raise NotFound(kind, key, self.view.objects)
        return found

    # --- writing

    async def create(
        self,
        kind: Kind,
        data: JsonObject,
        by: Author,
        *,
        strict: bool = False,
        dry_run: bool = False,
    ) -> Written:
        """Add a record; raise AlreadyExists."""

        def plan(view: View) -> Draft:
            draft = draft_of(view, [Edit(kind=kind, data=data)], strict=strict, trusted=by.trusted)
            [write] = draft.writes
            if (found := view.get(kind, write.id)) is not None:
                raise AlreadyExists(kind, write.id, found.revision)
            return draft

        return await self.transact(plan, by, dry_run=dry_run)

    async def put(
        self,
        kind: Kind,
        key: str,
        data: JsonObject,
        by: Author,
        *,
        expected_revision: int | None = None,
        strict: bool = False,
    ) -> Written:
        """Replace a record, or add it. ``expected_revision`` 0 means it must not be there."""
        edit = Edit(kind=kind, key=key, data=data, expected=expected_revision)
        return await self.apply([edit], by, strict=strict)

    async def patch(
        self,
        kind: Kind,
        key: str,
        data: JsonObject,
        by: Author,
        *,
        expected_revision: int | None = None,
        strict: bool = False,
    ) -> Written:
        """Merge some fields into a record: null removes one, what is not named stays."""
        edit = Edit(kind=kind, key=key, data=data, op="merge", expected=expected_revision)
        return await self.apply([edit], by, strict=strict)

    async def delete(
        self, kind: Kind, key: str, by: Author, *, expected_revision: int | None = None
    ) -> Written:
        """Delete a record; raise NotFound."""
        edit = Edit(kind=kind, key=key, op="delete", expected=expected_revision)
        return await self.apply([edit], by)

    async def apply(
        self, edits: Sequence[Edit], by: Author, *, strict: bool = False, dry_run: bool = False
    ) -> Written:
        """Make many edits as one revision, all or none."""
        return await self.transact(
            lambda view: draft_of(view, edits, strict=strict, trusted=by.trusted),
            by,
            dry_run=dry_run,
            size=len(edits),
        )

    async def import_records(
        self,
        records: Sequence[KindData],
        mode: ImportMode,
        by: Author,
        *,
        brings: Brings = "records",
        strict: bool = False,
        dry_run: bool = False,
    ) -> Written:
        """Take many records in as one revision, all or none.

        ``preview`` is an upsert that writes nothing; ``replace`` also deletes the other records
        of the kinds it brings, but for those a file owns. ``brings`` says what a server that is
        there already keeps (``keeping.py``).
        """
        return await self.transact(
            lambda view: draft_import(
                view, records, mode, brings=brings, strict=strict, trusted=by.trusted
            ),
            by,
            dry_run=dry_run or mode == "preview",
            size=len(records),
        )

    async def adopt(self, kind: Kind, key: str, by: Author) -> Written:
        """Take a record over from its file: from now on it is edited here, not there.

        Raise NotOwned where no file has it.
        """

        def plan(view: View) -> Draft:
            found = view.get(kind, key)
            if found is None:
                raise NotFound(kind, key, view.objects)
            if found.owner is None:
                raise NotOwned(kind, key)
            return Draft((Write(kind=kind, id=key, record=found.record, extra=found.extra),))

        return await self.transact(plan, by, as_owner=True)

    async def rollback(
        self,
        revision: int,
        by: Author,
        *,
        only: Collection[Key] | None = None,
        dry_run: bool = False,
    ) -> Written:
        """Make the records what they were at a revision, as a new revision; raise NotFound."""
        then = await self._store.view(revision)
        for kind, key in only or ():
            if self.view.get(kind, key) is None and then.get(kind, key) is None:
                raise NotFound(kind, key, self.view.objects)
        return await self.transact(
            lambda view: Draft(tuple(way_back(view, then, only))), by, dry_run=dry_run
        )

    async def transact(
        self,
        plan: Callable[[View], Draft],
        by: Author,
        *,
        as_owner: bool = False,
        dry_run: bool = False,
        size: int = 1,
    ) -> Written:
        """Plan on the newest view and commit, again if another process was faster.

        A ``dry_run`` passes every check and commits nothing. ``as_owner`` is for whoever may write
        what files own: the loader, and adoption. ``size`` is how many records the plan is about:
        a large one is made beside the event loop. Without a write the store is not troubled.
        """
        attempt = partial(self._attempt, plan, by, as_owner=as_owner, dry_run=dry_run, size=size)
        async with self._alone():
            for lost in range(_ATTEMPTS):
                try:
                    async with self._turn(lost) as write:
                        return await attempt(write)
                except HeadMoved:
                    continue
        raise StoreUnavailable("the store is busy: other processes keep writing to it; try again")

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None, None]:
        """Wait for this process's earlier writes, but not for ever: the store may hang."""
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await self._writing.acquire()
        except TimeoutError as error:
            raise StoreUnavailable("the store is busy: earlier writes hang; try again") from error
        try:
            yield
        finally:
            self._writing.release()

    @asynccontextmanager
    async def _turn(self, lost: int) -> AsyncGenerator[Writer, None]:
        """Race against other writers; after too many ``lost`` races, keep them waiting."""
        reserved = self._store.reserved() if lost >= PATIENCE else nullcontext(self._store.write)
        async with reserved as write:
            if lost:
                await self._hub.catch_up()
            yield write

    async def _attempt(
        self,
        plan: Callable[[View], Draft],
        by: Author,
        write: Writer,
        *,
        as_owner: bool,
        dry_run: bool,
        size: int,
    ) -> Written:
        before = self.view
        largest = max(size, len(before.objects))
        draft = await apart(largest, partial(planned, plan, before, as_owner=as_owner))
        refuse_ungoverned(before, draft.writes, by, dry_run=dry_run)
        await self.acceptance.check(before, draft.writes, by, dry_run=dry_run)
        if dry_run or not draft.writes:
            imagined = await apart(largest, partial(before.written, draft.writes))
            return self._advised(Written.of(None, before, imagined, draft), draft)
        await self._note_loosening(before, draft.writes, by)
        change = await write(draft.writes, by, base=before.position)
        after = before if change is None else before.after(change)
        return self._advised(Written.of(change, before, after, draft), draft)

    async def _note_loosening(self, before: View, writes: Sequence[Write], by: Author) -> None:
        """Write down what is allowed after a write and was not before; raise LedgerUnavailable."""
        if self.note is None:
            return
        now = self._clock.now()
        for act in await apart(len(writes), partial(loosenings, before, writes, by, now)):
            await self.note(act)

    async def proposals(self) -> tuple[Proposal, ...]:
        """Return what waits for an administrator."""
        return await self.acceptance.waiting(self.view)

    async def accept(
        self, kind: Kind, key: str, by: Author, *, digest: str | None = None
    ) -> Written:
        """Write what is proposed for a record; ``digest`` says which proposal was looked at."""
        write = await self.acceptance.proposed(self.view, (kind, key), digest)
        written = await self.transact(lambda _: Draft((write,)), by)
        await self.acceptance.withdraw((kind, key))
        return written

    def _advised(self, written: Written, draft: Draft) -> Written:
        """Add what is doubtful about tasks and profiles, as they stand after a write."""
        doubtful = [write.record for write in draft.writes if needs_advice(write.record)]
        if not doubtful:
            return written
        same = written.after is written.before
        registry = self.snapshot() if same else written.after.snapshot()
        return replace(written, warnings=(*written.warnings, *advice(registry, doubtful)))

    # --- the past

    async def announce(self, succeeds: str, by: Author) -> Head:
        """Say that this store replaces another, or another copy of it; no revision moves."""
        await announce(self._store, succeeds, by, at=self._clock.now(), note=self.note)
        await self._hub.catch_up()
        return await self._store.head()

    async def snapshot_at(self, revision: int) -> Snapshot:
        """Return the records as they were at a revision."""
        return (await self._store.view(revision)).snapshot()

    async def history(self, *, before: int | None = None, limit: int = 50) -> tuple[Change, ...]:
        """Return the changes that are kept below a revision, the newest first."""
        return await self._store.history(before, limit)

    async def diff(
        self, old: int, new: int | None = None, *, environment: str | None = None
    ) -> RevisionDiff:
        """Compare two revisions: records, and effective access; ``new`` is now by default."""
        older = await self.snapshot_at(old)
        newer = self.snapshot() if new is None else await self.snapshot_at(new)
        known = self.known_tools()
        comparing = partial(compare, older, newer, environment=environment, catalogue=known)
        return await apart(max(len(older.servers), len(newer.servers)), comparing)

    async def diff_of(self, written: Written) -> RevisionDiff:
        """Compare the registry before and after a write, with the tools that are known."""
        size = max(len(written.before.objects), len(written.after.objects))
        return await apart(size, partial(written.diff, self.known_tools()))

    async def statuses(self) -> dict[str, CombinedStatus]:
        """Return the status of every server of the registry, over all nodes."""
        return await self.standing.statuses(self.snapshot().servers)

    # --- upkeep

    async def catch_up(self) -> None:
        """Take in what other processes wrote to the same store."""
        await self._hub.catch_up()

    async def compact(self) -> int:
        """Forget what is older than the retention; return the floor."""
        return await self._store.compact(self._settings.retention)

    async def keep_up(self) -> None:
        """Do the upkeep until cancelled: bookmarks, what other processes wrote, and the duties."""
        settings = self._settings
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._every(settings.bookmark_seconds, self._hub.tick))
            tasks.create_task(self._every(settings.poll_seconds, self.catch_up))
            tasks.create_task(self._store.watch_others(self._bell.set))
            tasks.create_task(self._answer_bell())
            tasks.create_task(self._every(settings.poll_seconds, self.standing.refresh))
            compact = partial(self._in_turn, "compaction", self.compact)
            tasks.create_task(self._every(settings.compact_seconds, compact))
            forget = partial(self._in_turn, "forgetting", self.standing.forget_silent)
            tasks.create_task(self._every(settings.forget_seconds, forget))

    async def _in_turn(self, duty: Duty, work: Callable[[], Awaitable[object]]) -> None:
        async with self.duties.mine(duty) as mine:
            if mine:
                await work()

    async def _answer_bell(self) -> None:
        """Take in what other processes write as soon as the store says so."""
        while True:
            await self._bell.wait()
            self._bell.clear()
            with suppress(StoreUnavailable):  # what was not heard is polled for
                await self.catch_up()

    async def _every(self, seconds: float, work: Callable[[], object]) -> None:
        while True:
            await self._clock.sleep(seconds)
            try:
                result = work()
                if asyncio.iscoroutine(result):
                    await result
            except StoreUnavailable:
                continue  # whoever writes is told; upkeep goes on when it can

    def close(self) -> None:
        """End every watch."""
        self._hub.close()


@asynccontextmanager
async def open_registry(
    store: Store,
    *,
    clock: Clock = SYSTEM_CLOCK,
    settings: Settings | None = None,
    reports: NodeReports | None = None,
    duties: Duties | None = None,
    assignments: AssignmentStore | None = None,
) -> AsyncGenerator[RegistryService, None]:
    """Serve a store, with the upkeep running; on leaving, end watches and close the store.

    Without ``reports`` and ``assignments`` what nodes say and serve lasts as long as the process;
    without ``duties`` it has them all.
    """
    service = RegistryService(
        store, await store.view(), clock=clock, settings=settings, reports=reports, duties=duties
    )
    await service.assignments.open(assignments)
    await service.standing.refresh()
    upkeep = asyncio.create_task(service.keep_up())
    try:
        yield service
    finally:
        service.close()
        upkeep.cancel()
        await asyncio.wait([upkeep])
        await store.close()
        if not upkeep.cancelled():
            upkeep.result()  # it runs until cancelled: whatever ended it before is a fault
