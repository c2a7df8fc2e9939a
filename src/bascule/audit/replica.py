"""What a replica knows of the database that it shares, and whether that is still the same.

Which chain is its own, and the last row there that it saw committed, are in a file of its data
directory. A database that does not have that row went back behind it: what was written since is
gone, and what is written from now on begins another chain.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bascule.audit.chain import GENESIS
from bascule.audit.shared_tables import REMOVED, SharedTables
from bascule.db.errors import StoreUnavailable
from bascule.db.statements import Statements

logger = logging.getLogger("bascule.ledger")
NAME = "ledger.replica"
#: More bytes than what is known takes, so that one write replaces the other.
_BYTES = 512


class Known(Struct, frozen=True):
    """A chain, its last row, and the epoch and number of the last step that was seen.

    ``lost`` is set while the database is known to have gone back and approvals do not say so yet.
    """

    chain: str
    number: int = 0
    tip: str = GENESIS.hex()
    epoch: str | None = None
    steps: int = 0
    lost: bool = False


class Replica:
    """One process that shares the ledger's database; what every write of it begins with."""

    def __init__(self, data_dir: Path, node: str, tables: SharedTables) -> None:
        self.node = node
        self._path = data_dir / NAME
        self._tables = tables
        self._file: int | None = None
        self.known = Known(secrets.token_hex(8))
        #: What will be known when the write under way is committed.
        self._next: Known | None = None
        #: The journal that names this process in the database.
        self.journal: str | None = None
        #: Called inside a write that found the database to have gone back.
        self.on_lost: Callable[[], None] = lambda: None

    def open(self) -> None:
        """Read what is known, or begin to know."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        with suppress(msgspec.DecodeError):
            self.known = msgspec.json.decode(os.pread(self._file, _BYTES, 0), type=Known)
        self.learn(self.known)

    def close(self) -> None:
        """Let go of the file. Any number of times."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def learn(self, known: Known) -> None:
        """Know this from now on. What cannot be written down is known until the process ends."""
        self.known = known
        if self._file is not None:
            with suppress(OSError):
                os.pwrite(self._file, msgspec.json.encode(known).ljust(_BYTES - 1) + b"\n", 0)

    @property
    def now_known(self) -> Known:
        """Return what is known with what the write under way has found."""
        return self._next or self.known

    def saw(self, epoch: str | None, steps: int) -> None:
        """Know of steps that others have made, in the epoch that is known."""
        if epoch == self.known.epoch and steps > self.known.steps:
            self.learn(replace(self.known, steps=steps))

    # --- what every write begins and ends with

    def begin(self, statements: Statements, mark: bytes, /) -> None:
        """Leave the mark, wait for the turn among replicas, and find the own chain."""
        if self.journal is not None:
            query = "UPDATE ledger_journals SET mark = ?, seen_at = now() WHERE id = ?"
            if not statements.execute(query, (mark, self.journal)).rowcount:
                self._name_again(statements, mark)
        if statements.execute("SELECT number FROM ledger_head FOR UPDATE").fetchone() is None:
            raise StoreUnavailable("the ledger's tables in PostgreSQL were emptied")
        self._tables.appended = None
        self._next = self._found(statements)

    def has(self, statements: Statements, mark: bytes, /) -> bool:
        """Say whether the write with this mark was the last one; wait for it to have ended."""
        query = "SELECT mark FROM ledger_journals WHERE id = ? FOR UPDATE"
        return statements.execute(query, (self.journal,)).fetchone() == (mark,)

    def committed(self) -> None:
        """Know what the write under way has added."""
        known = self._next or self.known
        if self._tables.appended is not None:
            number, digest = self._tables.appended
            known = replace(known, number=number, tip=digest.hex())
        self._next = None
        if known != self.known:
            self.learn(known)

    def _found(self, statements: Statements) -> Known:
        """Find the own chain; where it lacks what is known of it, begin another."""
        known = self.known
        found = statements.execute(
            "SELECT c.number, c.base_number, (SELECT hash FROM ledger_events"
            " WHERE chain = c.number AND link = ?) FROM ledger_chains c WHERE c.id = ?",
            (known.number, known.chain),
        ).fetchone()
        if found is not None:
            self._tables.own, base, digest = found
            if known.number <= base or digest == bytes.fromhex(known.tip):
                return known
        if known.number == 0:
            self._begin_chain(statements, known.chain, None)
            return known
        if statements.execute(REMOVED, (known.chain,)).fetchone() is not None:
            new = Known(secrets.token_hex(8), epoch=known.epoch, steps=known.steps)
            self._begin_chain(statements, new.chain, known.chain)
            return new
        logger.error(
            "the database went back: row %d of chain %s, which was committed, is not there; "
            "another chain begins",
            known.number,
            known.chain,
        )
        self.on_lost()
        new = Known(secrets.token_hex(8), epoch=known.epoch, steps=known.steps, lost=True)
        self._begin_chain(statements, new.chain, known.chain)
        return new

    def _begin_chain(self, statements: Statements, id: str, follows: str | None) -> None:
        query = (
            "INSERT INTO ledger_chains (id, node, follows, base_hash) VALUES (?, ?, ?, ?)"
            " RETURNING number"
        )
        values = (id, self.node, follows, GENESIS)
        [self._tables.own] = statements.execute(query, values).fetchone()

    def _name_again(self, statements: Statements, mark: bytes) -> None:
        """Name the journal in a database that went back behind its beginning."""
        statements.execute(
            "INSERT INTO ledger_journals (id, made_at, segment, taken, mark)"
            " VALUES (?, extract(epoch FROM now())::double precision, 1, 0, ?)",
            (self.journal, mark),
        )
