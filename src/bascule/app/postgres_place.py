"""A PostgreSQL as a place of a registry: read in one snapshot, filled in one transaction."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from bascule.app.copy_keys import server_key_of
from bascule.app.copy_tables import PARTS, Part, Table
from bascule.app.copying import Batch, CopiedTable, Draft, NotCopied, Rows
from bascule.app.postgres_tables import FINISH, FORMS, KEYED, SPELLINGS, USED
from bascule.auth.server_key import fingerprint
from bascule.db.driver import Connection
from bascule.db.postgres import Postgres

T = TypeVar("T")
#: How long a copy may take, and one of its statements.
_SECONDS = 24 * 3_600.0
_STATEMENT_SECONDS = 120.0
_TOGETHER = 500
_LOCK = """LOCK TABLE registry_head, registry_revisions, bascule_token_head, bascule_tokens,
    bascule_secrets_head, bascule_secrets, ledger_head, ledger_meta, ledger_chains, approvals
    IN ACCESS EXCLUSIVE MODE"""


class PostgresPlace:
    """A database; what is copied to here is used with the keys of a data directory."""

    lives = True
    digests: Mapping[str, str] = {}

    def __init__(self, dsn: str, *, keys: Path | None = None) -> None:
        self._postgres = Postgres(dsn, seconds=_STATEMENT_SECONDS, most=1)
        self._keys = keys
        self.where = self._postgres.where

    async def fitted(self, rows: Rows) -> Rows:
        """Return rows as they are: everything fits."""
        return rows

    async def reading(self, work: Callable[[Rows], Awaitable[T]]) -> T:
        """Run a work over one snapshot, whoever serves it meanwhile."""

        async def reading(connection: Connection) -> T:
            parts = await self._parts(connection)
            if "registry" not in parts:
                raise NotCopied(f"{self.where} has no registry")
            return await work(_DatabaseRows(connection, parts))

        await self._postgres.open()
        try:
            return await self._postgres.read(reading, seconds=_SECONDS)
        finally:
            await self._postgres.close()

    async def _parts(self, connection: Connection) -> frozenset[Part]:
        """Return which parts there are; refuse those that this version reads otherwise."""
        if await connection.fetchval("SELECT to_regclass('bascule_forms')") is None:
            return frozenset()
        rows = await connection.fetch("SELECT part, form FROM bascule_forms")
        found = {row[0]: row[1] for row in rows}
        for part in PARTS:
            if found.get(part, 0) not in (0, len(FORMS[part])):
                raise NotCopied(
                    f"{part} in {self.where} has form {found[part]} instead of "
                    f"{len(FORMS[part])}: serve it once with this version, or copy with the other"
                )
        return frozenset(part for part in PARTS if found.get(part))

    async def writing(self, work: Callable[[Draft], Awaitable[T]]) -> T:
        """Run a work that fills an empty database; all of it is there with the commit."""

        async def writing(connection: Connection) -> T:
            await connection.execute(_LOCK)
            for what, query in USED.items():
                if await connection.fetchval(query):
                    raise NotCopied(
                        f"{self.where} is not empty: it has {what}; name another database"
                    )
            result = await work(_DatabaseRows(connection, frozenset(PARTS)))
            if self._keys is not None:
                key = fingerprint(server_key_of(self._keys))
                await connection.execute(KEYED, key)
            return result

        await self._postgres.open()
        try:
            for part, forms in FORMS.items():
                await self._postgres.migrate(part, forms)
            return await self._postgres.write(writing, seconds=_SECONDS)
        finally:
            await self._postgres.close()


class _DatabaseRows:
    """The tables of a transaction."""

    def __init__(self, connection: Connection, parts: frozenset[Part]) -> None:
        self._connection = connection
        self.parts = parts
        self._cleared: set[str] = set()
        self._numbers = itertools.count()

    async def read(self, table: Table) -> AsyncIterator[Batch]:
        """Yield the rows of a table in its order, some at a time."""
        spelling = SPELLINGS[table.title]
        name = f"rows_{next(self._numbers)}"  # one that nobody reads to its end goes with all
        await self._connection.execute(f"DECLARE {name} NO SCROLL CURSOR FOR {spelling.read}")
        while rows := await self._connection.fetch(f"FETCH {_TOGETHER} FROM {name}"):
            yield [spelling.taken(tuple(row)) for row in rows]
        await self._connection.execute(f"CLOSE {name}")

    async def add(self, table: Table, rows: Batch) -> None:
        """Add rows to a table."""
        spelling = SPELLINGS[table.title]
        if spelling.clear is not None and table.title not in self._cleared:
            await self._connection.execute(spelling.clear)
            self._cleared.add(table.title)
        try:
            values = [spelling.given(row) for row in rows]
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise NotCopied(f"a row of {table.title} cannot be read: {error}") from error
        await self._connection.executemany(spelling.add, values)

    async def finish(self, tables: Sequence[CopiedTable]) -> None:
        """Have counters go on after the rows, and tell whoever listens."""
        for statement in FINISH:
            await self._connection.execute(statement)
