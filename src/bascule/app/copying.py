"""Copies a registry from one place to another, and reads it back before anybody is told so.

A place is a data directory, a PostgreSQL or a backup; each gives and takes the same rows
(``copy_tables.py``). The source is read as of one moment. The target has all of it or nothing: it
is undone unless the digest of every table is the source's and the chain of the ledger holds.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from bascule.app.copy_tables import CHECKPOINTS, EVENTS, HEAD, LEDGER_META, TABLES, Part, Table
from bascule.audit.anchor_walk import AnchorWalk
from bascule.audit.chain import GENESIS, Row
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

    @property
    def digests(self) -> Mapping[str, str]:
        """Return the digests that tables must have, as far as anybody noted them."""
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

    async def reading(self, work: Callable[[Rows], Awaitable[T]]) -> T:
        """Run a work over one state; raise NotCopied where there is none to be had."""
        ...


class Target(Protocol):
    """Where a registry is copied to."""

    where: str
    #: Whether it is served: what is copied there is another store from then on.
    lives: bool

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
        chosen = _Chosen(rows, self._without)
        if self._check is not None:
            self._told("looking at the keys")
            await self._check(chosen)
        return await self._target.writing(lambda draft: self._fill(chosen, draft))

    async def _fill(self, rows: Rows, draft: Draft) -> Copied:
        head = await _new_head(rows, lives=self._target.lives)
        tables = [table for table in TABLES if table.part in rows.parts]
        given = [await self._pass(table, rows, draft, head) for table in tables]
        self._refuse_damaged(rows.digests, given)
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

    def _refuse_damaged(self, noted: Mapping[str, str], given: Sequence[CopiedTable]) -> None:
        for table in given:
            if table.name != HEAD.title and noted.get(table.name, table.digest) != table.digest:
                raise NotCopied(
                    f"{self._source.where} is damaged: {table.name} is not what it was when the "
                    "backup was made; take another"
                )

    async def _read_back(self, table: Table, draft: Rows, expected: CopiedTable) -> None:
        self._told(f"reading back {table.title}")
        digest = _Digest(table)
        async for batch in draft.read(table):
            digest.take(batch)
        found = digest.found()
        if found != expected:
            raise NotCopied(
                f"{table.title} was written with {expected.rows} rows and read back from "
                f"{self._target.where} with {found.rows} that are others: nothing was copied"
            )

    async def _verify(self, draft: Rows) -> None:
        """Verify the chain of the ledger, as it was read back, against its own checkpoints."""
        meta = {key: value async for batch in draft.read(LEDGER_META) for key, value in batch}
        lines = [
            line
            async for batch in draft.read(CHECKPOINTS)
            for *_, anchors in batch
            for line in bytes(anchors).split(b"\n")
        ]
        problems, anchors = Problems(), AnchorWalk(lines, None, meta.get("ledger_id"))
        walk = RowWalk(anchors.checked(problems), problems)
        async for batch in draft.read(EVENTS):
            self._told(f"verifying the chain of the ledger: {walk.rows} rows")
            for row in batch:
                walk.take((Row(*row), None))
        cut = int(meta.get("base_number", 0)), bytes.fromhex(meta.get("base_hash", GENESIS.hex()))
        walk.finish(cut, anchored=anchors.count > 0)
        anchors.finish(problems)
        for problem in problems.told:
            raise NotCopied(
                f"the ledger of {self._source.where} does not verify (row {problem.row}: "
                f"{problem.words}): nothing was copied; run bascule audit verify"
            )


class _Chosen:
    """The rows of a place without those of some parts."""

    def __init__(self, rows: Rows, without: frozenset[Part]) -> None:
        self.parts = rows.parts - without
        self.digests = rows.digests
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
