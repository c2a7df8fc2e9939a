"""Checkpoints: the anchors as the ledger keeps them, beside the rows that they cover."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from bascule.audit.anchors import Anchors, AnchorsUnavailable, parsed
from bascule.audit.ledger_file import base, tip


def checkpoint(connection: sqlite3.Connection, anchors: Anchors, now: float) -> bytes | None:
    """Anchor all rows and return the line; None when there is no new row.

    Run it in a write transaction that adds no rows: an anchor must not cover what may yet be
    undone. Lines that a killed process did not keep are taken from the file first.
    """
    number, last_hash = tip(connection)
    kept = last_line(connection)
    for missed in anchors.after(kept) if kept is not None else ():
        _refuse_older(connection, missed, anchors)
        store(connection, missed)
    if number <= _covered(connection):
        return None
    line = anchors.add(number, last_hash, now)
    store(connection, line)
    return line


def _refuse_older(connection: sqlite3.Connection, line: bytes, anchors: Anchors) -> None:
    """Refuse an anchor for a row that the ledger has not, or has otherwise: it is a restored copy.

    A row that is anchored was committed before, so no kill leaves a ledger like that.
    """
    anchor = parsed(line)
    if anchor is None or anchor.number <= base(connection)[0]:
        return
    query = "SELECT hash FROM events WHERE number = ?"
    row = connection.execute(query, (anchor.number,)).fetchone()
    if row is None or bytes(row[0]).hex() != anchor.tip:
        raise AnchorsUnavailable(
            f"the ledger has not the row {anchor.number} that {anchors.file} has an anchor for: it "
            "is an older copy. Run bascule audit verify; if it was restored on purpose, keep this "
            "file elsewhere, and a new one is begun"
        )


def store(connection: sqlite3.Connection, line: bytes) -> None:
    """Keep an anchor's line; those for one row are kept together, in their order."""
    anchor = parsed(line)
    if anchor is None:
        raise ValueError("not the line of an anchor")
    connection.execute(
        """INSERT INTO checkpoints (number, tip, made_at, anchor) VALUES (?, ?, ?, ?)
        ON CONFLICT (number) DO UPDATE
        SET anchor = CAST(anchor || x'0a' || excluded.anchor AS BLOB)""",
        (anchor.number, bytes.fromhex(anchor.tip), anchor.made_at, line),
    )


def stored(connection: sqlite3.Connection) -> Iterator[bytes]:
    """Yield the lines that are kept, oldest first."""
    for [lines] in connection.execute("SELECT anchor FROM checkpoints ORDER BY number"):
        yield from bytes(lines).split(b"\n")


def last_line(connection: sqlite3.Connection) -> bytes | None:
    """Return the newest line that is kept."""
    query = "SELECT anchor FROM checkpoints ORDER BY number DESC LIMIT 1"
    found = connection.execute(query).fetchone()
    return None if found is None else bytes(found[0]).split(b"\n")[-1]


def _covered(connection: sqlite3.Connection) -> int:
    [number] = connection.execute("SELECT max(number) FROM checkpoints").fetchone()
    return number or 0
