"""The ledger of a process, for those who look: what it has, what comes, and whether it is whole."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from bascule.audit.ledger_file import ANCHORS_NAME
from bascule.audit.ledger_settings import LedgerSettings
from bascule.audit.search import LedgerReader
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.audit.verification import Told, Verification, verify
from bascule.db.errors import StoreUnavailable

_CATCH_UP_SECONDS = 1.0


class LedgerTrail:
    """What the routes of the audit trail speak to."""

    def __init__(self, ledger: SqliteLedger) -> None:
        self.reader = LedgerReader(ledger.database, ledger.is_live)
        self.newer_than = ledger.newer_than
        self._taken_in = ledger.taken_in
        self.checkpoint = ledger.checkpoint
        self._path = ledger.database.path
        self._settings = ledger.settings

    async def catch_up(self) -> None:
        """Wait until what was written before is in the database, unless that takes long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CATCH_UP_SECONDS):
                await self._taken_in()

    def verify(self, told: Told) -> Verification:
        """Verify the whole chain against the anchors, as far as this process can read them."""
        return verify(self._path, kept_anchors(self._settings, self._path.parent), told=told)


def kept_anchors(settings: LedgerSettings, data_dir: Path) -> list[bytes] | None:
    """Return the lines of the anchor file; None for those that the ledger itself has.

    Read them before the rows: an anchor that is added meanwhile covers rows that were not read.
    A file that the settings name and that is not there has no lines.
    """
    named = settings.anchor_file
    try:
        return Path(named or data_dir / ANCHORS_NAME).read_bytes().splitlines()
    except FileNotFoundError:
        return None if named is None else []
    except OSError as error:
        raise StoreUnavailable(f"{error.filename}: {error.strerror}") from error
