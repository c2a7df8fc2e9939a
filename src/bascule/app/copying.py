"""Copies a registry from one place to another, and reads it back before anybody is told so.

A place is a data directory, a PostgreSQL or a backup; each gives and takes the same rows
(``copy_tables.py``). The source is read as of one moment. The target has all of it or nothing: it
is undone unless the digest of every table is the source's and the chain of the ledger holds.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from bascule.app.copy_tables import (
    CHAINS,
    CHECKPOINTS,
    EVENTS,
    HEAD,
    NODE_CHAINS,
    TABLES,
    Part,
    Table,
)
from bascule.audit.anchor_walk import AnchorWalk
from bascule.audit.chain import Row
from bascule.audit.findings import Problems
from bascule.audit.row_walk import RowWalk
from bascule.errors import BasculeError

T = TypeVar("T")
Values: TypeAlias = tuple[Any, ...]
Batch: TypeAlias = Sequence[Values]
#: Told what is being done, in words.
Told: TypeAlias = Callable[[str], None]
#: Looks at what is to be copied, and raises NotCopied where that would be of no use.
Check: TypeAlias = "Callable[[Rows], Awaitable[None]]"
_encode = msgspec.msgpack.Encoder().encode


class NotCopied(BasculeError):
    """Nothing was copied, and why."""

    code = "not_copied"


class Rows(Protocol):
    """The rows of a place as of one moment."""

    @property
    def parts(self) -> frozenset[Part]:
        """Return which parts are there."""
        ...

    def read(self, table: Table) -> AsyncIterator[Batch]:
        """Yield the rows of a table in its order, some at a time."""
        ...


class Draft(Rows, Protocol):
    """Rows that are there for nobody else yet."""

    async def add(self, table: Table, rows: Batch) -> None:
        """Add rows to a table."""
        ...

    async def finish(self, tables: Sequence[CopiedTable]) -> None:
        """Note what was found when everything was read back."""
        ...


class Source(Protocol):
    """Where a registry is copied from."""

    #: What it is called in messages.
    where: str
    #: The digests that its tables must have, as far as anybody noted them.
    digests: Mapping[str, str]

    async def reading(self, work: Callable[[Rows], Awaitable[T]]) -> T:
        """Run a work over one state; raise NotCopied where there is none to be had."""
        ...


class Target(Protocol):
    """Where a registry is copied to."""

    where: str
    #: Whether it is served: what is copied there is another store from then on.
    lives: bool

    async def fitted(self, rows: Rows) -> Rows:
        """Return rows as this place can have them."""
        ...

    async def writing(self, work: Callable[[Draft], Awaitable[T]]) -> T:
        """Run a work that fills an empty place; keep all when it returns, nothing if it raises.

        Raise NotCopied where the place is not empty.
        """
        ...


class CopiedTable(Struct, frozen=True):
    """A table as it was written and read back."""

    name: str
    rows: int
    digest: str


class Copied(Struct, frozen=True, kw_only=True):
    """What was copied: which store from which, and each table."""

    source: str
    target: str
    store_id: str
    predecessor: str
    revision: int
    tables: tuple[CopiedTable, ...]


class Copying:
    """A copy from one place to another; ``told`` hears how it goes, ``check`` looks first."""

    def __init__(
        self,
        source: Source,
        target: Target,
        *,
        told: Told = lambda _: None,
        check: Check | None = None,
        without: frozenset[Part] = frozenset(),
    ) -> None:
        self._source = source
        self._target = target
        self._told = told
        self._check = check
        self._without = without

    async def run(self) -> Copied:
        """Copy everything, and read it back; raise NotCopied with nothing left behind."""
        return await self._source.reading(self._read)

    async def _read(self, rows: Rows) -> Copied:
        await self._refuse_damaged(rows)
        chosen = await self._target.fitted(_Chosen(rows, rows.parts - self._without))
        if self._check is not None:
            self._told("looking at the keys")
            await self._check(chosen)
        return await self._target.writing(lambda draft: self._fill(chosen, draft))

    async def _fill(self, rows: Rows, draft: Draft) -> Copied:
        head = await _new_head(rows, lives=self._target.lives)
        tables = [table for table in TABLES if table.part in rows.parts]
        given = [await self._pass(table, rows, draft, head) for table in tables]
        for table, expected in zip(tables, given, strict=True):
            await self._read_back(table, draft, expected)
        if "ledger" in rows.parts:
            await self._verify(draft)
        await draft.finish(given)
        store_id, revision, _, _, predecessor = head
        return Copied(
            source=self._source.where,
            target=self._target.where,
            store_id=store_id,
            predecessor=predecessor,
            revision=revision,
            tables=tuple(given),
        )

    async def _pass(self, table: Table, rows: Rows, draft: Draft, head: Values) -> CopiedTable:
        """Write a table's rows as they are read; return what must be found there."""
        digest = _Digest(table)
        async for read in rows.read(table):
            batch = [head] if table is HEAD else read
            digest.take(batch)
            await draft.add(table, batch)
            self._told(f"copying {table.title}: {digest.rows} rows")
        return digest.found()

    async def _refuse_damaged(self, rows: Rows) -> None:
        for table in TABLES:
            noted = self._source.digests.get(table.title)
            if noted is not None and (await self._digested(table, rows)).digest != noted:
                raise NotCopied(
                    f"{self._source.where} is damaged: {table.title} is not what it was when the "
                    "backup was made; take another"
                )

    async def _read_back(self, table: Table, draft: Rows, expected: CopiedTable) -> None:
        found = await self._digested(table, draft)
        if found != expected:
            raise NotCopied(
                f"{table.title} was written with {expected.rows} rows and read back from "
                f"{self._target.where} with {found.rows} that are others: nothing was copied"
            )

    async def _digested(self, table: Table, rows: Rows) -> CopiedTable:
        self._told(f"reading {table.title}")
        digest = _Digest(table)
        async for batch in rows.read(table):
            digest.take(batch)
        return digest.found()

    async def _verify(self, draft: Rows) -> None:
        """Verify every chain of the ledger, as it was read back, against its checkpoints."""
        chains = {row[0]: _Chain(row) async for batch in draft.read(CHAINS) for row in batch}
        async for batch in draft.read(NODE_CHAINS):
            chains |= {row[0]: _Chain(row, received=True) for row in batch}
        async for batch in draft.read(CHECKPOINTS):
            for chain, _, _, _, lines in batch:
                chains[chain].lines += bytes(lines).split(b"\n")
        count = 0
        async for batch in draft.read(EVENTS):
            count += len(batch)
            self._told(f"verifying the ledger: {count} rows")
            for _, chain, number, journal, place, body, digest in batch:
                chains[chain].walk.take((Row(number, journal, place, body, digest), None))
        for chain in chains.values():
            chain.finish(self._source.where)


class _Chain:
    """A chain of the ledger, as far as it was looked at."""

    def __init__(self, row: Values, *, received: bool = False) -> None:
        _, self._id, *_, number, digest = row
        self._received = received
        self._base = number, bytes.fromhex(digest)
        self._problems = Problems()
        self.lines: list[bytes] = []

    @cached_property
    def _anchors(self) -> AnchorWalk:
        return AnchorWalk(self.lines, None, self._id)

    @cached_property
    def walk(self) -> RowWalk:
        """Return what compares the rows; all lines are there by then."""
        checked = self._anchors.checked(self._problems)
        return RowWalk(checked, self._problems, received=self._received)

    def finish(self, where: str) -> None:
        """Raise NotCopied for a chain that was changed."""
        self.walk.finish(self._base, anchored=self._anchors.count > 0)
        self._anchors.finish(self._problems)
        for problem in self._problems.told:
            raise NotCopied(
                f"the ledger of {where} does not verify (row {problem.row}: {problem.words}): "
                "nothing was copied; run bascule audit verify"
            )


class _Chosen:
    """The rows of some parts of a place."""

    def __init__(self, rows: Rows, parts: frozenset[Part]) -> None:
        self.parts = parts
        self.read = rows.read


async def _new_head(rows: Rows, *, lives: bool) -> Values:
    """Return the head of the copy: a store that lives is another one, and names the one before."""
    [head] = [row async for batch in rows.read(HEAD) for row in batch]
    store_id, revision, floor, mark, predecessor = head
    if not lives:
        return store_id, revision, floor, mark, predecessor
    return secrets.token_hex(8), revision, floor, mark, store_id


class _Digest:
    """Counts rows, and hashes them in their order."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._hash = hashlib.sha256()
        self.rows = 0

    def take(self, batch: Batch) -> None:
        self.rows += len(batch)
        for row in batch:
            self._hash.update(_encode(tuple(row)))

    def found(self) -> CopiedTable:
        return CopiedTable(self._table.title, self.rows, self._hash.hexdigest())
