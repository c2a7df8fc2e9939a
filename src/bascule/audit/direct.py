"""What a command does to a data directory, written to its ledger without a journal."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from bascule.audit.event_bytes import event_bytes
from bascule.audit.events import Act
from bascule.audit.ledger import LedgerUnavailable
from bascule.audit.ledger_check import end_check
from bascule.audit.ledger_file import FILE_NAME, MIGRATIONS, append
from bascule.db.errors import StoreUnavailable
from bascule.db.sqlite import Database


async def note_directly(data_dir: Path, act: Act) -> None:
    """Add an act to the chain; it is durable on return. Raise LedgerUnavailable if it cannot be."""
    body = event_bytes(act)

    def add(connection: sqlite3.Connection) -> None:
        append(connection, [(0, 0, body)])

    database = Database(data_dir / FILE_NAME, check=end_check, shrinks=True)
    try:
        await database.open(MIGRATIONS)
        await database.write(add)
    except StoreUnavailable as error:
        raise LedgerUnavailable(f"the ledger cannot be written: {error}") from error
    finally:
        await database.close()
