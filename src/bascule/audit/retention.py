"""Retention: the oldest rows are cut off the ledger, whole checkpoints at a time, as a row says.

The cut is an event in the chain, and the hash of the last row that it took is in it: so the first
row that is left still has something to follow.
"""

from __future__ import annotations

import math
import sqlite3
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from bascule.audit.events import LedgerCut
from bascule.audit.ledger_file import append, base
from bascule.db.errors import StoreUnavailable
from bascule.db.sqlite import give_back

_DAY = 86_400
#: Rows of one cut at most, so that no transaction takes long; the next cut takes the next ones.
MOST_ROWS = 20_000
#: A cut for size leaves this much of it, so that not every checkpoint makes another cut.
_LEAVES = 0.9

Reason: TypeAlias = Literal["age", "size"]


class Limits(Struct, frozen=True, kw_only=True):
    """How much is kept; None is no limit. Size cuts nothing that is younger than ``keep_days``."""

    max_days: float | None = None
    max_bytes: int | None = None
    keep_days: float = 0


def cut(connection: sqlite3.Connection, limits: Limits, now: float, by: str) -> LedgerCut | None:
    """Cut what is too old or too much off the front; return what was cut, None if nothing was.

    Run it in a write transaction of its own, until it returns None, and make a checkpoint after
    it: a cut counts for a verification when an anchor covers it. It takes whole checkpoints, and
    with them an intent whose outcome is yet to come. It raises StoreUnavailable, and cuts nothing,
    where the rows do not agree with their checkpoint: that must be looked at before it is gone.
    """
    first = base(connection)[0] + 1
    found = _last_to_cut(connection, limits, now, first)
    if found is None:
        return None
    last, reason = found
    tip = _agreed_tip(connection, first, last)
    done = LedgerCut(
        timestamp=now,
        by=by,
        reason=reason,
        first=first,
        last=last,
        count=last - first + 1,
        tip=tip.hex(),
    )
    append(connection, [(0, 0, msgspec.json.encode(done))])
    _take_away(connection, last, tip)
    give_back(connection)
    return done


def _last_to_cut(
    connection: sqlite3.Connection, limits: Limits, now: float, first: int
) -> tuple[int, Reason] | None:
    if limits.max_days is not None:
        last = _last_of(connection, first, now - limits.max_days * _DAY)
        if last is not None:
            return last, "age"
    if limits.max_bytes is not None and (rows := _excess(connection, limits.max_bytes, first)):
        last = _last_of(connection, first, now - limits.keep_days * _DAY, first + rows - 1)
        if last is not None:
            return last, "size"
    return None


def _last_of(
    connection: sqlite3.Connection, first: int, made_before: float, enough: int | None = None
) -> int | None:
    """Return the last row of the checkpoints made before then, with which it is enough."""
    candidates = connection.execute(
        "SELECT number FROM checkpoints WHERE made_at < ? AND number >= ? ORDER BY number",
        (made_before, first),
    )
    last = None
    for [number] in candidates:
        if last is not None and number >= first + MOST_ROWS:
            break
        last = number
        if enough is not None and number >= enough:
            break
    return last


def _excess(connection: sqlite3.Connection, max_bytes: int, first: int) -> int:
    """Return about how many rows must go, if the file is too large."""
    used = _used_bytes(connection)
    if used <= max_bytes:
        return 0
    [newest] = connection.execute("SELECT max(number) FROM events").fetchone()
    rows = 0 if newest is None else newest - first + 1
    return math.ceil(rows * (1 - max_bytes * _LEAVES / used))


def _agreed_tip(connection: sqlite3.Connection, first: int, last: int) -> bytes:
    """Return the hash of the last row to cut, if all of them are there as they were signed."""
    query = "SELECT tip FROM checkpoints WHERE number = ?"
    [signed] = connection.execute(query, (last,)).fetchone()
    query = "SELECT count(*), min(number) FROM events WHERE number <= ?"
    count, lowest = connection.execute(query, (last,)).fetchone()
    found = connection.execute("SELECT hash FROM events WHERE number = ?", (last,)).fetchone()
    if found != (signed,) or (count, lowest) != (last - first + 1, first):
        raise StoreUnavailable(
            f"rows {first} to {last} of the ledger are not as they were signed, and are kept: "
            "run bascule audit verify"
        )
    return signed


def _take_away(connection: sqlite3.Connection, last: int, tip: bytes) -> None:
    connection.execute("DELETE FROM events WHERE number <= ?", (last,))
    connection.execute("DELETE FROM checkpoints WHERE number <= ?", (last,))
    connection.executemany(
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        [("base_number", str(last)), ("base_hash", tip.hex())],
    )


def _used_bytes(connection: sqlite3.Connection) -> int:
    """Return how many bytes are in use, without the pages that wait to be given back."""
    size, pages, free = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_size", "page_count", "freelist_count")
    )
    return size * (pages - free)
