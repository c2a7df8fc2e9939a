"""A data directory as a place of a registry: one file for each part."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from bascule.app.copy_keys import carry_keys, server_key_of
from bascule.app.copy_tables import LEDGER_META, PARTS, Part, Sql, Table, sqlite_sql, sqlite_values
from bascule.app.copying import Batch, CopiedTable, Draft, NotCopied, Rows
from bascule.app.data_dir import STORE_FILE, unserved
from bascule.app.lost_registry import UNFINISHED
from bascule.app.one_chain import OneChain
from bascule.audit.journal import FOLDER as JOURNAL
from bascule.audit.ledger_check import ledger_check
from bascule.audit.ledger_file import FILE_NAME as LEDGER_FILE
from bascule.audit.ledger_file import MIGRATIONS as LEDGER_FORMS
from bascule.auth.token_record import TokenKeys
from bascule.auth.token_store import FILE_NAME as TOKENS_FILE
from bascule.auth.token_store import NEWEST_FORM, SEALED_NAME, SqliteTokenStore
from bascule.control.registry.sqlite_store import MIGRATIONS as REGISTRY_FORMS
from bascule.control.secret_store import FILE_NAME as SECRETS_FILE
from bascule.control.secret_store import MIGRATIONS as SECRETS_FORMS
from bascule.db.errors import StoreUnavailable
from bascule.db.private_files import sync_folder
from bascule.db.sqlite import Database, read_only, refuse_foreign

T = TypeVar("T")
#: The registry comes last: a directory that has it has all that was copied.
FILES: Mapping[Part, str] = {
    "ledger": LEDGER_FILE,
    "secrets": SECRETS_FILE,
    "tokens": TOKENS_FILE,
    "registry": STORE_FILE,
}
NEWEST: Mapping[Part, int] = {
    "ledger": len(LEDGER_FORMS),
    "secrets": len(SECRETS_FORMS),
    "tokens": NEWEST_FORM,
    "registry": len(REGISTRY_FORMS),
}
_TOGETHER = 500


async def batches(file: sqlite3.Connection, query: str, where: str) -> AsyncIterator[Batch]:
    """Yield what a query finds in a file, some rows at a time."""
    try:
        cursor = file.execute(query)
        while batch := await asyncio.to_thread(cursor.fetchmany, _TOGETHER):
            yield batch
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{where} cannot be read: {error}") from error


async def add_rows(file: sqlite3.Connection, sql: Sql, rows: Batch, where: str) -> None:
    """Add rows to a table of a file."""
    try:
        await asyncio.to_thread(_insert, file, sql, rows)
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{where} cannot be written: {error}") from error


class _FileRows:
    """The tables of open files."""

    def __init__(self, where: str, files: Mapping[Part, sqlite3.Connection]) -> None:
        self._where = where
        self._files = files
        self.parts = frozenset(files)

    async def read(self, table: Table) -> AsyncIterator[Batch]:
        """Yield the rows of a table in its order, some at a time."""
        async for batch in batches(self._files[table.part], sqlite_sql(table).read, self._where):
            yield batch

    async def add(self, table: Table, rows: Batch) -> None:
        """Add rows to a table."""
        try:
            values = [sqlite_values(table, row) for row in rows]
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise NotCopied(f"a row of {table.title} is not an event: {error}") from error
        await add_rows(self._files[table.part], sqlite_sql(table), values, self._where)

    async def finish(self, tables: Sequence[CopiedTable]) -> None:
        """Say that the ledger is not the file that it was: what waits for approval is void."""
        if any(table.name == LEDGER_META.title for table in tables):
            epoch = Sql(read="", add="INSERT OR REPLACE INTO meta VALUES ('epoch', ?)")
            await add_rows(self._files["ledger"], epoch, [("a copy",)], self._where)


def _insert(file: sqlite3.Connection, sql: Sql, rows: Batch) -> None:
    with file:
        if sql.clear is not None:
            file.execute(sql.clear)
        if sql.add is not None:
            file.executemany(sql.add, rows)


class DataDirectory:
    """A data directory, or what will be one.

    To be copied it must not be served: its files are as of one moment then. A backup may be made
    meanwhile (``served``); each file is as of one moment. What is copied to here is used with the
    keys of another directory (``keys``), which come along, or with its own.
    """

    lives = True
    digests: Mapping[str, str] = {}

    def __init__(
        self,
        path: Path,
        *,
        served: bool = False,
        parts: Sequence[Part] = PARTS,
        keys: Path | None = None,
    ) -> None:
        self.path = path
        self._keys = path if keys is None else keys
        self.where = str(path)
        self._served = served
        self._parts = parts

    # --- from here

    async def reading(self, work: Callable[[Rows], Awaitable[T]]) -> T:
        """Run a work over its files."""
        there: list[Part] = [part for part in self._parts if _is_there(self.path / FILES[part])]
        if "registry" not in there:
            raise NotCopied(f"{self.where} has no registry: {STORE_FILE} is missing or empty")
        with ExitStack() as stack:
            if not self._served:
                stack.enter_context(unserved(self.path))
                self._refuse_journal()
            files: dict[Part, sqlite3.Connection] = {
                part: stack.enter_context(self._opened(part)) for part in there
            }
            return await work(_FileRows(self.where, files))

    def _refuse_journal(self) -> None:
        """Refuse what the ledger has not taken in: a copy of the ledger would be without it."""
        left = [path for path in (self.path / JOURNAL).glob("*.journal") if path.stat().st_size]
        if left:
            raise NotCopied(
                f"{self.path / JOURNAL} has events that the ledger has not taken in, of a process "
                "that was killed: serve the directory once, end that with Ctrl-C, and copy then"
            )

    @contextmanager
    def _opened(self, part: Part) -> Generator[sqlite3.Connection]:
        path, newest = self.path / FILES[part], NEWEST[part]
        with closing(read_only(path)) as connection:
            refuse_foreign(connection, path, newest)
            [form] = connection.execute("PRAGMA user_version").fetchone()
            if form < newest:
                raise NotCopied(
                    f"{path} has form {form} instead of {newest}: serve the directory once with "
                    "this version, which brings it there, and copy then"
                )
            connection.execute("BEGIN")
            yield connection

    # --- to here

    async def fitted(self, rows: Rows) -> Rows:
        """Return rows with the ledger as one chain, of an epoch that is not that of its file."""
        return await OneChain.of(rows) if "ledger" in rows.parts else rows

    async def writing(self, work: Callable[[Draft], Awaitable[T]]) -> T:
        """Run a work that fills files in a folder of their own; then they take their places."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with unserved(self.path):
            self._refuse_used()
            folder = self.path / UNFINISHED
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
            try:
                await self._make(folder)
                with ExitStack() as stack:
                    files: dict[Part, sqlite3.Connection] = {
                        part: stack.enter_context(closing(_connected(folder / FILES[part])))
                        for part in PARTS
                    }
                    result = await work(_FileRows(self.where, files))
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            self._take_places(folder)
        return result

    def _refuse_used(self) -> None:
        """Refuse a directory with anything in it; what a copy left that was killed is removed."""
        unfinished = (self.path / UNFINISHED).exists() and not (self.path / STORE_FILE).exists()
        for name in FILES.values():
            if unfinished:
                (self.path / name).unlink(missing_ok=True)
            elif _is_there(self.path / name):
                raise NotCopied(f"{self.where} is not empty: it has {name}; name another directory")

    async def _make(self, folder: Path) -> None:
        """Make empty files of the newest form."""
        key = server_key_of(self._keys)
        tokens = await SqliteTokenStore(folder / TOKENS_FILE, TokenKeys(key)).open()
        await tokens.close()
        ledger = Database(folder / LEDGER_FILE, check=ledger_check, shrinks=True)
        for database, forms in (
            (ledger, LEDGER_FORMS),
            (Database(folder / SECRETS_FILE), SECRETS_FORMS),
            (Database(folder / STORE_FILE), REGISTRY_FORMS),
        ):
            try:
                await database.open(forms)
            finally:
                await database.close()

    def _take_places(self, folder: Path) -> None:
        """Move the files to their places, the registry last: then it is a data directory."""
        carry_keys(self._keys, self.path)
        (folder / SEALED_NAME).replace(self.path / SEALED_NAME)
        for name in FILES.values():
            (folder / name).replace(self.path / name)
        sync_folder(self.path / STORE_FILE)
        shutil.rmtree(folder)


def _connected(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, check_same_thread=False)


def _is_there(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0
