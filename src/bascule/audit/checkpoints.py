"""Checkpoints: the anchors as the ledger keeps them, beside the rows that they cover."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bascule.audit.anchors import Anchors, parsed
from bascule.audit.ledger_file import FILE, Tables, hash_of, tip
from bascule.db.statements import Statements


def checkpoint(
    statements: Statements, anchors: Anchors, now: float, tables: Tables = FILE
) -> bytes | None:
    """Anchor all rows and return the line; None when there is no new row.

    Run it in a write transaction that adds no rows: an anchor must not cover what may yet be
    undone. Lines that a killed process did not keep are taken from the file first. Nothing is
    anchored, and AnchorsUnavailable raised, where the file's last line is about other rows: of a
    ledger that is gone, or of which an older copy was put back.
    """
    number, last_hash = tip(statements, tables)
    anchors.check(number, partial(hash_of, statements, tables=tables))
    kept = last_line(statements, tables)
    for missed in anchors.after(kept) if kept is not None else ():
        store(statements, missed, tables)
    if number <= _covered(statements, tables):
        return None
    line = anchors.add(number, last_hash, now)
    store(statements, line, tables)
    return line


def store(statements: Statements, line: bytes, tables: Tables = FILE) -> None:
    """Keep an anchor's line; those for one row are kept together, in their order."""
    anchor = parsed(line)
    if anchor is None:
        raise ValueError("not the line of an anchor")
    row = f"{tables.mine} AND number = ?"
    query = f"SELECT anchor FROM {tables.checkpoints} WHERE {row}"  # noqa: S608 - constants
    found = statements.execute(query, (anchor.number,)).fetchone()
    if found is None:
        values = (anchor.number, bytes.fromhex(anchor.tip), anchor.made_at, line)
        tables.add_checkpoint(statements, values)
        return
    query = f"UPDATE {tables.checkpoints} SET anchor = ? WHERE {row}"  # noqa: S608 - constants
    statements.execute(query, (bytes(found[0]) + b"\n" + line, anchor.number))


def stored(statements: Statements, tables: Tables = FILE) -> Iterator[bytes]:
    """Yield the lines that are kept, oldest first."""
    query = f"SELECT anchor FROM {tables.checkpoints} WHERE {tables.mine} ORDER BY number"  # noqa: S608 - constants
    for [lines] in statements.execute(query):
        yield from bytes(lines).split(b"\n")


def last_line(statements: Statements, tables: Tables = FILE) -> bytes | None:
    """Return the newest line that is kept."""
    found = statements.execute(
        f"SELECT anchor FROM {tables.checkpoints} WHERE {tables.mine}"  # noqa: S608 - constants
        " ORDER BY number DESC LIMIT 1"
    ).fetchone()
    return None if found is None else bytes(found[0]).split(b"\n")[-1]


def _covered(statements: Statements, tables: Tables) -> int:
    query = f"SELECT max(number) FROM {tables.checkpoints} WHERE {tables.mine}"  # noqa: S608 - constants
    [number] = statements.execute(query).fetchone()
    return number or 0
