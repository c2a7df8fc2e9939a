"""``ledger.db``: its tables, and how rows get into it, inside whatever transaction."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TypeAlias

from bascule.audit.chain import GENESIS, SEARCHED, Columns, columns, link
from bascule.audit.ledger import LedgerUnavailable
from bascule.db.errors import StoreUnavailable
from bascule.db.private_files import KeyUnusable
from bascule.db.sqlite import Migration, give_back
from bascule.db.statements import Statements, Transactions

logger = logging.getLogger("bascule.approvals")
#: What a row has besides its number: journal, place, hash and event.
Link: TypeAlias = tuple[int, int, bytes, bytes]
FILE_NAME = "ledger.db"
#: Where anchors go unless ``ledger.anchor_file`` says where.
ANCHORS_NAME = "ledger.anchors"
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
    (
        # The chains that nodes send; the own one is 0. ``process`` is the journal of the node's,
        # the base what was there before the first row that was sent or is left.
        """CREATE TABLE chains (
            number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, node TEXT NOT NULL,
            began_at REAL NOT NULL, seen_at REAL NOT NULL, process INTEGER NOT NULL,
            base_number INTEGER NOT NULL, base_hash BLOB NOT NULL
        ) STRICT""",
        "ALTER TABLE events ADD COLUMN chain INTEGER NOT NULL DEFAULT 0",
        # The number in its chain, where that is another than the one among all rows.
        "ALTER TABLE events ADD COLUMN link INTEGER",
        "CREATE UNIQUE INDEX events_link ON events (chain, coalesce(link, number))",
        """CREATE TABLE all_checkpoints (
            chain INTEGER NOT NULL DEFAULT 0, number INTEGER NOT NULL, tip BLOB NOT NULL,
            made_at REAL NOT NULL, anchor BLOB NOT NULL, PRIMARY KEY (chain, number)
        ) STRICT, WITHOUT ROWID""",
        "INSERT INTO all_checkpoints SELECT 0, number, tip, made_at, anchor FROM checkpoints",
        "DROP TABLE checkpoints",
        "ALTER TABLE all_checkpoints RENAME TO checkpoints",
    ),
)
#: The first form of the file that has chains of nodes.
_WITH_CHAINS = 3
#: For how long a node counts as running after it sent something.
_LIVE_SECONDS = 900


class Tables:
    """Where the rows of a chain are, and what its database says in words of its own.

    These are the ones of a ``ledger.db`` from before nodes had chains there: it has one.
    """

    events = "events"
    checkpoints = "checkpoints"
    journals = "journals"
    meta = "meta"
    #: The column of events with the number that a row has in its chain, and the same of ``e``.
    number = number_of = "number"
    #: Which rows of these tables are the chain's, and the id of an event's chain and the
    #: node that sends it.
    mine = "true"
    chain = "''"
    node = "NULL"
    #: The chains, those that nodes send, and when one of ``c`` was heard of lately.
    chains: str | None = None
    received = "true"
    heard = "true"
    #: What a row is told, before what all rows have.
    leading: tuple[str, ...] = ("number",)

    def __init__(self, own: int = 0) -> None:
        #: The number of the chain.
        self.own = own
        #: The last number that a row was given, of all chains; it counts with its commit.
        self.given = 0

    def of(self, chain: int) -> Tables:
        """Return the tables as they are written to for another chain."""
        return type(self)(chain)

    def begin_chain(
        self, statements: Statements, id: str, node: str, base: tuple[int, bytes], now: float
    ) -> int:
        """Begin the chain of a node after a row; return its number."""
        raise NotImplementedError

    def note_seen(self, statements: Statements, process: int, now: float) -> None:
        """Note that a node has sent something of this chain, and of which journal it is."""
        raise NotImplementedError

    def lead(self, statements: Statements, number: int, count: int) -> Iterable[Sequence[object]]:
        """Yield what each of so many rows after a number is told first."""
        return ((number + 1 + more,) for more in range(count))

    def note_appended(self, number: int, digest: bytes) -> None:
        """Take notice of the last row that was added."""

    def ring(self, statements: Statements) -> None:
        """Tell other processes that approvals moved, where they can hear."""

    def columns(self, event: bytes) -> Columns:
        """Return what can be searched for of an event, as its row has it."""
        return columns(event)

    def column(self, value: object) -> object:
        """Return a value that is searched for, as a column has it."""
        return value

    def searched(self, statements: Statements) -> str:
        """Return the columns for searching; a file of an older form has fewer."""
        found = statements.execute("SELECT name FROM pragma_table_info('events')")
        there = {name for [name] in found}
        return ", ".join(name if name in there else "NULL" for name in SEARCHED)

    def ledger_id(self, statements: Statements) -> str | None:
        """Return the id that anchors name."""
        query = "SELECT value FROM meta WHERE key = 'ledger_id'"
        [found] = statements.execute(query).fetchone() or [None]
        return found

    def base(self, statements: Statements) -> tuple[int, bytes]:
        """Return the number and the hash of the last row that was cut off the front."""
        found = dict(statements.execute("SELECT key, value FROM meta WHERE key LIKE 'base_%'"))
        digest = bytes.fromhex(found.get("base_hash", GENESIS.hex()))
        return int(found.get("base_number", 0)), digest

    def bounds(self, statements: Statements) -> tuple[int, int]:
        """Return the last number that was ever cut off, and the last of all, as readers count."""
        return self.base(statements)[0], tip(statements, self)[0]

    def first(self, statements: Statements) -> int:
        """Return the number from which on there are rows, as readers count."""
        return self.base(statements)[0] + 1

    def add_checkpoint(self, statements: Statements, values: Sequence[object]) -> None:
        """Keep a checkpoint: number, tip, time and lines."""
        query = "INSERT INTO checkpoints (number, tip, made_at, anchor) VALUES (?, ?, ?, ?)"
        statements.execute(query, values)

    def cutting(self, statements: Statements, last: int) -> None:
        """Take notice that the rows up to one are about to go."""

    def cut(self, statements: Statements, last: int, tip: bytes) -> None:
        """Note that the rows up to one were cut off, and give their room back."""
        put_meta(statements, base_number=str(last), base_hash=tip.hex())
        give_back(statements)

    def used_bytes(self, statements: Statements) -> int:
        """Return how many bytes are in use, without the pages that wait to be given back."""
        size, pages, free = (
            statements.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_size", "page_count", "freelist_count")
        )
        return size * (pages - free)

    def is_live(self, journal: str) -> str:
        """Return the condition that the process of a journal lives; its id is an expression."""
        return f"is_live(coalesce({journal}, ''))"

    def by(self, index: str | None) -> str:
        """Return the way through the events: by an index, or in the order of their numbers."""
        return "NOT INDEXED" if index is None else f"INDEXED BY events_{index}"


class FileTables(Tables):
    """The tables of ``ledger.db``: its own chain, and those that nodes send.

    All rows are counted together, in the order of their commits: that is how readers count.
    """

    number = "coalesce(link, number)"
    number_of = "coalesce(e.link, e.number)"
    chains = "chains"
    heard = f"c.seen_at > (julianday('now') - 2440587.5) * 86400 - {_LIVE_SECONDS}"
    node = "(SELECT c.node FROM chains c WHERE c.number = e.chain)"
    #: One chain needs no name.
    chain = """CASE WHEN NOT EXISTS (SELECT 1 FROM chains) THEN '' ELSE coalesce(
        (SELECT c.id FROM chains c WHERE c.number = e.chain),
        (SELECT value FROM meta WHERE key = 'ledger_id')) END"""
    leading = ("number", "chain", "link")

    @property
    def mine(self) -> str:
        """Return which rows are the chain's."""
        return f"chain = {self.own}"

    def lead(self, statements: Statements, number: int, count: int) -> Iterable[Sequence[object]]:
        """Yield for each of so many rows its number among all, its chain and its number there."""
        before = self.bounds(statements)[1]
        self.given = before + count
        numbers = range(before + 1, before + 1 + count)
        links = range(number + 1, number + 1 + count)
        return ((n, self.own, None if n == link else link) for n, link in zip(numbers, links))  # noqa: B905 - alike

    def ledger_id(self, statements: Statements) -> str | None:
        """Return the id that anchors name."""
        if not self.own:
            return super().ledger_id(statements)
        query = "SELECT id FROM chains WHERE number = ?"
        [found] = statements.execute(query, (self.own,)).fetchone() or [None]
        return found

    def base(self, statements: Statements) -> tuple[int, bytes]:
        """Return the number and the hash of the last row before the first that is here."""
        if not self.own:
            return super().base(statements)
        query = "SELECT base_number, base_hash FROM chains WHERE number = ?"
        return statements.execute(query, (self.own,)).fetchone()

    def bounds(self, statements: Statements) -> tuple[int, int]:
        """Return the last number that was ever cut off, and the last of all, as readers count."""
        query = "SELECT value FROM meta WHERE key = 'cut_number'"
        [cut] = statements.execute(query).fetchone() or [super().base(statements)[0]]
        [last] = statements.execute("SELECT max(number) FROM events").fetchone()
        return int(cut), int(cut) if last is None else last

    def first(self, statements: Statements) -> int:
        """Return the number from which on there are rows, as readers count."""
        [first] = statements.execute("SELECT min(number) FROM events").fetchone()
        return self.bounds(statements)[0] + 1 if first is None else first

    def add_checkpoint(self, statements: Statements, values: Sequence[object]) -> None:
        """Keep a checkpoint: number, tip, time and lines."""
        query = "INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?)"
        statements.execute(query, (self.own, *values))

    def cutting(self, statements: Statements, last: int) -> None:
        """Note the last number that goes, as readers count."""
        query = "SELECT number FROM events WHERE chain = ? AND coalesce(link, number) = ?"
        [number] = statements.execute(query, (self.own, last)).fetchone()
        put_meta(statements, cut_number=str(max(self.bounds(statements)[0], number)))

    def cut(self, statements: Statements, last: int, tip: bytes) -> None:
        """Note that the rows up to one were cut off, and give their room back."""
        if not self.own:
            super().cut(statements, last, tip)
            return
        query = "UPDATE chains SET base_number = ?, base_hash = ? WHERE number = ?"
        statements.execute(query, (last, tip, self.own))
        give_back(statements)

    def begin_chain(
        self, statements: Statements, id: str, node: str, base: tuple[int, bytes], now: float
    ) -> int:
        """Begin the chain of a node after a row; return its number."""
        [number] = statements.execute("SELECT coalesce(max(number), 0) + 1 FROM chains").fetchone()
        statements.execute(
            "INSERT INTO chains VALUES (?, ?, ?, ?, ?, 0, ?, ?)",
            (number, id, node, now, now, *base),
        )
        return number

    def note_seen(self, statements: Statements, process: int, now: float) -> None:
        """Note that a node has sent something of this chain, and of which journal it is."""
        query = "UPDATE chains SET seen_at = ?, process = ? WHERE number = ?"
        statements.execute(query, (now, process, self.own))


def put_meta(statements: Statements, **values: str) -> None:
    """Keep what is said of a file in one line each."""
    for key, value in values.items():
        statements.execute(
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (key, value),
        )


FILE = FileTables()
OLD_FILE = Tables()


def file_tables(connection: sqlite3.Connection) -> Tables:
    """Return the tables of a file as its form has them."""
    [form] = connection.execute("PRAGMA user_version").fetchone()
    return FILE if form >= _WITH_CHAINS else OLD_FILE


def tip(statements: Statements, tables: Tables = FILE) -> tuple[int, bytes]:
    """Return the number and the hash of the last row; ask inside the transaction that adds."""
    number = tables.number
    found = statements.execute(
        f"SELECT {number}, hash FROM {tables.events} WHERE {tables.mine}"  # noqa: S608 - constants
        f" ORDER BY {number} DESC LIMIT 1"
    ).fetchone()
    return tables.base(statements) if found is None else found


def hash_of(statements: Statements, number: int, tables: Tables = FILE) -> bytes | None:
    """Return the hash of a row: None for one that was cut off, nothing for one that is missing."""
    found = statements.execute(
        f"SELECT hash FROM {tables.events} WHERE {tables.mine} AND {tables.number} = ?",  # noqa: S608 - constants
        (number,),
    ).fetchone()
    if found is not None:
        return found[0]
    cut, digest = tables.base(statements)
    return digest if number == cut else None if number < cut else b""


def append(
    statements: Statements, events: Iterable[tuple[int, int, bytes]], tables: Tables = FILE
) -> int:
    """Add events (journal, place, bytes) to the end of the chain; return the last number."""
    first, before = tip(statements, tables)
    number, added = first, list[Link]()
    for journal, place, event in events:
        number += 1
        before = link(before, number, journal, place, event)
        added.append((journal, place, before, event))
    insert(statements, first, added, tables)
    tables.note_appended(number, before)
    return number


def insert(statements: Statements, after: int, added: Sequence[Link], tables: Tables) -> None:
    """Add rows with the hashes that they have, after a number of their chain."""
    values: list[object] = []
    rows = 0
    for lead, given in zip(tables.lead(statements, after, len(added)), added, strict=True):
        values += *lead, *given
        values += tables.columns(given[-1])
        rows += 1
        if rows == _TOGETHER:
            statements.execute(_insert(tables, rows), values)
            values, rows = [], 0
    if rows:
        statements.execute(_insert(tables, rows), values)


def _insert(tables: Tables, rows: int) -> str:
    return _insertion(tables.events, tables.leading, rows)


@cache
def _insertion(events: str, leading: tuple[str, ...], rows: int) -> str:
    names = (*leading, "journal", "place", "hash", "body", *SEARCHED)
    marks = f"({', '.join('?' * len(names))})"
    return (
        f"INSERT INTO {events} ({', '.join(names)})"  # noqa: S608 - constants
        f" VALUES {', '.join([marks] * rows)}"
    )


@contextmanager
def writing(database: Transactions, what: str) -> Generator[None]:
    """Raise LedgerUnavailable where a write fails: the log says why, callers are told no path."""
    try:
        yield
    except (StoreUnavailable, sqlite3.Error, KeyUnusable) as error:
        logger.warning("%s cannot be written: %s", what, error)
        refusal = database.refusal or "see the log"
        raise LedgerUnavailable(f"the ledger's database cannot be written: {refusal}") from None
