"""What a start would change, found out without changing anything.

The store is copied as it is now, even while a process serves it, and the files are loaded into the
copy; on PostgreSQL the load is planned and not written. Where there is no store yet, none is made.
A file of agents is read and checked. The bundled demo is left as it is.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from bascule.app.data_dir import DEMO_FOLDER, STORE_FILE
from bascule.app.lost_registry import may_be_lost, refuse_lost_registry, refuse_unfinished
from bascule.app.reload import loader_of
from bascule.app.settings import Settings
from bascule.app.shared_registry import refuse_local, shared_postgres
from bascule.app.stored_records import copied_store
from bascule.auth.token_store import open_tokens
from bascule.control.registry.service import open_registry
from bascule.control.registry.sqlite_store import SqliteStore
from bascule.control.registry.store import Store
from bascule.control.registry.written import Written
from bascule.node.leftovers import owned_folder


async def dry_run(settings: Settings, *, new_registry: bool = False) -> Written:
    """Load the files on trial; ``problems`` and ``diff`` of the result say what would happen.

    Raise InvalidRecord or RegistryLost where a start would refuse to go on.
    """
    data = Path(settings.data_dir)
    if settings.agents is not None:
        await asyncio.to_thread(_check_agents, settings.agents)
    if settings.store.dsn is not None:
        return await _tried_on_shared(settings)
    if not new_registry:
        refuse_local(data)
        refuse_unfinished(data)
        if await asyncio.to_thread(may_be_lost, data):
            async with open_tokens(data) as tokens:
                refuse_lost_registry(data, await tokens.records())
    demo = data / DEMO_FOLDER
    with owned_folder("dry-run-") as folder:
        store = await copied_store(data / STORE_FILE, folder / STORE_FILE)
        return await _tried(settings, store, demo if demo.is_dir() else None)


async def _tried_on_shared(settings: Settings) -> Written:
    """Plan on the registry in PostgreSQL; without its tables, on an empty one."""
    async with shared_postgres(settings) as postgres:
        if postgres is not None:
            from bascule.control.registry.postgres_store import PostgresStore  # noqa: PLC0415

            [[there]] = await postgres.fetch("SELECT to_regclass('registry_head') IS NOT NULL")
            if there:
                return await _tried(settings, PostgresStore(postgres), None)
    with owned_folder("dry-run-") as folder:
        return await _tried(settings, await SqliteStore(folder / STORE_FILE).open(), None)


async def _tried(settings: Settings, store: Store, demo: Path | None) -> Written:
    async with open_registry(store) as service:
        return await loader_of(service, settings, demo).load(dry_run=True)


def _check_agents(file: str) -> None:
    from bascule.manager.file import AgentsFile  # noqa: PLC0415 - few processes have agents

    AgentsFile(file).read()
