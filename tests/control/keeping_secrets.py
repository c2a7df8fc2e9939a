"""Secrets for tests: records that use them, and a store that notes in memory."""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, nullcontext
from pathlib import Path
from typing import Any, Protocol, TypedDict, Unpack

from bascule.audit.events import SecretChanged
from bascule.audit.ledger import MemoryLedger
from bascule.auth.tokens import Note
from bascule.control.envelope import OuterKey
from bascule.control.postgres_secret_store import open_shared_secrets
from bascule.control.secret_store import FILE_NAME
from bascule.control.secrets import Secrets, open_secrets
from bascule.model.backend import BackendRecord
from bascule.model.secret_use import server_use
from bascule.model.server import Http, ServerRecord
from bascule.model.snapshot import Snapshot
from bascule.testing.clock import FakeClock
from tests.auth.replicas import reached
from tests.postgres.databases import database

BY = "ada"
#: Text that stands in no other place, and has every kind of character.
VALUE = 'c4nary/Kd+vQ 9\u00e9w"x3 tail'


def server(server_id: str = "github", host: str = "a.example.com") -> ServerRecord:
    http = Http(url=f"https://{host}/mcp", auth_ref="secret://token")
    return ServerRecord(server_id=server_id, transport="streamable_http", http=http)


def backend(name: str = "main") -> BackendRecord:
    return BackendRecord(name=name, base_url="https://b.example.com/v1", key_ref="token")


USE = server_use(server())
RECORDS = Snapshot(
    servers={"github": server(), "plain": server("plain")}, backends={"main": backend()}
)


class Parts(TypedDict, total=False):
    """How a test wants its secrets."""

    key: OuterKey | None
    records: Callable[[], Snapshot]
    clock: FakeClock


@asynccontextmanager
async def opened(
    folder: Path, *, ledger: MemoryLedger | None = None, **parts: Unpack[Parts]
) -> AsyncGenerator[Secrets, None]:
    async with Files().opened(folder, ledger=ledger, **parts) as secrets:
        yield secrets


class House(Protocol):
    """Where the secrets of a test are kept, whoever opens them there."""

    def opened(
        self,
        folder: Path,
        *,
        ledger: MemoryLedger | None = None,
        note: Note | None = None,
        **parts: Unpack[Parts],
    ) -> AbstractAsyncContextManager[Secrets]: ...

    def another(self) -> AbstractAsyncContextManager[House]:
        """Return an empty place of the same kind."""
        ...

    async def say(self, folder: Path, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Say something to the tables behind everybody's back; return the rows.

        They are called ``{secrets}``, ``{bindings}`` and ``{head}``.
        """
        ...

    def words(self) -> str:
        """Return how another process makes the same house, for a command and no replica."""
        ...


class Files:
    """In the files of a folder."""

    def another(self) -> AbstractAsyncContextManager[House]:
        return nullcontext(self)

    async def say(self, folder: Path, statement: str, *values: object) -> list[tuple[Any, ...]]:
        query = statement.format(secrets="secrets", bindings="bindings", head="meta")
        with closing(sqlite3.connect(folder / FILE_NAME, isolation_level=None)) as connection:
            return connection.execute(query, values).fetchall()

    def words(self) -> str:
        return "Files()"

    def opened(
        self,
        folder: Path,
        *,
        ledger: MemoryLedger | None = None,
        note: Note | None = None,
        **parts: Unpack[Parts],
    ) -> AbstractAsyncContextManager[Secrets]:
        parts.setdefault("clock", FakeClock())
        return open_secrets(folder, note=note or (ledger or MemoryLedger()).note, **parts)


class Shared:
    """In a database; the folder has the key, unless it is given.

    Those who do not ``follow`` are commands and no replicas.
    """

    def __init__(self, dsn: str, *, follow: bool = True) -> None:
        self.dsn = dsn
        self.follow = follow

    @asynccontextmanager
    async def another(self) -> AsyncGenerator[House, None]:
        async with database() as dsn:
            yield Shared(dsn)

    async def say(self, folder: Path, statement: str, *values: object) -> list[tuple[Any, ...]]:
        del folder
        numbers = itertools.count(1)
        query = re.sub(r"\?", lambda _: f"${next(numbers)}", statement).format(
            secrets="bascule_secrets",
            bindings="bascule_secret_bindings",
            head="bascule_secrets_head",
        )
        async with reached(self.dsn) as postgres:
            return [tuple(row) for row in await postgres.statement(query, *values)]

    def words(self) -> str:
        return f"Shared({self.dsn!r}, follow=False)"

    @asynccontextmanager
    async def opened(
        self,
        folder: Path,
        *,
        ledger: MemoryLedger | None = None,
        note: Note | None = None,
        **parts: Unpack[Parts],
    ) -> AsyncGenerator[Secrets, None]:
        parts.setdefault("clock", FakeClock())
        noting = note or (ledger or MemoryLedger()).note
        async with (
            reached(self.dsn) as postgres,
            open_shared_secrets(
                postgres, folder, follow=self.follow, note=noting, **parts
            ) as secrets,
        ):
            yield secrets


def acts(ledger: MemoryLedger) -> list[tuple[str, str, str, int | None, str | None]]:
    """What was noted of secrets, in order."""
    found = [event for event in ledger.events if isinstance(event, SecretChanged)]
    return [(e.action, e.name, e.by, e.version, e.server_id) for e in found]


def contents(folder: Path) -> dict[str, bytes]:
    """What the files of a folder hold."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}
