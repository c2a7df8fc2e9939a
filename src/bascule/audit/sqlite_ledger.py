"""The ledger of a data directory: a journal in front, ``ledger.db`` behind it."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

from bascule.audit.anchors import set_aside
from bascule.audit.epoch import FileEpoch
from bascule.audit.journal import Disk, is_live
from bascule.audit.journaled_ledger import JournaledLedger
from bascule.audit.kept_anchors import kept_anchors
from bascule.audit.ledger_check import ledger_check
from bascule.audit.ledger_file import FILE_NAME, MIGRATIONS, FileTables, put_meta
from bascule.audit.ledger_settings import LedgerSettings
from bascule.audit.retention import Limits, cut, cut_received
from bascule.audit.search import LedgerReader
from bascule.audit.verification import Told, Verification, verify
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.db.errors import StoreUnavailable
from bascule.db.sqlite import Commit, Database, plain_commit
from bascule.db.statements import Statements


class SqliteLedger(JournaledLedger):
    """A ``Ledger`` in a data directory. ``open`` it on the loop that it is used on."""

    database: Database

    def __init__(
        self,
        data_dir: Path,
        *,
        key: bytes,
        settings: LedgerSettings | None = None,
        clock: Clock = SYSTEM_CLOCK,
        disk: Disk = Disk(),  # noqa: B008 - it holds nothing
        commit: Commit = plain_commit,
    ) -> None:
        self._path = data_dir / FILE_NAME
        self.tables = self._own = FileTables()
        database = Database(self._path, commit=commit, check=ledger_check, shrinks=True)
        database.advice = "it goes on by itself when the disk has room"
        super().__init__(
            data_dir,
            key=key,
            database=database,
            settings=settings,
            clock=clock,
            disk=disk,
        )
        self._file = database
        #: Rows after this one are not cut, as somebody waits for them; None: nobody does.
        self.awaited: int | None = None
        #: Which file the database is; another may come to have its name.
        self._identity: tuple[int, int] | None = None

    def epoch(self) -> FileEpoch:
        """Return what tells whether the file was restored or copied."""
        return FileEpoch(self._path)

    def is_live(self, journal: str, statements: Statements | None = None) -> bool:
        """Say whether the process that wrote a journal lives."""
        return is_live(self._folder, journal)

    def reader(self) -> LedgerReader:
        """Return the reading side."""
        return LedgerReader(self.database, self.is_live, tables=self.tables)

    def verify(self, told: Told) -> Verification:
        """Verify the file against the anchors, as far as this process can read them."""
        return verify(self._path, kept_anchors(self.settings, self._data), told=told)

    async def begin_anew(self) -> str:
        """Go on with the same rows as a ledger of another id, and return the one that it had.

        Its anchors are set aside: they may be about rows that are not in here. Raise
        AnchorsUnavailable, with nothing changed, where that cannot be done.
        """
        await self.taken_in()
        before = await self.database.write(self._renamed)
        await self._sign()
        return before

    def _renamed(self, statements: Statements) -> str:
        before = self._own.ledger_id(statements) or ""
        set_aside(self._anchor_file, before)
        self._anchors, self._signed = None, 0
        statements.execute(f"DELETE FROM checkpoints WHERE {self._own.mine}")  # noqa: S608 - constants
        put_meta(statements, ledger_id=_new_id())
        return before

    async def _open_database(self) -> None:
        await self._file.open(MIGRATIONS)
        self._identity = _identity(self._path)

    def _begin(self, statements: Statements) -> None:
        """Give a new ledger its id, too."""
        statements.execute(
            "INSERT OR IGNORE INTO meta (key, value) VALUES ('ledger_id', ?)",
            (_new_id(),),
        )
        self._own.given = self._own.bounds(statements)[1]
        super()._begin(statements)

    def _note_last(self, number: int) -> None:
        """Take notice of the last row of the own chain; rows of nodes are counted too."""
        self._last = max(self._last, number)
        self.number = max(self.number, self._own.given)

    def _cut(self, statements: Statements, limits: Limits, now: float) -> bool:
        """Cut the own chain, but nothing that is awaited elsewhere, and those of nodes."""
        most = self.awaited
        own = cut(statements, limits, now, "retention", self.tables, most=most) is not None
        return own or cut_received(statements, limits, now, "retention", self.tables) is not None

    def _refuse_replaced(self) -> None:
        """Refuse to add to a file that nobody finds any more: what it has is gone with us."""
        if _identity(self._path) != self._identity:
            raise StoreUnavailable(
                f"{self._path} was removed or replaced while it was in use; put it back "
                "from a backup or leave it, then restart"
            )


def _new_id() -> str:
    return secrets.token_hex(8)


def _identity(path: Path) -> tuple[int, int] | None:
    with suppress(FileNotFoundError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None
