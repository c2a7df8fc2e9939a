"""Rows in their order, each compared with the one before it and with the anchors about it."""

from __future__ import annotations

import sqlite3
import struct
from collections import deque
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from bascule.audit.anchors import Anchor
from bascule.audit.chain import GENESIS, SEARCHED, Columns, Row, link
from bascule.audit.events import LedgerCut
from bascule.audit.findings import MOST_TOLD, CutTold, Problems
from bascule.audit.ledger_file import FILE, Tables
from bascule.db.statements import Statements

#: Rows that are read together.
_TOGETHER = 1_000
#: A row with its columns for searching, where there are any; None for what is not a row.
Found: TypeAlias = tuple[Row, Columns | None] | None


def stored_rows(
    statements: Statements, problems: Problems, after: int = -1, tables: Tables = FILE
) -> Iterator[Found]:
    """Yield the rows of a chain after one, as far as they can be read."""
    query, number, last = _rows(statements, tables), None, None
    try:
        while last != after:
            last = after
            for number, journal, place, body, digest, *searched in statements.execute(
                query, (after,)
            ):
                fits = isinstance(body, bytes) and isinstance(digest, bytes)
                fits = fits and isinstance(journal, int) and isinstance(place, int)
                yield (Row(number, journal, place, body, digest), tuple(searched)) if fits else None
                after = number
    except sqlite3.Error as error:
        problems.add(number, f"after this row the file is damaged: {error}")


def _rows(statements: Statements, tables: Tables) -> str:
    """Return the query for the next rows."""
    return (
        f"SELECT {tables.number}, journal, place, body, hash, {tables.searched(statements)}"  # noqa: S608 - constants
        f" FROM {tables.events} WHERE {tables.mine} AND {tables.number} > ?"
        f" ORDER BY {tables.number} LIMIT {_TOGETHER}"
    )


class RowWalk:
    """What is known of the rows so far; it keeps the first, the last and some cuts."""

    def __init__(
        self,
        anchors: Iterator[Anchor],
        problems: Problems,
        last: Row | None = None,
        tables: Tables = FILE,
        *,
        received: bool = False,
    ) -> None:
        """Walk; ``received`` are rows of a node: what they say of cuts decides nothing here."""
        self.received = received
        self._columns = tables.columns
        self._anchors = anchors
        self._problems = problems
        self._next = next(anchors, None)
        self.first: Row | None = None
        self.last = last
        self.rows = self.unprotected = 0
        self.anchored_at: float | None = None
        self.cuts: deque[CutTold] = deque(maxlen=MOST_TOLD)
        #: Other chains that were taken away as a whole, with the row that says so.
        self.removed: dict[str, int] = {}
        #: What was cut off the front of other chains: the last row, and its hash.
        self.fronts: dict[str, tuple[int, bytes]] = {}
        #: The last row that an anchor covers.
        self._covered = 0
        #: The row that says why the first row is not row 1, and what it says.
        self._cut: tuple[int, LedgerCut] | None = None

    def take(self, found: Found) -> None:
        """Compare a row with what is known."""
        if found is None:
            self._problems.add(self.last and self.last.number, "what stands after it is not a row")
            return
        row, searched = found
        self._check_link(row)
        self._check_event(row, searched)
        self.first = self.first or row
        self.last = row
        self.rows += 1
        self.unprotected += 1
        self._compare_anchors(row)

    def finish(self, base: tuple[int, bytes] | None, *, anchored: bool) -> None:
        """See what is missing at either end; ``base`` is the row before the first, if known."""
        self._check_end()
        for number in self.removed.values() if anchored else ():
            self._refuse_uncovered(number)
        if self.received:
            self._check_received(base)
            return
        if self.first is not None and self.first.number != 1:
            self._check_front(self.first, anchored=anchored)
        front = 0 if self.first is None else self.first.number - 1
        tip = GENESIS if self._cut is None else bytes.fromhex(self._cut[1].tip)
        if base not in (None, (front, tip)):
            self._problems.add(front + 1, "the table meta has another row before it")

    def _check_link(self, row: Row) -> None:
        last = self.last
        if last is None:
            changed = row.number == 1 and not _follows(GENESIS, row)
        elif row.number <= last.number:
            self._problems.add(row.number, f"stands after row {last.number}")
            return
        elif row.number > last.number + 1:
            words = f"rows {last.number + 1} to {row.number - 1}, before it, are missing"
            self._problems.add(row.number, words)
            return
        else:
            changed = not _follows(last.hash, row)
        if changed:
            self._problems.add(row.number, "changed: its hash does not fit it and the row before")

    def _check_event(self, row: Row, searched: Columns | None) -> None:
        try:
            expected = self._columns(row.event)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self._problems.add(row.number, "its body is not an event")
            return
        if searched is not None and searched != expected:
            pairs = zip(SEARCHED, searched, expected, strict=True)
            names = ", ".join(name for name, one, other in pairs if one != other)
            self._problems.add(row.number, f"its columns differ from its body: {names}")
        if expected[SEARCHED.index("event")] == "ledger_cut" and not self.received:
            self._take_cut(row)

    def _take_cut(self, row: Row) -> None:
        try:
            cut = msgspec.json.decode(row.event, type=LedgerCut)
            bytes.fromhex(cut.tip)
        except (msgspec.DecodeError, ValueError):
            self._problems.add(row.number, "says that rows were cut, and not which")
            return
        if cut.chain is not None:
            if cut.partial:
                self.fronts[cut.chain] = cut.last, bytes.fromhex(cut.tip)
            else:
                self.removed[cut.chain] = row.number
            return
        front = (self.first or row).number
        if cut.last >= front or cut.count != cut.last - cut.first + 1:
            words = f"says that rows {cut.first} to {cut.last} were cut, and some are here"
            self._problems.add(row.number, words)
        if cut.last == front - 1:
            self._cut = row.number, cut
        told = CutTold(row.number, cut.first, cut.last, cut.reason, cut.by, cut.timestamp)
        self.cuts.append(told)

    def _compare_anchors(self, row: Row) -> None:
        while self._next is not None and self._next.number <= row.number:
            anchor, self._next = self._next, next(self._anchors, None)
            if anchor.number == row.number:
                self._compare(anchor, row)

    def _compare(self, anchor: Anchor, row: Row) -> None:
        if anchor.tip != row.hash.hex():
            self._problems.add(row.number, "an anchor has another hash for it")
            return
        self._covered = row.number
        self.unprotected = 0
        self.anchored_at = anchor.made_at

    def _check_end(self) -> None:
        end = 0 if self.last is None else self.last.number
        missing = None
        while self._next is not None:
            missing = self._next if self._next.number > end else missing
            self._next = next(self._anchors, None)
        if missing is not None:
            words = f"rows {end + 1} to {missing.number}, which an anchor covers, are missing"
            self._problems.add(end + 1, words)

    def _check_front(self, first: Row, *, anchored: bool) -> None:
        """See that a row says of those before the first that they were cut, and is anchored."""
        if self._cut is None:
            words = f"rows 1 to {first.number - 1} are missing, and no row says that they were cut"
            self._problems.add(first.number, words)
            return
        number, cut = self._cut
        if not _follows(bytes.fromhex(cut.tip), first):
            self._problems.add(first.number, "changed: its hash does not fit the cut before it")
        if anchored:
            self._refuse_uncovered(number)

    def _check_received(self, base: tuple[int, bytes] | None) -> None:
        """See that the first row follows what its chain is said to begin after."""
        if self.first is None or base is None:
            return
        number, digest = base
        if self.first.number != number + 1 or not _follows(digest, self.first):
            words = f"does not follow row {number}, after which its chain is said to begin"
            self._problems.add(self.first.number, words)

    def _refuse_uncovered(self, number: int) -> None:
        """Believe no cut that nobody signed."""
        if number > self._covered:
            words = "says that rows were cut, and no anchor covers it; run bascule audit checkpoint"
            self._problems.add(number, words)


def _follows(before: bytes, row: Row) -> bool:
    try:
        return link(before, row.number, row.journal, row.place, row.event) == row.hash
    except struct.error:  # a number that no row has
        return False
