"""Retention: the oldest rows are cut off the ledger, whole checkpoints at a time, as a row says.

The cut is an event in the chain, and the hash of the last row that it took is in it: so the first
row that is left still has something to follow.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bascule.audit.events import LedgerCut
from bascule.audit.ledger_file import FILE, Tables, append, hash_of, tip
from bascule.db.errors import StoreUnavailable
from bascule.db.statements import Statements

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


def cut(
    statements: Statements,
    limits: Limits,
    now: float,
    by: str,
    tables: Tables = FILE,
    *,
    most: int | None = None,
) -> LedgerCut | None:
    """Cut what is too old or too much off the front; return what was cut, None if nothing was.

    Run it in a write transaction of its own, until it returns None, and make a checkpoint after
    it: a cut counts for a verification when an anchor covers it. It takes whole checkpoints, and
    with them an intent whose outcome is yet to come. It raises StoreUnavailable, and cuts nothing,
    where the rows do not agree with their checkpoint: that must be looked at before it is gone.
    Rows after ``most`` stay: somebody waits for them.
    """
    done = _found(statements, tables, limits, now, by=by, most=most)
    if done is not None:
        append(statements, [(0, 0, msgspec.json.encode(done))], tables)
        _take_away(statements, tables, done.last, bytes.fromhex(done.tip))
    return done


def cut_received(
    statements: Statements, limits: Limits, now: float, by: str, tables: Tables
) -> LedgerCut | None:
    """Do the same with what nodes have sent; the own chain says so, as nobody here can sign theirs.

    Rows that are not as they were signed are kept.
    """
    chains = statements.execute(
        f"SELECT number, id FROM {tables.chains} c WHERE {tables.received} ORDER BY number"  # noqa: S608 - constants
    ).fetchall()
    for number, id in chains:
        theirs = tables.of(number)
        with suppress(StoreUnavailable):
            done = _found(statements, theirs, limits, now, by=by, most=None)
            if done is not None:
                done = replace(done, chain=id, partial=True)
                append(statements, [(0, 0, msgspec.json.encode(done))], tables)
                _take_away(statements, theirs, done.last, bytes.fromhex(done.tip))
                return done
    return None


def _found(
    statements: Statements,
    tables: Tables,
    limits: Limits,
    now: float,
    *,
    by: str,
    most: int | None,
) -> LedgerCut | None:
    """Return what is to be cut off the front of a chain, and how a row says so."""
    first = tables.base(statements)[0] + 1
    found = _Front(statements, tables, first, most).last_to_cut(limits, now)
    if found is None:
        return None
    last, reason = found
    signed = _agreed_tip(statements, tables, first, last)
    return LedgerCut(
        timestamp=now,
        by=by,
        reason=reason,
        first=first,
        last=last,
        count=last - first + 1,
        tip=signed.hex(),
    )


class _Front(Struct, frozen=True):
    """The front of a chain, with the number of its first row."""

    statements: Statements
    tables: Tables
    first: int
    most: int | None = None

    def last_to_cut(self, limits: Limits, now: float) -> tuple[int, Reason] | None:
        if limits.max_days is not None:
            last = self._last_of(now - limits.max_days * _DAY)
            if last is not None:
                return last, "age"
        if limits.max_bytes is not None and (rows := self._excess(limits.max_bytes)):
            last = self._last_of(now - limits.keep_days * _DAY, self.first + rows - 1)
            if last is not None:
                return last, "size"
        return None

    def _last_of(self, made_before: float, enough: int | None = None) -> int | None:
        """Return the last row of the checkpoints made before then, with which it is enough."""
        candidates = self.statements.execute(
            f"SELECT number FROM {self.tables.checkpoints} WHERE {self.tables.mine}"  # noqa: S608 - constants
            " AND made_at < ? AND number >= ? ORDER BY number",
            (made_before, self.first),
        )
        last = None
        for [number] in candidates:
            if last is not None and number >= self.first + MOST_ROWS:
                break
            if self.most is not None and number > self.most:
                break
            last = number
            if enough is not None and number >= enough:
                break
        return last

    def _excess(self, max_bytes: int) -> int:
        """Return about how many rows must go, if there is too much."""
        used = self.tables.used_bytes(self.statements)
        if used <= max_bytes:
            return 0
        rows = max(tip(self.statements, self.tables)[0] - self.first + 1, 0)
        return math.ceil(rows * (1 - max_bytes * _LEAVES / used))


def _agreed_tip(statements: Statements, tables: Tables, first: int, last: int) -> bytes:
    """Return the hash of the last row to cut, if all of them are there as they were signed."""
    query = f"SELECT tip FROM {tables.checkpoints} WHERE {tables.mine} AND number = ?"  # noqa: S608 - constants
    [signed] = statements.execute(query, (last,)).fetchone()
    number = tables.number
    count, lowest = statements.execute(
        f"SELECT count(*), min({number}) FROM {tables.events}"  # noqa: S608 - constants
        f" WHERE {tables.mine} AND {number} <= ?",
        (last,),
    ).fetchone()
    found = hash_of(statements, last, tables)
    if found != signed or (count, lowest) != (last - first + 1, first):
        raise StoreUnavailable(
            f"rows {first} to {last} of the ledger are not as they were signed, and are kept: "
            "run bascule audit verify"
        )
    return signed


def _take_away(statements: Statements, tables: Tables, last: int, signed: bytes) -> None:
    tables.cutting(statements, last)
    for table, number in ((tables.events, tables.number), (tables.checkpoints, "number")):
        query = f"DELETE FROM {table} WHERE {tables.mine} AND {number} <= ?"  # noqa: S608 - constants
        statements.execute(query, (last,))
    tables.cut(statements, last, signed)
