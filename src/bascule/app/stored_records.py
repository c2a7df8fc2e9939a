"""What a data directory's registry holds, read from its file whether or not a process serves it.

The file is copied as it is now, so that reading it changes nothing, not even its form.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from bascule.app.data_dir import STORE_FILE
from bascule.control.registry.sqlite_store import SqliteStore
from bascule.db.errors import StoreUnavailable
from bascule.db.sqlite import backup
from bascule.model.server import ServerRecord
from bascule.model.snapshot import Snapshot
from bascule.node.leftovers import owned_folder


async def stored_snapshot(data: Path) -> Snapshot:
    """Return every record of a data directory; an empty snapshot if it has no registry yet."""
    with owned_folder("records-") as folder:
        store = await copied_store(data / STORE_FILE, folder / STORE_FILE)
        try:
            return (await store.view()).snapshot()
        finally:
            await store.close()


def with_servers(records: Snapshot, more: Mapping[str, ServerRecord]) -> Snapshot:
    """Return a snapshot with more servers."""
    return replace(records, servers={**records.servers, **more})


async def copied_store(path: Path, copy: Path) -> SqliteStore:
    """Return a store with what is in another one now; an empty one if there is no other."""
    if await asyncio.to_thread(path.exists):
        try:
            await asyncio.to_thread(_copy, path, copy)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{path} cannot be read: {error}") from error
    return await SqliteStore(copy).open()


def _copy(path: Path, copy: Path) -> None:
    # Without a log beside it nobody has the file open: it is read without making one.
    live = path.with_name(f"{path.name}-wal").exists()
    mode = "mode=ro" if live else "mode=ro&immutable=1"
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)) as source:
        backup(source, copy)
