"""``ledger.db``: its tables, and how rows get into it, inside whatever transaction."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Generator, Iterable
from contextlib import contextmanager

from bascule.audit.chain import GENESIS, SEARCHED, columns, link
from bascule.audit.ledger import LedgerUnavailable
from bascule.db.errors import StoreUnavailable
from bascule.db.private_files import KeyUnusable
from bascule.db.sqlite import Database, Migration

logger = logging.getLogger("bascule.approvals")
FILE_NAME = "ledger.db"
#: Where anchors go unless ``ledger.anchor_file`` says where.
ANCHORS_NAME = "ledger.anchors"
_NAMES = ("number", "journal", "place", "hash", "body", *SEARCHED)
#: Rows of one statement: SQLite works on all of them while the interpreter does something else.
_TOGETHER = 100
MIGRATIONS: tuple[Migration, ...] = (
    (
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
        # Where the rows of each journal come from; ``taken`` is the last place that is in here.
        """CREATE TABLE journals (
            number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, made_at REAL NOT NULL,
            segment INTEGER NOT NULL, taken INTEGER NOT NULL
        ) STRICT""",
        """CREATE TABLE events (
            number INTEGER PRIMARY KEY, journal INTEGER NOT NULL, place INTEGER NOT NULL,
            hash BLOB NOT NULL, body BLOB NOT NULL, timestamp REAL, event TEXT, request_id TEXT,
            session_id TEXT, task_id TEXT, caller TEXT, token_id TEXT, server_id TEXT,
            tool_name TEXT, status TEXT, code TEXT, approval_id TEXT
        ) STRICT""",
        "CREATE INDEX events_request_id ON events (request_id) WHERE request_id IS NOT NULL",
        "CREATE INDEX events_timestamp ON events (timestamp)",
        "CREATE INDEX events_server_id ON events (server_id) WHERE server_id IS NOT NULL",
        "CREATE INDEX events_caller ON events (caller) WHERE caller IS NOT NULL",
        "CREATE INDEX events_approval_id ON events (approval_id) WHERE approval_id IS NOT NULL",
        # ``number`` is the last row that a checkpoint covers, ``anchor`` its line as it was signed.
        """CREATE TABLE checkpoints (
            number INTEGER PRIMARY KEY, tip BLOB NOT NULL, made_at REAL NOT NULL,
            anchor BLOB NOT NULL
        ) STRICT""",
    ),
    (
        "ALTER TABLE events ADD COLUMN person TEXT",
        # ``body`` is the approval; the columns are for finding it. ``call`` is a digest of what it
        # is bound to, ``asker`` of whose call it is, ``journal`` the process that claimed it.
        """CREATE TABLE approvals (
            id TEXT PRIMARY KEY, state TEXT NOT NULL, call TEXT NOT NULL, asker TEXT NOT NULL,
            token_id TEXT, task_id TEXT, server_id TEXT NOT NULL, tool_name TEXT NOT NULL,
            asked_at REAL NOT NULL, expires_at REAL NOT NULL, moved_at REAL NOT NULL,
            journal TEXT, body BLOB NOT NULL
        ) STRICT""",
        "CREATE INDEX approvals_call ON approvals (call)",
        "CREATE INDEX approvals_asker ON approvals (asker, server_id, tool_name, moved_at)",
        "CREATE INDEX approvals_state ON approvals (state, expires_at)",
        "CREATE INDEX approvals_asked_at ON approvals (asked_at)",
        # What is sealed, while it can still be used: arguments and definitions, parked turns.
        "CREATE TABLE approval_contents (id TEXT PRIMARY KEY, sealed BLOB NOT NULL) STRICT",
        """CREATE TABLE parked_turns (
            id TEXT PRIMARY KEY, owner TEXT NOT NULL, parked_at REAL NOT NULL,
            expires_at REAL NOT NULL, size INTEGER NOT NULL, sealed BLOB NOT NULL, holder TEXT
        ) STRICT""",
        "CREATE INDEX parked_turns_owner ON parked_turns (owner, parked_at)",
    ),
)


def tip(connection: sqlite3.Connection) -> tuple[int, bytes]:
    """Return the number and the hash of the last row; ask inside the transaction that adds."""
    found = connection.execute(
        "SELECT number, hash FROM events ORDER BY number DESC LIMIT 1"
    ).fetchone()
    return base(connection) if found is None else found


def base(connection: sqlite3.Connection) -> tuple[int, bytes]:
    """Return the number and the hash of the last row that was cut off the front."""
    found = dict(connection.execute("SELECT key, value FROM meta WHERE key LIKE 'base_%'"))
    return int(found.get("base_number", 0)), bytes.fromhex(found.get("base_hash", GENESIS.hex()))


def hash_of(connection: sqlite3.Connection, number: int) -> bytes | None:
    """Return the hash of a row: None for one that was cut off, nothing for one that is missing."""
    found = connection.execute("SELECT hash FROM events WHERE number = ?", (number,)).fetchone()
    if found is not None:
        return found[0]
    cut, digest = base(connection)
    return digest if number == cut else None if number < cut else b""


def append(connection: sqlite3.Connection, events: Iterable[tuple[int, int, bytes]]) -> int:
    """Add events (journal, place, bytes) to the end of the chain; return the last number."""
    number, before = tip(connection)
    values: list[object] = []
    for journal, place, event in events:
        number += 1
        before = link(before, number, journal, place, event)
        values += number, journal, place, before, event
        values += columns(event)
        if len(values) == _TOGETHER * len(_NAMES):
            connection.execute(_INSERT, values)
            values.clear()
    if values:
        connection.execute(_insert(len(values) // len(_NAMES)), values)
    return number


def _insert(rows: int) -> str:
    marks = f"({', '.join('?' * len(_NAMES))})"
    return f"INSERT INTO events ({', '.join(_NAMES)}) VALUES {', '.join([marks] * rows)}"  # noqa: S608 - constants


_INSERT = _insert(_TOGETHER)


@contextmanager
def writing(database: Database, what: str) -> Generator[None]:
    """Raise LedgerUnavailable where a write fails: the log says why, callers are told no path."""
    try:
        yield
    except (StoreUnavailable, sqlite3.Error, KeyUnusable) as error:
        logger.warning("%s cannot be written: %s", what, error)
        refusal = database.refusal or "see the log"
        raise LedgerUnavailable(f"the ledger's database cannot be written: {refusal}") from None
