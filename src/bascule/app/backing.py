"""Where a process keeps what it keeps: in its data directory, or in a PostgreSQL that others share.

The directory is each process's own in any case: its lock, its address, its journal, the homes of
its servers. ``postgres_backing.py`` is imported only where a DSN is set.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bascule.app.data_dir import STORE_FILE, process_mark
from bascule.app.local_node import NODE_NAME
from bascule.app.lost_registry import note_registry, refuse_lost_registry, refuse_unfinished
from bascule.app.settings import Settings
from bascule.app.shared_registry import forget_shared, refuse_local
from bascule.audit.journaled_ledger import JournaledLedger
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.auth.token_store import open_tokens
from bascule.auth.tokens import Note, Tokens
from bascule.clock import SYSTEM_CLOCK
from bascule.control.envelope import OuterKey
from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.registry.sqlite_store import SqliteStore
from bascule.control.secrets import Secrets, open_secrets
from bascule.control.work.rows import LocalRows, WorkRows
from bascule.db.dsn import postgres_at
from bascule.db.private_files import private_folder
from bascule.model.snapshot import Snapshot

if TYPE_CHECKING:
    from bascule.db.postgres import Postgres


class Backing(Protocol):
    """What the stores of a process are opened in."""

    #: The name under which its node reports.
    @property
    def node(self) -> str: ...

    @property
    def shared(self) -> Postgres | None: ...

    @property
    def process(self) -> str | None:
        """What the tokens of pages end with, while the directory's lock is held."""
        ...

    def tokens(self) -> AbstractAsyncContextManager[Tokens]: ...

    def ledger(self, key: bytes) -> JournaledLedger:
        """Return the ledger, to be opened; ``key`` is that of its journal."""
        ...

    def registry(
        self, tokens: Tokens, *, new: bool
    ) -> AbstractAsyncContextManager[RegistryService]:
        """Open the registry; raise RegistryLost where another should be there, unless ``new``."""
        ...

    async def works(self) -> WorkRows:
        """Return where work for nodes is kept."""
        ...

    def secrets(
        self, key: OuterKey | None, note: Note, records: Callable[[], Snapshot]
    ) -> AbstractAsyncContextManager[Secrets]: ...


@asynccontextmanager
async def open_backing(
    settings: Settings, *, new_registry: bool = False
) -> AsyncGenerator[Backing, None]:
    """Return where things are kept by the settings.

    Raise StoreUnavailable where it cannot be reached, and RegistryLost where it was elsewhere.
    """
    store, data = settings.store, Path(settings.data_dir)
    if store.dsn is None:
        (forget_shared if new_registry else refuse_local)(data)
        yield DirectoryBacking(settings)
        return
    postgres = postgres_at(store.dsn, listen_dsn=store.listen_dsn)
    from bascule.app.postgres_backing import PostgresBacking  # noqa: PLC0415 - with its driver

    await asyncio.to_thread(private_folder, data)
    await postgres.open()
    try:
        yield PostgresBacking(settings, postgres)
    finally:
        await postgres.close()


class DirectoryBacking:
    """Everything is in files of the data directory."""

    node = NODE_NAME
    shared = None

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._data = Path(settings.data_dir)

    @property
    def process(self) -> str | None:
        """A mark of the process that holds the lock: pages end with it."""
        return process_mark(self._data)

    def tokens(self) -> AbstractAsyncContextManager[Tokens]:
        """Open the directory's tokens."""
        refuse_unfinished(self._data)
        return open_tokens(self._data)

    def ledger(self, key: bytes) -> JournaledLedger:
        """Return the directory's ledger."""
        return SqliteLedger(self._data, key=key, settings=self._settings.ledger)

    @asynccontextmanager
    async def registry(self, tokens: Tokens, *, new: bool) -> AsyncGenerator[RegistryService, None]:
        """Open the directory's registry."""
        if not new:
            refuse_lost_registry(self._data, await tokens.records())
        store = await SqliteStore(self._data / STORE_FILE).open()
        note_registry(self._data)
        async with open_registry(
            store, reports=store.reports, assignments=store.assignments
        ) as service:
            yield service

    async def works(self) -> WorkRows:
        """Return a place in memory: nobody else asks nodes, or hears them."""
        return LocalRows(SYSTEM_CLOCK)

    def secrets(
        self, key: OuterKey | None, note: Note, records: Callable[[], Snapshot]
    ) -> AbstractAsyncContextManager[Secrets]:
        """Open the directory's secrets."""
        return open_secrets(self._data, key=key, note=note, records=records)
