"""PostgreSQL for asyncio: a pool, transactions with a deadline, and honesty about outcomes.

Everything ends in time: whatever hangs has its connection cut, and no question is left behind in
this process. A write whose commit was not answered is an ``OutcomeUnknown``; every other failure,
whatever the driver calls it, means that nothing happened. Several processes share the database:
its forms go forward under a lock, and advisory locks, which die with their owner, say who does
what only one may do.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Self, TypeAlias, TypeVar
from urllib.parse import urlsplit

from bascule.db.driver import (
    FAULTS,
    Connection,
    OwnConnection,
    Pool,
    Row,
    connect,
    make_pool,
)
from bascule.db.errors import OutcomeUnknown, StoreUnavailable

T = TypeVar("T")
#: How long one transaction may take, waiting for a connection included.
SECONDS = 5.0
#: How long bringing a database to its newest form may take.
FORM_SECONDS = 120.0
#: Connections of one process at most.
MOST = 8
#: How long a question whose connection was cut has to notice.
_NOTICE_SECONDS = 1.0
#: Classes of errors that leave open what became of a commit: of the connection, and of an
#: operator who ended it.
_DOUBTFUL = ("08", "57P")
#: Classes of errors with which a server that is well lets nobody in: who asks, for which database,
#: and as one too many.
_NOT_LET_IN = ("28", "3D", "53")
#: What PgBouncer says to a connection that brings settings of its own.
_UNKNOWN_SETTING = "unsupported startup parameter"
_FORMS = "CREATE TABLE bascule_forms (part text PRIMARY KEY, form integer NOT NULL)"
_NEW_FORM = """INSERT INTO bascule_forms VALUES ($1, $2)
    ON CONFLICT (part) DO UPDATE SET form = excluded.form"""
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE = "BEGIN"


Work: TypeAlias = Callable[[Connection], Awaitable[T]]


class Postgres:
    """One database, shared with other processes.

    ``listen_dsn`` leads to the server itself where ``dsn`` leads to a pooler: what belongs to one
    connection, listening and locks, needs it.
    """

    def __init__(
        self, dsn: str, *, listen_dsn: str | None = None, seconds: float = SECONDS, most: int = MOST
    ) -> None:
        self.dsn = dsn
        self.direct_dsn = listen_dsn or dsn
        self.where = shown_dsn(dsn)
        #: Why the database cannot be asked now, in words that anybody may read.
        self.trouble: str | None = None
        #: How long one transaction may take, waiting for a connection included.
        self.seconds = seconds
        self._most = most
        self._pooler = listen_dsn is not None
        self._pool: Pool | None = None

    async def open(self) -> Self:
        """Make sure that it can be reached; raise StoreUnavailable."""
        try:
            async with asyncio.timeout(self.seconds):
                self._pool = await make_pool(
                    self.dsn,
                    most=self._most,
                    seconds=self.seconds,
                    settings=self._settings(),
                    prepared=0 if self._pooler else 100,
                )
        except (*FAULTS, ValueError) as error:
            raise StoreUnavailable(f"{self.where} cannot be opened: {said(error)}") from error
        try:
            await self.read(lambda connection: connection.fetchval("SELECT 1"))
        except BaseException:
            await self.close()
            raise
        return self

    def _settings(self) -> dict[str, str]:
        if self._pooler:  # which knows no such settings, and shares the connection with others
            return {"application_name": "bascule"}
        most = str(int(self.seconds * 1000))
        return {
            "application_name": "bascule",
            "statement_timeout": most,
            "idle_in_transaction_session_timeout": most,
        }

    async def close(self) -> None:
        """Close every connection; one that does not answer is cut."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(_NOTICE_SECONDS):
                await pool.close()
        except FAULTS:
            pool.terminate()

    # --- transactions

    async def read(self, work: Work[T], *, seconds: float | None = None) -> T:
        """Run several queries over one snapshot."""
        begin = _READ + self._longer(seconds)
        return await self._leased(lambda connection: _transaction(connection, work, begin), seconds)

    async def write(self, work: Work[T], *, seconds: float | None = None) -> T:
        """Run a whole transaction; return what it returned, once that is durable.

        Raise OutcomeUnknown when its commit was not answered, StoreUnavailable when nothing was
        written.
        """
        begin = _WRITE + self._longer(seconds)
        return await self._leased(
            lambda connection: _transaction(connection, work, begin), seconds, writes=True
        )

    def _longer(self, seconds: float | None) -> str:
        """Return what lets the server wait for a transaction that may take longer than others."""
        if seconds is None or seconds <= self.seconds:
            return ""
        most = int(seconds * 1000)
        return (
            f"; SET LOCAL statement_timeout = {most}"
            f"; SET LOCAL idle_in_transaction_session_timeout = {most}"
        )

    async def fetch(self, query: str, *args: object, seconds: float | None = None) -> list[Row]:
        """Run one query, which sees one snapshot; as ``read``, in one round trip."""
        return await self._leased(lambda connection: connection.fetch(query, *args), seconds)

    async def statement(self, query: str, *args: object) -> list[Row]:
        """Run one statement that is a transaction of its own; as ``write``, in one round trip."""
        return await self._leased(
            lambda connection: _alone(connection, query, args), None, writes=True
        )

    @asynccontextmanager
    async def lent(self) -> AsyncGenerator[Lent, None]:
        """Lend a connection for several questions, each of them as if it were asked here."""
        async with self._lease(self.seconds) as connection:
            yield Lent(self, connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Transaction, None]:
        """Begin a transaction that waits for whoever asks; undone unless its last word is said.

        The server ends one that hears nothing for too long: it may hold what others wait for.
        """
        async with self._lease(self.seconds) as connection:
            begun = Transaction(self, connection)
            try:
                await begun.begin()
                yield begun
            finally:
                await begun.undo()

    async def _leased(self, work: Work[T], seconds: float | None, *, writes: bool = False) -> T:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (seconds or self.seconds)
        async with self._lease(deadline - loop.time()) as connection:
            return await self.answer(connection, work, deadline - loop.time(), writes=writes)

    async def answer(
        self, connection: Connection, work: Work[T], seconds: float, *, writes: bool = False
    ) -> T:
        """Run a work on a connection of this database; whoever is answered has no trouble."""
        with self.faults(writes=writes):
            found = await ended(connection, work, seconds)
        self.trouble = None
        return found

    @asynccontextmanager
    async def _lease(self, seconds: float) -> AsyncGenerator[Connection, None]:
        pool = self._pool
        if pool is None:
            raise StoreUnavailable(f"{self.where} is not open")
        with self.faults():
            connection = await self._acquire(pool, seconds)
        try:
            yield connection
        finally:
            with suppress(*FAULTS):
                # It is asked to forget what it was told: one that does not answer is cut.
                await pool.release(connection, timeout=_NOTICE_SECONDS)

    async def _acquire(self, pool: Pool, seconds: float) -> Connection:
        try:
            async with asyncio.timeout(seconds):
                return await pool.acquire()
        except TimeoutError as error:
            busy = pool.get_size() == self._most and not pool.get_idle_size()
            why = f"all of its {self._most} connections are in use" if busy else ""
            raise TimeoutError(why) from error

    @contextmanager
    def faults(self, *, writes: bool = False) -> Generator[None, None, None]:
        """Have all that the driver raises say what it means to whoever asked.

        A write that is refused was answered. It is no trouble of the database, which the next read
        would end: whoever wrote knows what was refused, and until when.
        """
        try:
            yield
        except OutcomeUnknown as error:
            self.trouble = str(error)
            raise
        except FAULTS as error:
            words = f"{self.where} {_deed(error)}: {said(error)}"
            self.trouble = None if writes and _was_said(error) else words
            raise StoreUnavailable(words) from error

    # --- what one process does for all

    async def migrate(self, part: str, forms: Sequence[str]) -> None:
        """Bring a part's tables to their newest form; raise StoreUnavailable for a newer one.

        Each form can be served by the version that knows the one before it, so that replicas one
        form apart serve together.
        """

        async def work(connection: Connection) -> None:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", lock_key("forms"))
            if await connection.fetchval("SELECT to_regclass('bascule_forms') IS NULL"):
                await self._refuse_encoding(connection)
                await connection.execute(_FORMS)
            query = "SELECT form FROM bascule_forms WHERE part = $1"
            form: int = await connection.fetchval(query, part) or 0
            if form > len(forms) + 1:
                raise StoreUnavailable(
                    f"{part} in {self.where} has form {form} and this version of Bascule knows "
                    f"{len(forms)}: it was written by a newer one"
                )
            for statements in forms[form:]:
                await connection.execute(statements)
            if form < len(forms):
                await connection.execute(_NEW_FORM, part, len(forms))

        await self.write(work, seconds=FORM_SECONDS)

    async def _refuse_encoding(self, connection: Connection) -> None:
        """Refuse to make tables where not every text can be kept."""
        encoding: str = await connection.fetchval("SHOW server_encoding")
        if encoding != "UTF8":
            raise StoreUnavailable(
                f"{self.where} has the encoding {encoding}: make a database with ENCODING 'UTF8' "
                "TEMPLATE template0"
            )

    @asynccontextmanager
    async def held(self, name: str) -> AsyncGenerator[bool, None]:
        """Try to be the one who does something; the lock dies with its owner.

        Raise StoreUnavailable where nobody can be asked.
        """
        with self.faults():
            connection = await self.connect()
        query, key = "SELECT pg_try_advisory_lock($1)", lock_key(name)
        try:
            mine = await self.answer(connection, lambda c: c.fetchval(query, key), self.seconds)
            yield bool(mine)
        finally:
            await hang_up(connection)

    async def connect(self) -> OwnConnection:
        """Return a connection of one's own to the server itself."""
        async with asyncio.timeout(self.seconds):
            name = {"application_name": "bascule"}
            return await connect(self.direct_dsn, seconds=self.seconds, settings=name)


class Lent:
    """A connection for several questions (``Postgres.lent``)."""

    def __init__(self, postgres: Postgres, connection: Connection) -> None:
        self._postgres = postgres
        self._connection = connection

    async def fetch(self, query: str, *args: object) -> list[Row]:
        """Run one query; raise StoreUnavailable."""
        return await self._run(lambda connection: connection.fetch(query, *args))

    async def statement(self, query: str, *args: object) -> list[Row]:
        """Run one statement that is a transaction of its own; as ``Postgres.write``."""
        return await self._run(lambda connection: _alone(connection, query, args), writes=True)

    async def _run(self, work: Work[T], *, writes: bool = False) -> T:
        seconds = self._postgres.seconds
        return await self._postgres.answer(self._connection, work, seconds, writes=writes)


class Transaction(Lent):
    """A transaction that is open between questions (``Postgres.transaction``)."""

    def __init__(self, postgres: Postgres, connection: Connection) -> None:
        super().__init__(postgres, connection)
        self._open = False

    async def begin(self) -> None:
        """Begin it."""
        most = int(self._postgres.seconds * 1000)
        await self._run(
            lambda connection: connection.execute(
                f"BEGIN; SET LOCAL idle_in_transaction_session_timeout = {most}"
            )
        )
        self._open = True

    async def statement(self, query: str, *args: object) -> list[Row]:
        """Say its last word and commit; as ``Postgres.write``."""

        async def work(connection: Connection) -> list[Row]:
            rows = await connection.fetch(query, *args)
            await _commit(connection)
            self._open = False
            return rows

        return await self._run(work, writes=True)

    async def undo(self) -> None:
        """Undo it, unless it was committed."""
        if self._open:
            with suppress(StoreUnavailable):
                await self._run(lambda connection: connection.execute("ROLLBACK"))


async def hang_up(connection: OwnConnection) -> None:
    """Close a connection; one that does not answer is cut."""
    try:
        async with asyncio.timeout(_NOTICE_SECONDS):
            await connection.close()
    except FAULTS:
        connection.terminate()


async def stay(connection: OwnConnection, seconds: float) -> None:
    """Return when a connection is lost; one that dies without a word is asked every so often.

    Raise what the driver does where that is not answered in as long again.
    """
    lost = asyncio.Event()
    connection.add_termination_listener(lambda _: lost.set())
    while not connection.is_closed():
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await lost.wait()
        if not lost.is_set():
            await ended(connection, lambda c: c.execute("SELECT 1"), seconds)


async def ended(connection: Connection, work: Work[T], seconds: float) -> T:
    """Run a work on a connection; whatever happens, it has ended on return.

    A question is not cancelled, which would ask the server a second time: its connection is cut.
    """
    asking = asyncio.ensure_future(work(connection))
    try:
        await asyncio.wait({asking}, timeout=seconds)
    finally:
        late = not asking.done()
        if late:
            await _cut(connection, asking)
    if not asking.done() or asking.cancelled():
        raise OutcomeUnknown(_unknown(TimeoutError()))
    if late and (error := asking.exception()) is not None:
        if isinstance(error, OutcomeUnknown):
            raise OutcomeUnknown(_unknown(TimeoutError())) from error
        raise TimeoutError from error
    return asking.result()


async def _cut(connection: Connection, asking: asyncio.Future[T]) -> None:
    connection.terminate()
    await asyncio.wait({asking}, timeout=_NOTICE_SECONDS)
    if not asking.done():
        asking.cancel()
        await asyncio.wait({asking}, timeout=_NOTICE_SECONDS)
    if asking.done() and not asking.cancelled():
        asking.exception()  # looked at: whoever was cancelled does not


async def _transaction(connection: Connection, work: Work[T], begin: str) -> T:
    await connection.execute(begin)
    try:
        result = await work(connection)
    except BaseException:
        with suppress(*FAULTS):
            await connection.execute("ROLLBACK")
        raise
    if begin.startswith(_READ):
        await connection.execute("COMMIT")
    else:
        await _commit(connection)
    return result


async def _commit(connection: Connection) -> None:
    try:
        ended = await connection.execute("COMMIT")
    except FAULTS as error:
        if _is_certain(error):
            raise
        raise OutcomeUnknown(_unknown(error)) from error
    if ended != "COMMIT":
        raise StoreUnavailable("PostgreSQL undid a transaction instead of committing it")


async def _alone(connection: Connection, query: str, args: Sequence[object]) -> list[Row]:
    try:
        return await connection.fetch(query, *args)
    except FAULTS as error:
        if _is_certain(error):
            raise
        raise OutcomeUnknown(_unknown(error)) from error


def _unknown(error: BaseException) -> str:
    return f"PostgreSQL went away while it was writing: {said(error)}"


def _is_certain(error: BaseException) -> bool:
    """Say whether an error of a commit means that nothing was written.

    The server says so by refusing it and going on; what ends the connection may come too late.
    """
    state = getattr(error, "sqlstate", None)
    return _was_said(error) and isinstance(state, str) and not state.startswith(_DOUBTFUL)


def _deed(error: BaseException) -> str:
    """Return what a server did that did not do what was asked."""
    if _UNKNOWN_SETTING in str(error):
        return "is a pooler: name the server itself in store.listen_dsn (BASCULE_LISTEN_DSN)"
    state = getattr(error, "sqlstate", None)
    away = not isinstance(state, str) or not state.startswith(_NOT_LET_IN)
    return "does not answer" if away and not _was_said(error) else "refuses"


def _was_said(error: BaseException) -> bool:
    """Say whether the server refused something, and goes on."""
    return getattr(error, "severity_en", None) == "ERROR"


def said(error: BaseException) -> str:
    """Return an error's words, which some have none of."""
    if isinstance(error, TimeoutError):
        return str(error) or "it took too long"
    return "; ".join(str(error).splitlines()) or type(error).__name__


def shown_dsn(dsn: str) -> str:
    """Return where a DSN leads, without who goes there and with what."""
    parts = urlsplit(dsn)
    address = parts.netloc.rpartition("@")[2] or "its socket"
    return f"PostgreSQL at {address}{parts.path}"


def lock_key(name: str) -> int:
    """Return the number of a lock by its name."""
    digest = hashlib.sha256(f"bascule {name}".encode()).digest()
    return int.from_bytes(digest[:8], signed=True)
