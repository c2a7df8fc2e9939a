"""Rows of a ledger in either kind of database, for those who read them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from typing import Protocol, TypeVar

from bascule.audit.events import Event
from bascule.audit.ledger_file import append
from bascule.audit.search import LedgerReader
from bascule.audit.search_queries import LOOKED_AT
from bascule.audit.shared_tables import FORMS, SharedTables
from bascule.db.driver import Connection
from bascule.db.postgres import Postgres
from bascule.db.postgres_transactions import PostgresTransactions
from bascule.db.statements import Statements
from tests.audit.ledger_rows import Held, Written, journal_id, placed
from tests.postgres.databases import database

T = TypeVar("T")
KINDS = ("sqlite", "postgres")


class Unmarked:
    """Writes of which nobody asks whether they happened."""

    def begin(self, statements: Statements, mark: bytes, /) -> None:
        pass

    def has(self, statements: Statements, mark: bytes, /) -> bool:
        raise NotImplementedError

    def committed(self) -> None:
        pass


class Reading(Protocol):
    """Makes a reader of the rows."""

    def __call__(self, *, looked_at: int = LOOKED_AT) -> LedgerReader: ...


@asynccontextmanager
async def rows_in(
    kind: str, events: Sequence[Event | Written], live: Callable[[str], bool]
) -> AsyncGenerator[Reading, None]:
    """Write events to a database of a kind; of their processes, some live."""
    if kind == "sqlite":
        with closing(Held(events)) as held:
            yield lambda looked_at=LOOKED_AT: LedgerReader(held, live, looked_at=looked_at)
        return
    async with shared(events, live) as (postgres, tables):
        transactions = PostgresTransactions(postgres, Unmarked())
        yield lambda looked_at=LOOKED_AT: LedgerReader(
            transactions, looked_at=looked_at, tables=tables
        )
        await transactions.close()


@asynccontextmanager
async def shared(
    events: Sequence[Event | Written], live: Callable[[str], bool] = lambda _: False
) -> AsyncGenerator[tuple[Postgres, SharedTables], None]:
    """Write events to a PostgreSQL, as one chain of it."""
    async with database() as dsn:
        postgres = await Postgres(dsn).open()
        try:
            await postgres.migrate("ledger", FORMS)
            tables = SharedTables(1)
            query = "INSERT INTO ledger_chains (id, node, base_hash) VALUES ('led-1', 'one', $1)"
            await postgres.statement(query, bytes(32))
            await rewrite(postgres, tables, events, live)
            yield postgres, tables
        finally:
            await postgres.close()


async def rewrite(
    postgres: Postgres,
    tables: SharedTables,
    events: Sequence[Event | Written],
    live: Callable[[str], bool],
) -> None:
    """Replace all rows of a PostgreSQL by these events."""
    for table in ("ledger_events", "ledger_journals"):
        await postgres.statement(f"DELETE FROM {table}")  # noqa: S608 - as above
    await postgres.statement("UPDATE ledger_head SET number = 0")
    rows = placed(events)
    for number in sorted({journal for journal, _, _ in rows} - {0}):
        await postgres.write(_journal(number, live=live(journal_id(number))))
    writing = PostgresTransactions(postgres, Unmarked())
    await writing.write(lambda found: append(found, rows, tables))
    await writing.close()


def _journal(number: int, *, live: bool) -> Callable[[Connection], Awaitable[object]]:
    return lambda connection: connection.execute(
        "INSERT INTO ledger_journals (number, id, made_at, segment, taken, seen_at)"
        " OVERRIDING SYSTEM VALUE"
        " VALUES ($1, $2, 0, 1, 0, CASE WHEN $3::boolean THEN now() ELSE 'epoch' END)",
        number,
        journal_id(number),
        live,
    )
