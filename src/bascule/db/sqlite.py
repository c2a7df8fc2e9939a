"""SQLite for asyncio: one writer thread, a few readers, and honesty about what is durable.

A transaction is one closure that runs on one thread from BEGIN IMMEDIATE to COMMIT, so that no
other task can come in between. A commit that fails poisons the writer: whether the disk took it
is unknown, so nothing is acknowledged, nothing is tried again, and only a restart, which reads
what is really there, makes the store writable. Reads go on.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, TypeVar
from urllib.parse import quote

from bascule.db.errors import StoreUnavailable
from bascule.db.group import Work
from bascule.db.statements import Statements

T = TypeVar("T")
#: The steps to a file's next form, all in one transaction: statements, and what SQL cannot say.
Migration: TypeAlias = Sequence[str | Callable[[sqlite3.Connection], None]]
Synchronous = Literal["FULL", "NORMAL", "OFF"]

BUSY_MS = 5_000
APPLICATION_ID = 0x62617363  # "basc": another program's database is not opened by mistake
_PRIMARY = 0xFF
_NONE_OUTDATED: Mapping[int, str] = {}
_FATAL = frozenset(
    {
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
    }
)


class Commit(Protocol):
    """How a transaction is made durable; tests have one that fails."""

    def __call__(self, connection: sqlite3.Connection, /) -> None: ...


def plain_commit(connection: sqlite3.Connection, /) -> None:
    """Commit for real."""
    connection.execute("COMMIT")


class Check(Protocol):
    """How a file is looked through before it is opened."""

    def __call__(self, connection: sqlite3.Connection, /) -> str | None:
        """Return what is damaged, None if nothing is; the connection only reads."""
        ...


def quick_check(connection: sqlite3.Connection, /) -> str | None:
    """Look through the whole file."""
    [found] = connection.execute("PRAGMA quick_check(1)").fetchone()
    return None if found == "ok" else found.splitlines()[-1]


class Database:
    """One SQLite file, opened once by this process.

    A file that is foreign, newer or damaged is refused, and not a byte of it changes. ``shrinks``
    lets a new file give pages back that are no longer used (:func:`give_back`), and overwrites
    what is deleted.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        synchronous: Synchronous = "FULL",
        readers: int = 2,
        commit: Commit = plain_commit,
        check: Check = quick_check,
        shrinks: bool = False,
    ) -> None:
        self.path = Path(path)
        self.poisoned: str | None = None
        #: Why the last write was refused, in words without a path; None once one was taken.
        self.refusal: str | None = None
        #: What whoever reads of a failed write can do.
        self.advice = "check the disk, then restart"
        self._synchronous = synchronous
        self._commit = commit
        self._check = check
        self._shrinks = shrinks
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="bascule-db-writer")
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix="bascule-db-reader")
        self._here = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._writing: sqlite3.Connection | None = None
        self._migrations: Sequence[Migration] = ()
        self._outdated: Mapping[int, str] = {}
        self._closed = False

    async def open(
        self, migrations: Sequence[Migration], *, outdated: Mapping[int, str] = _NONE_OUTDATED
    ) -> None:
        """Open the file, made with mode 0600 if it is new, and bring it to the newest form.

        ``outdated`` says of older forms why a file that has one is refused.
        """
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._writer, self._open, migrations, outdated)
        except (OSError, sqlite3.Error, StoreUnavailable) as error:
            await self.close()
            if isinstance(error, StoreUnavailable):
                raise
            raise StoreUnavailable(f"{self.path} cannot be opened: {error}") from error

    async def write(
        self,
        work: Callable[[sqlite3.Connection], T],
        *,
        after: Callable[[T], None] | None = None,
    ) -> T:
        """Run a whole transaction; return what it returned, once that is durable.

        ``after`` is called on the writer's thread right after the commit, also when whoever
        waited has been cancelled meanwhile: so commits are told in their own order, all of them.
        """
        self._refuse_closed()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writer, self._write, work, after)

    async def write_all(
        self, works: Sequence[Work[sqlite3.Connection]], /
    ) -> Sequence[Exception | None]:
        """Run one transaction of several works; see :class:`bascule.db.group.Store`."""
        self._refuse_closed()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writer, self._write_all, works)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run several queries over one snapshot."""
        self._refuse_closed()
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, work)

    async def heal(self) -> None:
        """After a write that failed, read what is really there, as a restart would.

        Writes go on where the file can be opened; raise StoreUnavailable where it cannot.
        """
        self._refuse_closed()
        await asyncio.get_running_loop().run_in_executor(self._writer, self._heal)

    async def forget_log(self) -> None:
        """Empty the write-ahead log, which has what was overwritten; others may keep it busy."""
        await asyncio.to_thread(self._forget_log)

    def _forget_log(self) -> None:
        with (
            suppress(sqlite3.OperationalError),
            closing(sqlite3.connect(self.path, timeout=BUSY_MS / 1000)) as connection,
        ):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    async def close(self) -> None:
        """Wait for what is under way, then close every connection."""
        self._closed = True
        await asyncio.to_thread(self._close)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"{self.path} is closed")

    def _open(self, migrations: Sequence[Migration], outdated: Mapping[int, str]) -> None:
        self._migrations, self._outdated = migrations, outdated
        _make(self.path)
        if self.path.stat().st_size:
            with closing(read_only(self.path)) as untouched:
                refuse_foreign(untouched, self.path, len(migrations), outdated)
                _refuse_damaged(self._check(untouched), self.path)
        connection = self._connect()
        try:
            if self._shrinks:  # which a file takes that has no page yet
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                connection.execute("PRAGMA secure_delete = ON").fetchall()
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            migrate(connection, self.path, migrations)
        except BaseException:
            self._discard(connection)
            raise
        self._writing = connection

    def _discard(self, connection: sqlite3.Connection) -> None:
        self._connections.remove(connection)
        connection.close()

    def _heal(self) -> None:
        if self.poisoned is None:
            return
        old, self._writing = self._writing, None
        if old is not None:
            self._discard(old)
        try:
            self._open(self._migrations, self._outdated)
        except (OSError, sqlite3.Error) as error:
            raise StoreUnavailable(f"{self.path} cannot be opened: {error}") from error
        self.poisoned = None

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=BUSY_MS / 1000, isolation_level=None, check_same_thread=False
        )
        self._connections.append(connection)
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def _write(
        self, work: Callable[[sqlite3.Connection], T], after: Callable[[T], None] | None
    ) -> T:
        result = self._committed(work)
        if after is not None:
            after(result)
        return result

    def _write_all(self, works: Sequence[Work[sqlite3.Connection]]) -> list[Exception | None]:
        failures = self._committed(lambda connection: [_apart(connection, work) for work in works])
        return [
            failure or _failure(work.committed)
            for work, failure in zip(works, failures, strict=True)
        ]

    def _committed(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self.poisoned is not None or self._writing is None:
            raise StoreUnavailable(self.poisoned or f"{self.path} is not open")
        with self._honest():
            result = _transaction(self._writing, work, self._commit)
        self.refusal = None
        return result

    @contextmanager
    def _honest(self) -> Generator[None, None, None]:
        """Turn SQLite's errors into ours; poison the writer where the disk is in doubt."""
        try:
            yield
        except sqlite3.Error as error:
            if isinstance(error, _CommitFailed) or _code(error) in _FATAL:
                self.refusal = f"a write failed ({error}); {self.advice}"
                self.poisoned = (
                    f"{self.path} takes no more writes since one failed ({error}); what was "
                    f"acknowledged is safe and can be read; {self.advice}"
                )
                raise StoreUnavailable(self.poisoned) from error
            if _code(error) == sqlite3.SQLITE_BUSY:
                self.refusal = "another process holds the store"
                raise StoreUnavailable(f"{self.path} is held by another process") from error
            raise

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection: sqlite3.Connection | None = getattr(self._here, "connection", None)
        if connection is None:
            connection = self._here.connection = self._connect()
            connection.execute("PRAGMA query_only = ON")
        connection.execute("BEGIN")
        try:
            return work(connection)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self.path} cannot be read: {error}") from error
        finally:
            connection.rollback()

    def _close(self) -> None:
        self._writer.shutdown()
        self._readers.shutdown()
        while self._connections:
            self._connections.pop().close()


class _CommitFailed(sqlite3.Error):
    """A commit that did not come back well, whatever SQLite said about it."""


def _code(error: sqlite3.Error) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & _PRIMARY


def _transaction(
    connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T], commit: Commit
) -> T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        try:
            commit(connection)
        except sqlite3.Error as error:
            raise _CommitFailed(str(error)) from error
    except BaseException:
        if connection.in_transaction:  # some failures have ended it already
            connection.execute("ROLLBACK")
        raise
    return result


def _apart(connection: sqlite3.Connection, work: Work[sqlite3.Connection]) -> Exception | None:
    """Run a part of a transaction; undo it alone if it fails, and return why."""
    connection.execute("SAVEPOINT apart")
    failure = _failure(lambda: work.run(connection))
    if failure is not None:
        if _ends_all(failure) or not connection.in_transaction:
            raise failure
        connection.execute("ROLLBACK TO apart")
    connection.execute("RELEASE apart")
    return failure


def _failure(work: Callable[[], None]) -> Exception | None:
    try:
        work()
    except Exception as error:  # noqa: BLE001 - whoever asked for it is told
        return error
    return None


def _ends_all(failure: Exception) -> bool:
    return isinstance(failure, sqlite3.Error) and _code(failure) in _FATAL


def _make(path: Path) -> None:
    """Make a file, unless it is there: opening and closing that would end SQLite's locks on it."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if path.exists() and not os.access(path, os.R_OK | os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path)) from None


def read_only(path: Path) -> sqlite3.Connection:
    """Open a database to read it, without changing a byte of the file or of its ``-wal``.

    Without a ``-wal`` nobody has it open, and SQLite need not leave one behind.
    """
    wal, index = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    if wal.exists() and index.exists():
        with suppress(sqlite3.OperationalError):  # they went with their last writer just now
            return _read_only(path, "&readonly_shm=1")
    with suppress(FileNotFoundError):
        if wal.stat().st_size:
            return _read_only(path, "")
    return _read_only(path, "&immutable=1")


def _read_only(path: Path, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=ro{how}",
        uri=True,
        timeout=BUSY_MS / 1000,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        _pragma(connection, "schema_version")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def refuse_foreign(
    connection: sqlite3.Connection,
    path: Path,
    newest: int,
    outdated: Mapping[int, str] = _NONE_OUTDATED,
) -> None:
    """Refuse a database of another program, or of a version that knows more forms than this."""
    connection.execute("BEGIN")  # another process may be making the file
    version = _pragma(connection, "user_version")
    application = _pragma(connection, "application_id")
    [things] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    connection.execute("ROLLBACK")
    if application not in (0, APPLICATION_ID) or ((version or things) and not application):
        raise StoreUnavailable(f"{path} is another program's database")
    if version > newest:
        raise StoreUnavailable(
            f"{path} has form {version} and this version of Bascule knows {newest}: it was "
            "written by a newer one"
        )
    if version < newest and version in outdated:
        raise StoreUnavailable(
            f"{path} has form {version} instead of {newest}: {outdated[version]}"
        )


def _refuse_damaged(found: str | None, path: Path) -> None:
    if found is not None:
        raise StoreUnavailable(f"{path} is damaged ({found}): restore it from a backup")


def migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration]) -> None:
    """Bring a file to its newest form, each step in a transaction of its own."""
    found = _pragma(connection, "user_version")
    for number, migration in enumerate(migrations[found:], start=found + 1):
        step = partial(_bring_forward, path, found, number, migration)
        _transaction(connection, step, plain_commit)


def give_back(connection: Statements) -> None:
    """Give the pages that nothing uses back to the disk, in a database that shrinks.

    SQLite frees a page with each step of this statement, and Python makes one step.
    """
    for _ in range(_pragma(connection, "freelist_count")):
        connection.execute("PRAGMA incremental_vacuum(1)")


def _bring_forward(
    path: Path, found: int, number: int, migration: Migration, connection: sqlite3.Connection
) -> None:
    """Bring a file to its next form, unless another process did; the form it had is copied."""
    version = _pragma(connection, "user_version")
    if version >= number:
        return
    if 0 < version == found:
        with closing(sqlite3.connect(path)) as reader:  # a writer's own connection cannot copy
            backup(reader, path.with_name(f"{path.name}.form-{version}"))
    for statement in migration:
        if callable(statement):
            statement(connection)
        else:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {number}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def backup(connection: sqlite3.Connection, target: Path) -> None:
    """Copy a live database to a file of its own, mode 0600, replacing an older copy."""
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with closing(sqlite3.connect(part)) as copy:
        connection.backup(copy)
    part.replace(target)


def _pragma(connection: Statements, name: str) -> int:
    [value] = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)
