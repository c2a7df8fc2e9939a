"""A ledger with a journal in front, and a database behind it.

An event is in the journal before the call that it speaks of leaves. From there it follows into the
database, in transactions of their own on the database's thread; a call never waits for one. Every
so often a checkpoint signs the chain of rows, and what it covers is deleted from the journal.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from msgspec import convert

from bascule.audit.anchors import KEY_NAME, Anchors, AnchorsUnavailable, refuse_lost_key
from bascule.audit.checkpoints import checkpoint, last_line, store
from bascule.audit.epoch import Epoch
from bascule.audit.event_bytes import event_bytes
from bascule.audit.events import (
    OF_TOKENS,
    Act,
    EndedCall,
    Event,
    LeavingCall,
    SessionRefusal,
)
from bascule.audit.findings import Verification
from bascule.audit.flushing import Flushing
from bascule.audit.intake import Intake
from bascule.audit.journal import FOLDER, Disk, Journal, remove_journal
from bascule.audit.ledger import FileQueue, LedgerUnavailable, arguments_key
from bascule.audit.ledger_file import ANCHORS_NAME, FILE, Tables, tip
from bascule.audit.ledger_settings import LedgerSettings
from bascule.audit.quotas import Quotas
from bascule.audit.retention import Limits, cut
from bascule.audit.search import LedgerReader
from bascule.audit.verification import Told
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.db.errors import StoreUnavailable
from bascule.db.private_files import KeyUnusable
from bascule.db.statements import Statements, Transactions
from bascule.errors import BudgetExceeded
from bascule.lifetime import cancelled

logger = logging.getLogger("bascule.ledger")

CHECKPOINT_ROWS = 1_000
CHECKPOINT_SECONDS = 10.0
_GATHER_SECONDS = 0.1
#: For how long the database rests while calls go on, in multiples of how long it worked.
_REST = 9
#: For how long a call waits at most for the database, where too much waits already.
_RELIEF_SECONDS = 1.0
_RETENTION_SECONDS = 3_600.0
_AGAIN_SECONDS = 5.0


class JournaledLedger(FileQueue):
    """A ``Ledger`` with its journal in a data directory. ``open`` it on the loop that uses it."""

    what = "the journal of the ledger"
    #: Whether calls that write leave only while the database follows.
    needs_database = True
    #: Where the rows of the own chain are.
    tables: Tables = FILE

    def __init__(
        self,
        data_dir: Path,
        *,
        key: bytes,
        database: Transactions,
        settings: LedgerSettings | None = None,
        clock: Clock = SYSTEM_CLOCK,
        disk: Disk = Disk(),  # noqa: B008 - it holds nothing
    ) -> None:
        super().__init__(arguments_key(key))
        self.settings = settings or LedgerSettings()
        self._max_backlog = self.settings.max_backlog
        self.database = database
        #: The number of the last row, as readers count.
        self.number = 0
        #: The number of the last row of the own chain.
        self._last = 0
        #: Called when approvals moved elsewhere, as far as that is heard of.
        self.bells: list[Callable[[], None]] = []
        self._data = data_dir
        self._folder = data_dir / FOLDER
        self._anchor_file = Path(self.settings.anchor_file or data_dir / ANCHORS_NAME)
        self._key = key
        self._disk = disk
        self._clock = clock
        self._quotas = Quotas(clock, self.settings.token_bytes_per_day)
        self._intake = Intake(self._folder, key, clock, self.tables)
        self._journal: Journal | None = None
        self._anchors: Anchors | None = None
        self._flushing: Flushing | None = None
        #: Why the database takes nothing in, in words.
        self._trouble: str | None = None
        #: Why the journal could not be written the last time, in words.
        self._unwritten: str | None = None
        self._signed = 0
        self._signed_at = clock.monotonic()
        self._cut_at: float | None = None
        #: Why no anchor could be added, in words.
        self._unanchored: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._told = False
        self._moved = asyncio.Event()
        self._closing = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    async def open(self) -> Self:
        """Open the files, take in what dead processes left, and begin to follow the journal."""
        try:
            await self._open_database()
            refuse_lost_key(self._data / KEY_NAME, self._anchor_file)
            self._journal = Journal(
                self._folder,
                self._key,
                durable=self.settings.durability == "power",
                disk=self._disk,
            )
            await self.database.write(self._begin)
            while not await self.database.write(self._intake.take_in_dead, after=self._note_taken):
                pass
            await self._sign()
        except BaseException:
            await self._let_go()
            if self._journal is not None:
                remove_journal(self._folder, self._journal.id)
            raise
        if self.settings.durability == "power":
            self._flushing = Flushing(self._journal.flush)
        self._loop = asyncio.get_running_loop()
        self._news.set()
        self._following = self._loop.create_task(self._follow())
        return self

    async def close(self) -> None:
        """Write and take in everything, sign it, and let go of the files."""
        for count in self._quotas.counts(all=True):
            super()._add(count)
        self.settle()
        self._closing.set()
        following, self._following = self._following, None
        try:
            if following is not None:
                await cancelled([following])
                await self.database.heal()
                await self._take_in()
                await self._sign()
                if self._journal is not None and not self.backlog:
                    remove_journal(self._folder, self._journal.id)
        except (StoreUnavailable, sqlite3.Error, OSError) as error:
            logger.warning("the next start takes in what the journal has: %s", error)
        finally:
            await self._let_go()

    async def _open_database(self) -> None:
        raise NotImplementedError

    def epoch(self) -> Epoch:
        """Return what tells whether approvals are still those of the database that they were."""
        raise NotImplementedError

    def reader(self) -> LedgerReader:
        """Return the reading side."""
        raise NotImplementedError

    def verify(self, told: Told) -> Verification:
        """Verify everything; it takes long, and is called on a thread of its own."""
        raise NotImplementedError

    def is_live(self, journal: str, statements: Statements) -> bool:
        """Say whether the process that wrote a journal lives."""
        raise NotImplementedError

    async def _let_go(self) -> None:
        if self._journal is not None:
            self._journal.close()
        await self.database.close()
        self._intake.close()

    def intent(self, leaving: LeavingCall) -> Awaitable[None] | None:
        """Write it, before the call leaves; raise LedgerUnavailable when that cannot be done."""
        if self._stopped or leaving.token_id is not None:
            self.refuse(leaving)
        super().intent(leaving)
        if self._flushing is not None:
            return self._flushing.wait()
        return self._relief() if self._trouble is None and self._is_filled(1 / 2) else None

    def _is_filled(self, part: float) -> bool:
        """Say whether more than a part of what may wait for the database does."""
        return self.backlog > self._max_backlog * part

    async def _relief(self) -> None:
        """Wait for a transaction of the database: more calls than it can follow slow down."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_RELIEF_SECONDS):
                await self._moved.wait()

    async def note(self, act: Act) -> None:
        """Write it, before it is done; raise LedgerUnavailable when that cannot be done."""
        if self._stopped is not None:
            raise LedgerUnavailable(self._stopped)
        await super().note(act)
        if self._flushing is not None:
            await self._flushing.wait()

    def outcome(self, ended: EndedCall) -> None:
        """Write it in a moment; refusals of a token beyond so many a minute are counted."""
        token, refusal = ended.token_id, ended.status != "ok"
        if token is None or ended.left or self._quotas.admits(token, ended.event, refusal=refusal):
            super().outcome(ended)

    async def newer_than(self, number: int, seconds: float) -> bool:
        """Wait until there is a row beyond this number, for at most so long; say if there is."""
        try:
            async with asyncio.timeout(seconds):
                while self.number <= number:
                    await self._moved.wait()
        except TimeoutError:
            return False
        return True

    async def taken_in(self) -> int:
        """Take in everything written so far, if that can be done; return the last number."""
        self.settle()
        with suppress(Exception):  # the follower says so
            await self._take_in()
        return self.number

    async def checkpoint(self, *, new_key: bool = False) -> bytes | None:
        """Take in what there is and sign it; return the anchor, or None if nothing is new.

        A new key is signed by the old one, and signs from then on. Raise AnchorsUnavailable when
        the anchor file cannot be added to.
        """
        await self.taken_in()
        line = await self._sign(strict=True)
        return await self.database.write(self._renewed) if new_key else line

    @property
    def trouble(self) -> str | None:
        """Say why calls that write do not leave; None while they do."""
        if self._stopped is None and self.backlog > self.settings.max_backlog:
            return f"{self.backlog} bytes of the journal wait for the database"
        return self._stopped or self._unwritten

    @property
    def degraded(self) -> str | None:
        """Say why the database does not follow, also where calls go on without it."""
        return self._trouble

    @property
    def _stopped(self) -> str | None:
        return self._trouble if self.needs_database else None

    @property
    def backlog(self) -> int:
        """Return how many bytes the journal has that the database has not."""
        return 0 if self._journal is None else self._journal.written - self._intake.taken_bytes

    @property
    def journal_id(self) -> str:
        """Return the name of this process's journal."""
        return "" if self._journal is None else self._journal.id

    def note_added(self, number: int) -> None:
        """Take notice of a row that somebody else added to the chain."""
        self._note_last(number)
        if not self._told:
            self._tell()
        self._move()

    def _note_last(self, number: int) -> None:
        """Take notice of the last row of the own chain."""
        self._last = max(self._last, number)
        self.number = max(self.number, number)

    def refuse(self, leaving: LeavingCall) -> None:
        """Refuse a call that may not leave: nobody would know of it, or there would be too many."""
        if self._stopped is not None and not (leaving.reads and self.settings.reads_when_down):
            raise LedgerUnavailable(self._stopped)
        token = leaving.token_id
        wait = None if token is None else self._quotas.wait_of(token)
        if wait is not None:
            size = self.settings.token_bytes_per_day
            raise BudgetExceeded(
                f"this token has had {size} bytes written to the ledger today; an administrator "
                "can raise ledger.token_bytes_per_day",
                retry_after=wait,
            )

    def _add(self, event: Event) -> None:
        if isinstance(event, OF_TOKENS) and event.token_id:
            refusal = isinstance(event, SessionRefusal)
            if not self._quotas.admits(event.token_id, lambda: event, refusal=refusal):
                return
        super()._add(event)

    def _append(self, events: list[Event]) -> None:
        journal = self._journal
        if journal is None or journal.written - self._intake.taken_bytes > self._max_backlog:
            raise OSError(f"{self.backlog} bytes wait for the database (ledger.max_backlog)")
        if not events:
            return
        lines = [event_bytes(event) for event in events]
        try:
            journal.append(lines)
        except OSError as error:
            self._fail(self._words(error))
            raise
        self._unwritten = None
        for event, line in zip(events, lines, strict=True):
            token = getattr(event, "token_id", None)
            if token is not None:
                self._quotas.spend(token, len(line))
        if not self._told:
            self._tell()

    def _fail(self, words: str) -> None:
        """Note that the journal cannot be written, and have it tried again in a while."""
        if self._unwritten is None:
            self._tell()
        self._unwritten = words

    def _tell(self) -> None:
        """Have the journal followed; any thread may write to it."""
        self._told = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended; the next start takes it in
                self._loop.call_soon_threadsafe(
                    self._loop.call_later, _GATHER_SECONDS, self._news.set
                )

    async def _follow(self) -> None:
        """Take in what is written, until cancelled; what goes wrong is tried again."""
        while True:
            await self._wait_for_news()
            try:
                await self._take_in(paced=True)
                if self._is_due():
                    await self._sign()
                await self._retain()
            except Exception as error:  # noqa: BLE001 - whatever it is, calls must not go on unseen
                await self._recover(error)
            else:
                if self._trouble is not None:
                    logger.info("the ledger follows its journal again")
                self._trouble = None

    async def _wait_for_news(self) -> None:
        """Wait for events, not beyond what else is due."""
        unsigned, counted = self._last > self._signed, self._quotas.any_counted
        seconds = CHECKPOINT_SECONDS if unsigned or counted else None
        seconds = seconds if self._unwritten is None else _AGAIN_SECONDS
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        for count in self._quotas.counts():
            super()._add(count)
        if self._unwritten is not None:
            self._write_again()

    def _write_again(self) -> None:
        """Try again: while the process says that it is not ready, nobody's call would."""
        self.settle()
        if not self._waiting:
            self._unwritten = None

    async def _take_in(self, *, paced: bool = False) -> None:
        """Move what the journal has into the database, a transaction at a time.

        ``paced`` rests in between for as long as calls go on: what the database's thread does with
        the interpreter's lock they have to wait for, and what waits in the journal is safe.
        """
        self._news.clear()
        self._told = False
        self._refuse_replaced()
        written = 0 if self._journal is None else self._journal.written
        loop = asyncio.get_running_loop()
        while True:
            began, before = loop.time(), self.backlog + self._intake.taken_bytes
            number = await self.database.write(self._intake.follow, after=self._note_taken)
            if number is None:
                break
            self._note_last(number)
            if self._is_due():
                await self._sign()
            self._move()
            if self._intake.taken_bytes >= written:
                break
            growing = self.backlog + self._intake.taken_bytes > before
            if paced and growing and not self._is_filled(1 / 4):
                await self._rest(_REST * (loop.time() - began))
        self._move()

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    def _note_taken(self, _: object) -> None:
        self._intake.taken()

    def _refuse_replaced(self) -> None:
        """Refuse to add to a database that nobody finds any more: what it has is gone with us."""

    def _move(self) -> None:
        """Tell those who wait for rows."""
        self._moved.set()
        self._moved = asyncio.Event()

    def _is_due(self) -> bool:
        rows = self._last - self._signed
        late = self._clock.monotonic() - self._signed_at >= CHECKPOINT_SECONDS
        return rows >= CHECKPOINT_ROWS or (rows > 0 and late)

    async def _sign(self, *, strict: bool = False) -> bytes | None:
        """Sign the chain as it stands, and delete what is safe from the journal.

        Where that cannot be done, calls go on, and it is tried again.
        """
        self._signed_at = self._clock.monotonic()
        try:
            line = await self.database.write(self._signed_row, after=lambda _: self._intake.cover())
        except (AnchorsUnavailable, KeyUnusable) as error:
            if strict:
                raise
            if self._unanchored != str(error):
                logger.error("the ledger is not anchored: %s", error)  # noqa: TRY400 - as it says
            self._unanchored = str(error)
            return None
        self._unanchored = None
        self._signed = self._last
        return line

    def _begin(self, statements: Statements) -> None:
        """Name the journal."""
        if self._journal is not None:
            self._intake.register(statements, self._journal)

    def _signed_row(self, statements: Statements) -> bytes | None:
        self._note_last(tip(statements, self.tables)[0])
        now = self._clock.now()
        return checkpoint(statements, self._anchoring(statements), now, self.tables)

    def _renewed(self, statements: Statements) -> bytes:
        named, taken = self._anchoring(statements).renew(self._clock.now())
        store(statements, named, self.tables)
        store(statements, taken, self.tables)
        return taken

    def _anchoring(self, statements: Statements) -> Anchors:
        if self._anchors is None:
            id = self.tables.ledger_id(statements) or ""
            last = last_line(statements, self.tables)
            self._anchors = Anchors(self._anchor_file, self._data / KEY_NAME, id, last=last)
        return self._anchors

    async def _retain(self) -> None:
        """Cut what is too old, or too much, off the front; now and then."""
        now = self._clock.monotonic()
        if self._cut_at is not None and now - self._cut_at < _RETENTION_SECONDS:
            return
        self._cut_at = now
        limits = convert(self.settings, Limits, from_attributes=True)
        try:
            while await self.database.write(lambda s: self._cut(s, limits, self._clock.now())):
                await self._sign()
        except StoreUnavailable as error:
            if self.database.refusal is not None:
                raise
            logger.error("nothing is removed from the ledger: %s", error)  # noqa: TRY400 - as it says

    def _cut(self, statements: Statements, limits: Limits, now: float) -> bool:
        """Cut some rows off; say whether there were any."""
        return cut(statements, limits, now, "retention", self.tables) is not None

    async def _recover(self, error: Exception) -> None:
        """Say what is wrong, wait, and read what is really there, as a restart would."""
        if self._trouble is None:
            logger.error("the ledger cannot follow its journal: %s", error)
        refusal = self.database.refusal or "see the log"  # callers are told no path
        self._trouble = f"the ledger's database cannot be written: {refusal}"
        self._move()
        await self._clock.sleep(_AGAIN_SECONDS)
        self._news.set()
        with suppress(StoreUnavailable):
            await self.database.heal()
