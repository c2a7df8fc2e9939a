"""Approvals and parked turns on disk, so that what uses them can be ended and begun again."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from bascule.audit.approvals import Approvals, LedgerStore
from bascule.audit.parked_turns import LedgerTurns
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.auth.keys import derived
from bascule.auth.server_key import KEY_NAME, server_key
from bascule.control.secrets import open_secrets
from tests.loop.parked import Desk


@asynccontextmanager
async def kept_in(data: Path) -> AsyncGenerator[tuple[Desk, LedgerTurns], None]:
    """Open what a data directory keeps, as a process does that serves it."""
    ledger = SqliteLedger(data, key=derived(server_key(data / KEY_NAME), "journal"))
    await ledger.open()
    try:
        async with open_secrets(data) as secrets:
            store = await LedgerStore(ledger, secrets.sealer()).open()
            approvals = Approvals(store)
            try:
                yield Desk(approvals), LedgerTurns(ledger, secrets.sealer())
            finally:
                await approvals.close()
                store.close()
    finally:
        await ledger.close()
