"""Whether ``ledger.db`` can be opened: all of a small file is looked at, of a large one the end."""

from __future__ import annotations

import sqlite3

from bascule.audit.chain import Row
from bascule.audit.findings import Problems
from bascule.audit.ledger_file import Tables, file_tables, hash_of
from bascule.audit.row_walk import RowWalk, stored_rows
from bascule.db.sqlite import quick_check

#: SQLite needs seconds for each gigabyte that it looks through, and a start must not.
SMALL_BYTES = 64 * 1024 * 1024
#: Rows at the end that are verified at most.
MOST_ROWS = 10_000
_TABLES = frozenset({"meta", "journals", "events", "checkpoints"})


def ledger_check(connection: sqlite3.Connection, /) -> str | None:
    """Return what is damaged; to be given to ``Database`` as its check."""
    pages, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size")
    )
    damage = quick_check(connection) if pages * size <= SMALL_BYTES else None
    return damage or end_check(connection)


def end_check(connection: sqlite3.Connection) -> str | None:
    """Look at the tables, and at the chain from the last checkpoint to the last row."""
    tables = {name for [name] in connection.execute("SELECT name FROM sqlite_schema")}
    if not tables:
        return None  # a new file
    if missing := sorted(_TABLES - tables):
        return f"there is no table {missing[0]}"
    form = file_tables(connection)
    number, tip = _last_checkpoint(connection, form) or (0, b"")
    if number and hash_of(connection, number, form) != tip:
        return f"row {number} is not what its checkpoint says"
    return _chain_check(connection, form)


def _last_checkpoint(connection: sqlite3.Connection, tables: Tables) -> tuple[int, bytes] | None:
    return connection.execute(
        f"SELECT number, tip FROM checkpoints WHERE {tables.mine} ORDER BY number DESC LIMIT 1"  # noqa: S608 - constants
    ).fetchone()


def _chain_check(connection: sqlite3.Connection, tables: Tables) -> str | None:
    problems = Problems()
    try:
        start = _start(connection, tables)
    except ValueError:
        return "the table meta has no number or hash in base_number or base_hash"
    walk = RowWalk(iter(()), problems, start, tables)
    for found in stored_rows(connection, problems, start.number, tables):
        walk.take(found)
    return next((f"row {found.row}: {found.words}" for found in problems.told), None)


def _start(connection: sqlite3.Connection, tables: Tables) -> Row:
    """Return the row to begin after, of which only number and hash count."""
    later = connection.execute(
        f"SELECT {tables.number}, hash FROM events WHERE {tables.mine}"  # noqa: S608 - constants
        f" ORDER BY {tables.number} DESC LIMIT 1 OFFSET ?",
        (MOST_ROWS,),
    ).fetchone()
    known = tables.base(connection), _last_checkpoint(connection, tables), later
    number, digest = max(found for found in known if found)
    return Row(number, 0, 0, b"", digest)
