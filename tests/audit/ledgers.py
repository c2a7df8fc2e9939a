"""Ledgers behind a journal, of either kind, for tests that hold for both."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Protocol

from bascule.audit.chain import Row
from bascule.audit.journal import Disk
from bascule.audit.journaled_ledger import JournaledLedger
from bascule.audit.ledger_settings import LedgerSettings
from bascule.audit.postgres_ledger import PostgresLedger
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.db.driver import Connection
from bascule.db.postgres import Postgres
from tests.postgres.databases import database

KEY = bytes(32)
DISK = Disk()
_NAMED = "INSERT INTO {} (id, made_at, segment, taken) VALUES ('{}', 1.0, 1, 0)"


class Ledgers(Protocol):
    """Opens ledgers, and looks at what they wrote."""

    async def open(
        self,
        folder: Path,
        *,
        settings: LedgerSettings | None = None,
        clock: Clock = SYSTEM_CLOCK,
        disk: Disk = DISK,
    ) -> JournaledLedger: ...

    async def chain(self, folder: Path) -> list[Row]:
        """Return the rows of the chain of a folder."""
        ...

    async def name(self, folder: Path, journal: str) -> None:
        """Name a journal, as its process does before its first line."""
        ...


class SqliteLedgers:
    async def open(
        self,
        folder: Path,
        *,
        settings: LedgerSettings | None = None,
        clock: Clock = SYSTEM_CLOCK,
        disk: Disk = DISK,
    ) -> JournaledLedger:
        return await SqliteLedger(folder, key=KEY, settings=settings, clock=clock, disk=disk).open()

    async def chain(self, folder: Path) -> list[Row]:
        query = "SELECT number, journal, place, body, hash FROM events ORDER BY number"
        with closing(sqlite3.connect(folder / "ledger.db")) as connection:
            return [Row(*row) for row in connection.execute(query)]

    async def name(self, folder: Path, journal: str) -> None:
        with closing(sqlite3.connect(folder / "ledger.db", isolation_level=None)) as connection:
            connection.execute(_NAMED.format("journals", journal))


class PostgresLedgers:
    def __init__(self, postgres: Postgres) -> None:
        self.postgres = postgres

    async def open(
        self,
        folder: Path,
        *,
        settings: LedgerSettings | None = None,
        clock: Clock = SYSTEM_CLOCK,
        disk: Disk = DISK,
    ) -> JournaledLedger:
        return await PostgresLedger(
            self.postgres,
            folder,
            key=KEY,
            settings=settings,
            node=folder.name,
            clock=clock,
            disk=disk,
        ).open()

    async def chain(self, folder: Path) -> list[Row]:
        chain = json.loads((folder / "ledger.replica").read_bytes())["chain"]
        query = (
            "SELECT link, journal, place, body, hash FROM ledger_events e"
            " JOIN ledger_chains c ON c.number = e.chain WHERE c.id = $1 ORDER BY link"
        )

        async def rows(connection: Connection) -> list[Row]:
            return [Row(*row) for row in await connection.fetch(query, chain)]

        return await self.postgres.read(rows)

    async def name(self, folder: Path, journal: str) -> None:
        await self.postgres.statement(_NAMED.format("ledger_journals", journal))


@asynccontextmanager
async def ledgers_of(kind: str) -> AsyncGenerator[Ledgers, None]:
    """Return ledgers in files, or in a PostgreSQL that they share."""
    if kind == "sqlite":
        yield SqliteLedgers()
        return
    async with database() as dsn:
        postgres = await Postgres(dsn).open()
        try:
            yield PostgresLedgers(postgres)
        finally:
            await postgres.close()


async def events(ledgers: Ledgers, folder: Path) -> list[dict[str, Any]]:
    """Return what the rows of a folder's chain say."""
    return [json.loads(row.event) for row in await ledgers.chain(folder)]
