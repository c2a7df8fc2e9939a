"""A session over the ledger on disk beside one over the ledger in memory, each in its process.

``python -m bench.ledger_clients CLIENT LOOP SERVER CORE``; see ``serving``. What the ledger does
behind the calls is waited for after each order, and its CPU counted as theirs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bascule.audit.ledger_settings import Durability, LedgerSettings
from bascule.audit.sqlite_ledger import SqliteLedger
from bench.serving import Call, main, settle
from bench.stdio_clients import bascule


@asynccontextmanager
async def opened(durability: Durability = "kill") -> AsyncGenerator[SqliteLedger]:
    """Open a ledger in a folder of its own."""
    with TemporaryDirectory() as folder:
        settings = LedgerSettings(durability=durability)
        ledger = SqliteLedger(Path(folder), key=bytes(32), settings=settings)
        await ledger.open()
        try:
            yield ledger
        finally:
            await ledger.close()


@asynccontextmanager
async def kept(server: str, durability: Durability = "kill") -> AsyncGenerator[Call]:
    """Connect a session whose calls are written to a ledger on disk."""
    async with opened(durability) as ledger, bascule(server, ledger) as call:
        settle(ledger.taken_in)
        yield call


@asynccontextmanager
async def power(server: str) -> AsyncGenerator[Call]:
    """Connect one whose calls wait until they are safe from a power loss."""
    async with kept(server, "power") as call:
        yield call


CLIENTS = {"memory": bascule, "ledger": kept, "power": power}


if __name__ == "__main__":
    main(CLIENTS)
