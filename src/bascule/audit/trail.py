"""The ledger of a process, for those who look: what it has, what comes, and whether it is whole."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from bascule.audit.journaled_ledger import JournaledLedger

_CATCH_UP_SECONDS = 1.0


class LedgerTrail:
    """What the routes of the audit trail speak to."""

    def __init__(self, ledger: JournaledLedger) -> None:
        self.reader = ledger.reader()
        self.newer_than = ledger.newer_than
        self._taken_in = ledger.taken_in
        self.checkpoint = ledger.checkpoint
        #: Verifies the whole ledger against the anchors, as far as this process can read them.
        self.verify = ledger.verify

    async def catch_up(self) -> None:
        """Wait until what was written before is in the database, unless that takes long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CATCH_UP_SECONDS):
                await self._taken_in()
