"""Whether ``ledger.db`` is the file that it was: not restored from a copy, nor copied.

A small file beside it knows which file it is, its epoch, and how many steps approvals have made.
It is written after each step, so that it is never ahead of the file that it was written for.
"""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

NAME = "ledger.epoch"
_KEY = "epoch"
_MARK = re.compile(rb"([0-9a-f]{16}) ([0-9]{20}) ([0-9]{20})\n")


class Mark(Struct, frozen=True):
    """What is known of the file outside of it."""

    epoch: str
    inode: int
    steps: int


class Epoch:
    """The mark beside one ``ledger.db``. Used on the thread of that database."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = database.with_name(NAME)
        self._mark = Mark("0" * 16, 0, 0)
        self._file: int | None = None

    def renew(self, connection: sqlite3.Connection, steps: int) -> bool:
        """Begin another epoch where the file is not what it was; say whether there was one before.

        Call ``mark`` when the transaction has ended.
        """
        found = connection.execute("SELECT value FROM meta WHERE key = ?", (_KEY,)).fetchone()
        known, inode, mark = found and found[0], self._database.stat().st_ino, self._read()
        self._mark = Mark(known or secrets.token_hex(8), inode, steps)
        if mark is not None and (mark.epoch, mark.inode) == (known, inode) and mark.steps <= steps:
            return False
        self._mark = Mark(secrets.token_hex(8), inode, steps)
        query = "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)"
        connection.execute(query, (_KEY, self._mark.epoch))
        self.mark(steps)  # while no other process can look: it would begin another one
        return known is not None

    def mark(self, steps: int) -> None:
        """Write how many steps there are now. One that cannot be written stays behind."""
        mark = self._mark = Mark(self._mark.epoch, self._mark.inode, max(steps, self._mark.steps))
        with suppress(OSError):
            if self._file is None:
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                self._file = os.open(self._path, flags, 0o600)
            line = b"%b %020d %020d\n" % (mark.epoch.encode(), mark.inode, mark.steps)
            os.pwrite(self._file, line, 0)

    def close(self) -> None:
        """Let go of the file. Any number of times."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _read(self) -> Mark | None:
        with suppress(OSError):
            found = _MARK.fullmatch(self._path.read_bytes())
            if found is not None:
                return Mark(found[1].decode(), int(found[2]), int(found[3]))
        return None
