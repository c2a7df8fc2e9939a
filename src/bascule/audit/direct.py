"""Acts of commands that work on the files of a data directory: rows of ``ledger.db`` of their own.

Such a row belongs to no journal (journal 0, place 0). Two processes on one file make one chain.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import json

from bascule.audit.events import Act
from bascule.audit.ledger import LedgerUnavailable
from bascule.audit.ledger_file import FILE_NAME, MIGRATIONS, append
from bascule.db.sqlite import Database, StoreUnavailable


async def note_directly(data_dir: Path, act: Act) -> None:
    """Write down what somebody is about to do; raise LedgerUnavailable if that cannot be done."""
    database = Database(data_dir / FILE_NAME)
    try:
        await database.open(MIGRATIONS)
        await database.write(lambda connection: append(connection, [(0, 0, json.encode(act))]))
    except StoreUnavailable as error:
        raise LedgerUnavailable(str(error)) from error
    finally:
        await database.close()
