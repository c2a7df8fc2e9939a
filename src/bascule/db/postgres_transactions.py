"""Transactions of PostgreSQL as plain functions, each on a thread, while the loop does the asking.

A write whose commit was not answered is asked about: it left a mark of its own, and whoever is
asked waits until that transaction has ended, one way or the other. So a write happened, or did not,
or nobody can say yet; it is never told wrongly.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from bascule.clock import SYSTEM_CLOCK
from bascule.db.driver import FAULTS, Connection
from bascule.db.errors import OutcomeUnknown, StoreUnavailable
from bascule.db.group import Work
from bascule.db.postgres import SECONDS, Postgres, said
from bascule.db.statements import Statements, Values

T = TypeVar("T")
_READERS = 3
#: How soon a database that went away is asked again what it has.
_AGAIN_SECONDS = 0.1
_VALUE = re.compile(r"\?|(?<!:):([a-z_][a-z0-9_]*)")
_ASKS = re.compile(r"\s*(SELECT|WITH)\b|.*\bRETURNING\b", re.IGNORECASE | re.DOTALL)


class Answers:
    """What a statement found."""

    def __init__(self, rows: list[tuple[Any, ...]], rowcount: int) -> None:
        self._rows = rows
        self.rowcount = rowcount

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the first row."""
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows."""
        return self._rows

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._rows)


class PostgresStatements:
    """A connection's transaction, for one thread that is not the loop's."""

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._loop = loop

    def execute(self, query: str, values: Values = (), /) -> Answers:
        """Run one statement; whoever lent the connection cuts it when this takes too long."""
        sql, names = _numbered(query)
        given = [values[name] for name in names] if isinstance(values, Mapping) else values
        asking = self._ask(sql, [fitting(value) for value in given])
        return asyncio.run_coroutine_threadsafe(asking, self._loop).result()

    async def _ask(self, sql: str, values: Sequence[object]) -> Answers:
        if _ASKS.match(sql):
            rows = await self._connection.fetch(sql, *values)
            return Answers([tuple(row) for row in rows], len(rows))
        words = (await self._connection.execute(sql, *values)).split()
        return Answers([], int(words[-1]) if words[-1].isdecimal() else 0)


def fitting(value: object) -> object:
    """Return a value as PostgreSQL takes it: its text has no NUL."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) and "\0" in value else value


@lru_cache(maxsize=500)
def _numbered(query: str) -> tuple[str, tuple[str, ...]]:
    """Return a query with PostgreSQL's placeholders, and the names of them, where they have one."""
    names: list[str] = []
    places = 0

    def place(found: re.Match[str]) -> str:
        nonlocal places
        name = found[1]
        if name is None:
            places += 1
            return f"${places}"
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return _VALUE.sub(place, query), tuple(names)


class Marking(Protocol):
    """What every write of a database begins with, so that it can be told apart afterwards."""

    def begin(self, statements: Statements, mark: bytes, /) -> None:
        """Take the locks of a write, and leave its mark."""
        ...

    def has(self, statements: Statements, mark: bytes, /) -> bool:
        """Say whether the write with this mark was the last one; wait for it to have ended."""
        ...

    def committed(self) -> None:
        """Take notice that the last write is durable, before the next one begins."""
        ...


class PostgresTransactions:
    """Writes of this process, one after another, and reads beside them.

    ``seconds`` is how long a write may take, with waiting for those before it.
    """

    def __init__(self, postgres: Postgres, marking: Marking, *, seconds: float = SECONDS) -> None:
        self.postgres = postgres
        #: Why the last write was refused, in words; None once one was taken.
        self.refusal: str | None = None
        self._marking = marking
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="bascule-pg-writer")
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="bascule-pg-reader")
        self._writing: set[asyncio.Task[Any]] = set()

    async def write(
        self, work: Callable[[Statements], T], *, after: Callable[[T], None] | None = None
    ) -> T:
        """Run a whole transaction; return what it returned, once that is durable.

        ``after`` is called right after the commit, also when whoever waited has been cancelled
        meanwhile. Raise OutcomeUnknown while nobody can say whether it happened.
        """
        task = asyncio.ensure_future(self._write(work, after))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return await asyncio.shield(task)

    async def write_all(self, works: Sequence[Work[Statements]], /) -> Sequence[Exception | None]:
        """Run one transaction of several works; see :class:`bascule.db.group.Store`."""
        told: list[Exception | None] = []

        def committed(failures: Sequence[Exception | None]) -> None:
            for work, failure in zip(works, failures, strict=True):
                told.append(failure or _failure(work.committed))

        await self.write(lambda found: [_apart(found, one) for one in works], after=committed)
        return told

    async def read(self, work: Callable[[Statements], T], *, seconds: float | None = None) -> T:
        """Run several queries over one snapshot."""
        loop = asyncio.get_running_loop()

        async def reading(connection: Connection) -> T:
            statements = PostgresStatements(connection, loop)
            return await loop.run_in_executor(self._readers, work, statements)

        return await self.postgres.read(reading, seconds=seconds)

    async def heal(self) -> None:
        """Do nothing: every transaction has a connection that works, or fails alone."""

    async def forget_log(self) -> None:
        """Do nothing: what is left of removed rows is the server's, and sealed."""

    async def close(self) -> None:
        """Wait for what is under way, which ends in time."""
        if self._writing:
            await asyncio.wait(set(self._writing))
        self._writer.shutdown(wait=False)
        self._readers.shutdown(wait=False)

    async def _write(self, work: Callable[[Statements], T], after: Callable[[T], None] | None) -> T:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._seconds
        try:
            async with asyncio.timeout_at(deadline):
                await self._turn.acquire()
            try:
                result = await self._committed(work, max(deadline - loop.time(), 0.1))
                self.refusal = None
                if after is not None:  # before the next write begins
                    after(result)
            finally:
                self._turn.release()
        except (StoreUnavailable, TimeoutError) as error:
            self.refusal = "PostgreSQL does not take it now"
            if isinstance(error, StoreUnavailable):
                raise
            raise StoreUnavailable("the writes before this one take too long") from None
        return result

    async def _committed(self, work: Callable[[Statements], T], seconds: float) -> T:
        mark, results = secrets.token_bytes(16), list[T]()

        def marked(statements: Statements) -> None:
            self._marking.begin(statements, mark)
            results.append(work(statements))

        try:
            await self._on_thread(marked, seconds)
        except OutcomeUnknown:
            if not await self._has(mark):
                raise StoreUnavailable("PostgreSQL went away before it had written") from None
        self._marking.committed()
        return results[0]

    async def _has(self, mark: bytes) -> bool:
        """Say whether a write happened; raise OutcomeUnknown where that cannot be told in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._seconds
        while True:
            try:
                return await self._on_thread(lambda found: self._marking.has(found, mark), None)
            except StoreUnavailable as error:
                if loop.time() + _AGAIN_SECONDS >= deadline:
                    words = f"whether it was written is not known yet: {error}"
                    raise OutcomeUnknown(words) from error
            await SYSTEM_CLOCK.sleep(_AGAIN_SECONDS)

    async def _on_thread(self, work: Callable[[Statements], T], seconds: float | None) -> T:
        loop = asyncio.get_running_loop()

        async def writing(connection: Connection) -> T:
            statements = PostgresStatements(connection, loop)
            return await loop.run_in_executor(self._writer, work, statements)

        return await self.postgres.write(writing, seconds=seconds)


def _apart(statements: Statements, work: Work[Statements]) -> Exception | None:
    """Run a part of a transaction; undo it alone if it fails, and return why."""
    statements.execute("SAVEPOINT apart")
    failure = _failure(lambda: work.run(statements))
    if isinstance(failure, FAULTS):
        failure = StoreUnavailable(f"PostgreSQL refuses it: {said(failure)}")
    if failure is not None:
        statements.execute("ROLLBACK TO SAVEPOINT apart")
    statements.execute("RELEASE SAVEPOINT apart")
    return failure


def _failure(work: Callable[[], None]) -> Exception | None:
    try:
        work()
    except Exception as error:  # noqa: BLE001 - whoever asked for it is told
        return error
    return None
