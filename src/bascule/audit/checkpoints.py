"""Checkpoints: the anchors as the ledger keeps them, beside the rows that they cover."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import partial

from bascule.audit.anchors import Anchors, parsed
from bascule.audit.ledger_file import hash_of, tip


def checkpoint(connection: sqlite3.Connection, anchors: Anchors, now: float) -> bytes | None:
    """Anchor all rows and return the line; None when there is no new row.

    Run it in a write transaction that adds no rows: an anchor must not cover what may yet be
    undone. Lines that a killed process did not keep are taken from the file first. Nothing is
    anchored, and AnchorsUnavailable raised, where the file's last line is about other rows: of a
    ledger that is gone, or of which an older copy was put back.
    """
    number, last_hash = tip(connection)
    anchors.check(number, partial(hash_of, connection))
    kept = last_line(connection)
    for missed in anchors.after(kept) if kept is not None else ():
        store(connection, missed)
    if number <= _covered(connection):
        return None
    line = anchors.add(number, last_hash, now)
    store(connection, line)
    return line


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
