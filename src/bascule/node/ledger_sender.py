"""Sends a node's own ledger up to its control plane, some rows at a time.

What a call is about to do is durable on the node's disk before it leaves, and nothing waits for the
control plane: this reads what is on the disk, whenever that can be done, and begins after the last
row that the control plane has.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from bascule.audit.chain import Row
from bascule.audit.events import NodeLedger
from bascule.audit.ledger_file import hash_of, tip
from bascule.audit.log_lines import say
from bascule.audit.received import MOST_ANCHORS, REMEDY, Reached, SentRows
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.db.errors import StoreUnavailable
from bascule.db.statements import Statements
from bascule.errors import BasculeError
from bascule.node.changes import News
from bascule.node.retries import Jitter, Retries

logger = logging.getLogger("bascule.node")
#: Rows and bytes that are sent at once.
MOST_ROWS = 500
MOST_BYTES = 1024 * 1024
#: What the control plane says to rows that it will not have, however often they are sent.
_REFUSED = frozenset({"wrong_state", "invalid_request", "not_found", "forbidden"})


class SenderSettings(Retries, frozen=True, kw_only=True):
    """The rhythm of sending."""

    #: Rows are gathered for so long.
    pause_seconds: float = 1.0
    #: How often a node that has nothing to send says that it lives.
    idle_seconds: float = 300.0
    #: How long to wait for the line that signs what was sent.
    anchor_seconds: float = 15.0
    answer_seconds: float = 30.0
    backoff_limit_seconds: float = 30.0


class LedgerPort(Protocol):
    """The control plane (``bascule.client.ledger.RpcLedger``)."""

    async def append(self, sent: SentRows) -> Reached:
        """Send rows; return how far the control plane is."""
        ...


class LedgerSender:
    """Sends one ledger. ``run`` it for as long as that is written to."""

    def __init__(
        self,
        ledger: SqliteLedger,
        port: LedgerPort,
        *,
        clock: Clock = SYSTEM_CLOCK,
        settings: SenderSettings | None = None,
        jitter: Jitter = random.uniform,
    ) -> None:
        self._ledger = ledger
        self._port = port
        self._clock = clock
        self._settings = settings or SenderSettings()
        self._jitter = jitter
        #: What the control plane has; None until it said so.
        self._reached: Reached | None = None
        #: The last line about rows that was sent.
        self._last_line: bytes | None = None
        ledger.awaited = 0  # nothing goes before the control plane has said what it has
        #: Why it does not take what is sent, if so; it is asked again now and then.
        self.refusal: str | None = None
        #: Called when that has become another.
        self.on_refusal: Callable[[], object] | None = None
        self._word = News()

    async def run(self) -> None:
        """Send what there is and what comes, until cancelled."""
        failures = 0
        while True:
            try:
                await self._send_all()
                failures = 0
                self._note(None)
            except StoreUnavailable:
                failures += 1  # the ledger says what is wrong with it
            except (BasculeError, TimeoutError) as error:
                failures += 1
                self._reached = None  # it is asked anew, as another replica may answer
                if isinstance(error, BasculeError) and error.code in _REFUSED:
                    self._note(_refusal(error))
            if failures:
                await self._word.wait(self._clock, self._settings.delay(failures, self._jitter))
            else:
                await self._wait()

    async def begin_anew(self) -> None:
        """Go on as a new ledger, by its owner's word; raise NothingRefused where none is needed.

        The rows that the control plane has already are not sent again.
        """
        refusal = self.refusal
        if refusal is None:
            raise NothingRefused("the control plane takes the rows of this node's ledger")
        before = await self._ledger.begin_anew()
        self._reached = self._last_line = None
        self._ledger.awaited = 0
        self._note(None)
        await self._ledger.note(
            NodeLedger(
                timestamp=self._clock.now(),
                by="owner",
                action="accepted",
                ledger=before,
                number=self._ledger.number,
                reason=refusal,
            )
        )
        self._word.tell()

    async def _send_all(self) -> None:
        if self._reached is None:
            await self._append(await self._ledger.database.read(self._nothing))
        while self._reached is not None:
            reached = self._reached
            sent = await self._ledger.database.read(partial(self._next, reached=reached))
            if sent is None:
                return
            await self._append(sent)
            if self._reached == reached:
                return  # it has all of it, and says no more: nothing is sent in circles

    async def _append(self, sent: SentRows) -> None:
        reached = await self._answer(sent)
        try:
            await self._ledger.database.read(partial(self._refuse_other, reached=reached))
        except OtherRows:
            latest = await self._ledger.database.read(self._latest)
            if latest is not None:
                await self._answer(latest)  # so that it is seen there too
            raise
        self._reached = reached
        self._ledger.awaited = reached.number
        if sent.anchors:
            self._last_line = sent.anchors[-1]

    async def _answer(self, sent: SentRows) -> Reached:
        async with asyncio.timeout(self._settings.answer_seconds):
            return await self._port.append(sent)

    async def _wait(self) -> None:
        """Wait for rows, and gather some; a quiet node says now and then that it lives."""
        reached, settings = self._reached or Reached(0, b"", 0), self._settings
        signed = reached.anchored >= reached.number
        idle = self._jitter(settings.idle_seconds / 2, settings.idle_seconds)
        seconds = idle if signed else settings.anchor_seconds
        if not await self._ledger.newer_than(reached.number, seconds) and signed:
            self._reached = None
        await self._clock.sleep(settings.pause_seconds)

    def _note(self, refusal: str | None) -> None:
        if refusal is not None and self.refusal is None:
            say(logger, logging.ERROR, refusal)
            self._ledger.awaited = None  # nobody waits for them
        changed, self.refusal = refusal != self.refusal, refusal
        if changed and self.on_refusal is not None:
            self.on_refusal()

    # --- what is read of the ledger

    def _nothing(self, statements: Statements) -> SentRows:
        """Return a question for how far the control plane is."""
        id = self._ledger.tables.ledger_id(statements) or ""
        return SentRows(node="", ledger=id, process=self._process(statements))

    def _process(self, statements: Statements) -> int:
        query = "SELECT number FROM journals WHERE id = ?"
        [number] = statements.execute(query, (self._ledger.journal_id,)).fetchone() or [0]
        return number

    def _next(self, statements: Statements, reached: Reached) -> SentRows | None:
        """Return what comes after what the control plane has; None where that is all."""
        after = max(reached.number, self._ledger.tables.base(statements)[0])
        rows = self._rows(statements, after)
        anchors = self._anchors(statements, reached, rows[-1].number if rows else after)
        if not rows and not anchors:
            return None
        return replace(self._after(statements, after), rows=rows, anchors=anchors)

    def _latest(self, statements: Statements) -> SentRows | None:
        """Return the last rows, whatever the control plane has; None where there are none."""
        tables = self._ledger.tables
        base, last = tables.base(statements)[0], tip(statements, tables)[0]
        after = max(base, last - MOST_ROWS)
        rows = self._rows(statements, after)
        return replace(self._after(statements, after), rows=rows) if rows else None

    def _after(self, statements: Statements, number: int) -> SentRows:
        """Return what is said before the rows after one."""
        tables = self._ledger.tables
        before = hash_of(statements, number, tables) or tables.base(statements)[1]
        return replace(self._nothing(statements), before=before)

    def _rows(self, statements: Statements, after: int) -> list[Row]:
        tables = self._ledger.tables
        found = statements.execute(
            f"SELECT {tables.number}, journal, place, body, hash FROM events"  # noqa: S608 - constants
            f" WHERE {tables.mine} AND {tables.number} > ? ORDER BY {tables.number} LIMIT ?",
            (after, MOST_ROWS),
        )
        rows, size = list[Row](), 0
        for one in found:
            row = Row(*one)
            size += len(row.event)
            if rows and size > MOST_BYTES:
                break
            rows.append(row)
        return rows

    def _anchors(self, statements: Statements, reached: Reached, last: int) -> list[bytes]:
        """Return the lines about rows up to one that the control plane may not have.

        Those for the last row that it has lines about may have become more.
        """
        tables = self._ledger.tables
        found = statements.execute(
            f"SELECT number, anchor FROM checkpoints WHERE {tables.mine}"  # noqa: S608 - constants
            " AND number >= ? AND number <= ? ORDER BY number LIMIT ?",
            (reached.anchored, last, MOST_ANCHORS // 4),
        ).fetchall()
        lines = [line for _, lines in found for line in bytes(lines).split(b"\n")]
        return [] if lines and lines[-1] == self._last_line else lines

    def _refuse_other(self, statements: Statements, reached: Reached) -> None:
        """Raise where the control plane has a row that is not this ledger's."""
        tables = self._ledger.tables
        if reached.number == 0:
            return
        found = hash_of(statements, reached.number, tables)
        if found is None or found == reached.hash:
            return
        number = tip(statements, tables)[0]
        raise OtherRows(
            f"the control plane has another row {reached.number} of this ledger, which has "
            f"{number}: one of them was changed, or put back from an older copy"
        )


def _refusal(error: BasculeError) -> str:
    """Say what is refused, and what helps where another ledger would be taken."""
    words = f"the control plane does not take the rows of this node's ledger: {error}"
    return f"{words}; {REMEDY}" if error.code == OtherRows.code else words


class NothingRefused(BasculeError):
    """There is nothing to accept."""

    code = "wrong_state"


class OtherRows(BasculeError):
    """The control plane has rows that this ledger does not have."""

    code = "wrong_state"
