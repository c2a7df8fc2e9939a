"""The ledger of a real file behind the routes of the audit trail, without a process around it."""

from __future__ import annotations

import asyncio
import sqlite3

from bascule.audit.events import Event
from bascule.audit.ledger_file import append
from bascule.audit.search import LedgerReader
from bascule.audit.verification import Told, Verification, verify
from bascule.db.sqlite import Database
from tests.audit.ledger_rows import journal_id, placed


class FileTrail:
    """A ledger in a real file; what is written is told to those who wait."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.live: set[str] = set()
        self.reader = LedgerReader(database, lambda journal: journal in self.live)
        self.checkpoints: list[bool] = []
        self.number = 0
        self._moved = asyncio.Condition()
        #: Set: whoever waits for rows has waited for long.
        self.waited_long = asyncio.Event()
        #: Whether verifying goes on until nobody wants it any more, and how many are at it.
        self.endless = False
        self.verifying = 0

    async def write(self, *events: Event, journal: int = 1) -> None:
        rows = placed([(event, journal) for event in events])

        def adding(connection: sqlite3.Connection) -> int:
            name = "INSERT OR IGNORE INTO journals VALUES (?, ?, 0, 1, 0)"
            connection.execute(name, (journal, journal_id(journal)))
            return append(connection, rows)

        self.number = await self.database.write(adding)
        async with self._moved:
            self._moved.notify_all()

    async def catch_up(self) -> None:
        """What is written is in the database at once."""

    async def newer_than(self, number: int, seconds: float) -> bool:
        assert seconds > 0
        news = asyncio.ensure_future(self._longer_than(number))
        idle = asyncio.ensure_future(self.waited_long.wait())
        try:
            await asyncio.wait({news, idle}, return_when=asyncio.FIRST_COMPLETED)
            self.waited_long.clear()
            return news.done()
        finally:
            news.cancel()
            idle.cancel()
            await asyncio.gather(news, idle, return_exceptions=True)

    async def _longer_than(self, number: int) -> None:
        async with self._moved:
            await self._moved.wait_for(lambda: self.number > number)

    def verify(self, told: Told) -> Verification:
        self.verifying += 1
        try:
            while self.endless:
                told(0)
            return verify(self.database.path, told=told)
        finally:
            self.verifying -= 1

    async def checkpoint(self, *, new_key: bool) -> bytes | None:
        self.checkpoints.append(new_key)
        return b'{"kind":"checkpoint"}' if self.number else None
