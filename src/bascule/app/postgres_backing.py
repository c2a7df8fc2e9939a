"""A process whose registry, tokens, secrets and ledger are in a PostgreSQL that others share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from bascule.app.data_dir import replica_name
from bascule.app.settings import Settings
from bascule.app.shared_registry import note_shared, refuse_lost_shared
from bascule.audit.journaled_ledger import JournaledLedger
from bascule.audit.postgres_ledger import PostgresLedger
from bascule.auth.postgres_token_store import open_shared_tokens
from bascule.auth.tokens import Note, Tokens
from bascule.control.envelope import OuterKey
from bascule.control.postgres_secret_store import open_shared_secrets
from bascule.control.registry.postgres_assignments import PostgresAssignments
from bascule.control.registry.postgres_duties import PostgresDuties
from bascule.control.registry.postgres_reports import PostgresReports
from bascule.control.registry.postgres_store import PostgresStore
from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.secrets import Secrets
from bascule.control.work.postgres_rows import PostgresRows
from bascule.db.postgres import Postgres
from bascule.model.snapshot import Snapshot


class PostgresBacking:
    """One replica of several. The database is opened and closed by whoever made this."""

    #: The tokens that replicas share know themselves what their pages end with.
    process = None

    def __init__(self, settings: Settings, postgres: Postgres) -> None:
        self._settings = settings
        self._data = Path(settings.data_dir)
        self.shared = postgres
        #: The name of this replica.
        self.node = settings.server.replica or replica_name(self._data)

    def tokens(self) -> AbstractAsyncContextManager[Tokens]:
        """Open the tokens that replicas share, under the key that they share."""
        return open_shared_tokens(self.shared, self._data)

    def ledger(self, key: bytes) -> JournaledLedger:
        """Return the ledger: a journal on this disk, and a chain of this replica behind it."""
        return PostgresLedger(
            self.shared, self._data, key=key, settings=self._settings.ledger, node=self.node
        )

    @asynccontextmanager
    async def registry(self, tokens: Tokens, *, new: bool) -> AsyncGenerator[RegistryService, None]:
        """Open the registry, and note where it is."""
        del tokens
        postgres = self.shared
        store = await PostgresStore(postgres).open()
        head = await store.head()
        if not new:
            empty = head.revision == 0
            refuse_lost_shared(self._data, postgres.where, head.store_id, empty=empty)
        reports = await PostgresReports(postgres).open()
        duties = await PostgresDuties(postgres, self.node).open()
        assignments = await PostgresAssignments(postgres).open()
        async with open_registry(
            store, reports=reports, duties=duties, assignments=assignments
        ) as service:
            note_shared(self._settings, postgres.where, head.store_id)
            yield service

    async def works(self) -> PostgresRows:
        """Return the work for nodes that replicas share."""
        return await PostgresRows(self.shared).open()

    def secrets(
        self, key: OuterKey | None, note: Note, records: Callable[[], Snapshot]
    ) -> AbstractAsyncContextManager[Secrets]:
        """Open the secrets that replicas share, under the key that they share."""
        return open_shared_secrets(self.shared, self._data, key=key, note=note, records=records)
