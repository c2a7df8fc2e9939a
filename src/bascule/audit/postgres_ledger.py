"""The ledger of a replica: its journal on its own disk, PostgreSQL behind it, shared with others.

Calls go on while PostgreSQL is away: what they are about to do is in the journal, which follows
when it can. Every replica has a chain of its own, with its own key and anchors, and sees the rows
of all of them.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from bascule.audit.anchors import Anchors
from bascule.audit.journal import Disk
from bascule.audit.journaled_ledger import JournaledLedger
from bascule.audit.kept_anchors import anchor_lines
from bascule.audit.ledger_file import ANCHORS_NAME
from bascule.audit.ledger_settings import LedgerSettings
from bascule.audit.replica import Replica
from bascule.audit.retention import Limits, cut_received
from bascule.audit.search import LedgerReader
from bascule.audit.shared_epoch import SharedEpoch
from bascule.audit.shared_retention import cut_gone
from bascule.audit.shared_tables import CHANNEL, FORMS, LIVE_SECONDS, SharedTables
from bascule.audit.verification import (
    VERIFY_SECONDS,
    Chain,
    Told,
    Verification,
    received_chains,
    verify_chains,
)
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.db.errors import StoreUnavailable
from bascule.db.postgres import Postgres
from bascule.db.postgres_listener import Listener
from bascule.db.postgres_transactions import PostgresTransactions
from bascule.db.statements import Statements
from bascule.lifetime import cancelled

#: How often the database is asked what others wrote, whether or not the bell rang.
POLL_SECONDS = 2.0
#: How often a process says that it lives.
_ALIVE_SECONDS = LIVE_SECONDS / 3
_STATE = (
    "SELECT number, (SELECT id FROM ledger_epochs ORDER BY ledger_epochs.number DESC LIMIT 1),"
    " coalesce((SELECT value FROM ledger_meta WHERE key = 'approvals_steps'), '0')"
    " FROM ledger_head"
)


class PostgresLedger(JournaledLedger):
    """A ``Ledger`` in PostgreSQL. ``open`` it on the loop that it is used on.

    ``node`` says in the database whose chain it is. ``postgres`` is the caller's, who opens and
    closes it.
    """

    needs_database = False

    def __init__(  # noqa: PLR0913 - options, all by keyword
        self,
        postgres: Postgres,
        data_dir: Path,
        *,
        key: bytes,
        settings: LedgerSettings | None = None,
        node: str = "",
        clock: Clock = SYSTEM_CLOCK,
        disk: Disk = Disk(),  # noqa: B008 - it holds nothing
    ) -> None:
        self.tables = self._own = SharedTables()
        self._postgres = postgres
        self._replica = Replica(data_dir, node, self._own)
        self._shared = PostgresTransactions(postgres, self._replica)
        super().__init__(
            data_dir, key=key, database=self._shared, settings=settings, clock=clock, disk=disk
        )
        self._replica.on_lost = self._intake.go_back
        self._anchored: str | None = None
        self._steps = (None, "0")
        self._rung = asyncio.Event()
        self._listener = Listener(postgres, CHANNEL, lambda _: self._rung.set())
        self._hearing: list[asyncio.Task[None]] = []

    async def _open_database(self) -> None:
        await self._postgres.migrate("ledger", FORMS)
        self._replica.open()
        self._anchor_file = self._anchors_of(self._replica.known.chain)

    async def open(self) -> PostgresLedger:
        """Open the journal, take in what dead processes of this machine left, and follow."""
        await super().open()
        self._hearing = [
            asyncio.create_task(self._listener.run()),
            asyncio.create_task(self._hear()),
        ]
        return self

    async def close(self) -> None:
        """Write and take in everything, sign it, and let go."""
        await cancelled(self._hearing)
        await super().close()

    async def _let_go(self) -> None:
        await super()._let_go()
        self._replica.close()

    def epoch(self) -> SharedEpoch:
        """Return what tells whether PostgreSQL failed over or was restored."""
        return SharedEpoch(self._replica)

    def reader(self) -> LedgerReader:
        """Return the reading side, which sees the events of all replicas."""
        return LedgerReader(self.database, tables=self.tables)

    def verify(self, told: Told) -> Verification:
        """Verify every chain, the own one against the anchors that this process can read."""
        if self._loop is None:
            raise StoreUnavailable("the ledger is not open")
        return asyncio.run_coroutine_threadsafe(self._verified(told), self._loop).result()

    async def _verified(self, told: Told) -> Verification:
        own = self._replica.known.chain
        named = self.settings.anchor_file is not None
        kept = anchor_lines(self._anchors_of(own), named=named)

        def work(statements: Statements) -> Verification:
            query = "SELECT number, id, node FROM ledger_chains WHERE NOT received ORDER BY number"
            chains = [
                Chain(
                    id,
                    f"{id} of {node}" if node else id,
                    SharedTables(number),
                    kept if id == own else None,
                )
                for number, id, node in statements.execute(query)
            ]
            chains += received_chains(statements, self.tables)
            return verify_chains(statements, chains, told)

        return await self._shared.read(work, seconds=VERIFY_SECONDS)

    def is_live(self, journal: str, statements: Statements) -> bool:
        """Say whether the process that wrote a journal was heard of lately."""
        query = f"SELECT {self.tables.is_live('?')}"
        return journal == self.journal_id or bool(
            statements.execute(query, (journal,)).fetchone()[0]
        )

    def _begin(self, statements: Statements) -> None:
        super()._begin(statements)
        self._replica.journal = self.journal_id

    def _note_last(self, number: int) -> None:
        """Take notice of the last row of the own chain, which may be another one now."""
        self._last = number or self._last
        self.number = max(self.number, self._own.given)

    def _anchoring(self, statements: Statements) -> Anchors:
        id = self.tables.ledger_id(statements) or ""
        if self._anchored != id:
            self._anchors, self._anchored, self._signed = None, id, 0
            self._anchor_file = self._anchors_of(id)
        return super()._anchoring(statements)

    def _anchors_of(self, chain: str) -> Path:
        """Return the anchor file of a chain: replicas with the same settings share none."""
        named = Path(self.settings.anchor_file or self._data / ANCHORS_NAME)
        return named.with_name(f"{named.stem}-{chain}{named.suffix}")

    def _cut(self, statements: Statements, limits: Limits, now: float) -> bool:
        """Cut the own chain, those of replicas that are gone, and those of nodes."""
        if super()._cut(statements, limits, now) or cut_gone(statements, limits, now, self._own):
            return True
        return cut_received(statements, limits, now, "retention", self._own) is not None

    # --- what others write

    async def _hear(self) -> None:
        """Learn what other replicas wrote, when the bell rings and now and then."""
        said_at = self._clock.monotonic()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._rung.wait()
            self._rung.clear()
            with suppress(StoreUnavailable):
                await self._learn()
                if self._clock.monotonic() - said_at >= _ALIVE_SECONDS:
                    said_at = self._clock.monotonic()
                    await self.database.write(self._say_alive)

    def _say_alive(self, statements: Statements) -> None:
        """Have the chain kept; every write says already that the process lives."""
        query = "UPDATE ledger_chains SET seen_at = now() WHERE number = ?"
        statements.execute(query, (self._own.own,))

    async def _learn(self) -> None:
        number, epoch, steps = await self.database.read(
            lambda found: found.execute(_STATE).fetchone()
        )
        if number != self.number:
            self.number = number
            self._move()
        if (epoch, steps) != self._steps:
            self._steps = epoch, steps
            self._replica.saw(epoch, int(steps))
            for ring in self.bells:
                ring()
