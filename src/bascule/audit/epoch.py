"""Whether ``ledger.db`` is the file that it was: not restored from a copy, nor copied.

Two small files beside it tell. ``ledger.epoch`` is written once, and ``ledger.db`` knows which file
that is and when it was last changed, a time that nobody can set: whoever copies it, or writes over
it, makes another one. ``ledger.steps`` has how many steps approvals have made; it is written after
each of them, so that it is never ahead of the file that it was written for.
"""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from bascule.audit.ledger import LedgerUnavailable
from bascule.db.statements import Statements

NAME = "ledger.epoch"
STEPS_NAME = "ledger.steps"
_KEY = "epoch"
_STEPS = re.compile(rb"([0-9]{20}) ([0-9]{20})\n")


class Epoch(Protocol):
    """What is known of a ledger's database outside of it. Used inside its transactions."""

    #: Why everything open is void in another epoch.
    reason: str
    #: Whether the database may become another one while it is open.
    always: bool

    def renew(self, statements: Statements, steps: int) -> bool:
        """Begin another epoch where the database is not what it was; say if one was before it."""
        ...

    def mark(self, steps: int) -> None:
        """Take notice, after a commit, of how many steps there are now."""
        ...

    def close(self) -> None:
        """Let go of the marks. Any number of times."""
        ...


class FileEpoch:
    """What is known of one ``ledger.db``: it is another only when it is opened."""

    reason = "the ledger was restored from a copy, or copied"
    always = False

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = database.with_name(NAME)
        self._steps_path = database.with_name(STEPS_NAME)
        self._inode = self._steps = 0
        self._file: int | None = None

    def renew(self, statements: Statements, steps: int) -> bool:
        """Begin another epoch where the file is not what it was; say whether there was one before.

        Raise LedgerUnavailable where that cannot be written down.
        """
        found = statements.execute("SELECT value FROM meta WHERE key = ?", (_KEY,)).fetchone()
        self._inode, self._steps = self._database.stat().st_ino, steps
        if found is not None and found[0] == self._identity() and self._has_made(steps):
            return False
        self._begin()
        query = "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)"
        statements.execute(query, (_KEY, self._identity()))
        self.mark(steps)  # while no other process can look: it would begin another one
        return found is not None

    def mark(self, steps: int) -> None:
        """Write how many steps there are now. One that cannot be written stays behind."""
        self._steps = max(steps, self._steps)
        with suppress(OSError):
            if self._file is None:
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                self._file = os.open(self._steps_path, flags, 0o600)
            os.pwrite(self._file, b"%020d %020d\n" % (self._inode, self._steps), 0)

    def close(self) -> None:
        """Let go of the file. Any number of times."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _begin(self) -> None:
        """Make another ``ledger.epoch``."""
        try:
            self._path.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            file = os.open(self._path, flags, 0o600)
            with os.fdopen(file, "wb") as made:
                made.write(f"{secrets.token_hex(8)}\n".encode())
        except OSError as error:
            raise LedgerUnavailable(f"{self._path} cannot be written: {error}") from error

    def _identity(self) -> str | None:
        """Return which file ``ledger.epoch`` is; None where there is none."""
        with suppress(OSError):
            found = self._path.stat()
            word = self._path.read_bytes().decode("ascii", "replace").strip()
            return f"{word} {found.st_ino} {found.st_ctime_ns}"
        return None

    def _has_made(self, steps: int) -> bool:
        """Say whether this file has all the steps that were made."""
        with suppress(OSError):
            found = _STEPS.fullmatch(self._steps_path.read_bytes())
            return found is not None and int(found[1]) == self._inode and int(found[2]) <= steps
        return False
