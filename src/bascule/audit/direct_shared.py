"""What a command does where replicas share a ledger: written to its machine's chain at once."""

from __future__ import annotations

from pathlib import Path

from bascule.audit.event_bytes import event_bytes
from bascule.audit.events import Act
from bascule.audit.ledger import LedgerUnavailable
from bascule.audit.ledger_file import append
from bascule.audit.replica import Replica
from bascule.audit.shared_tables import FORMS, SharedTables
from bascule.db.errors import StoreUnavailable
from bascule.db.postgres import Postgres
from bascule.db.postgres_transactions import PostgresTransactions
from bascule.db.private_files import private_folder
from bascule.db.statements import Statements


async def note_shared(postgres: Postgres, data_dir: Path, act: Act, *, node: str) -> None:
    """Add an act to the chain of a data directory, also beside the process that serves it.

    It is durable on return. Raise LedgerUnavailable if it cannot be.
    """
    tables, body = SharedTables(), event_bytes(act)
    replica = Replica(data_dir, node, tables)

    def add(statements: Statements) -> None:
        append(statements, [(0, 0, body)], tables)

    private_folder(data_dir)
    replica.open()
    transactions = PostgresTransactions(postgres, replica)
    try:
        await postgres.migrate("ledger", FORMS)
        await transactions.write(add)
    except StoreUnavailable as error:
        raise LedgerUnavailable(f"the ledger cannot be written: {error}") from error
    finally:
        await transactions.close()
        replica.close()
