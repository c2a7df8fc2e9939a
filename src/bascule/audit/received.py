"""What nodes send of their ledgers, taken into the database of a control plane.

Every row is compared with the one before it, so that what is there can only grow: other rows under
the same numbers are refused. What a node says about itself is believed as far as its chain holds,
and what it says about others not at all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from struct import error as PackError  # noqa: N812 - what is raised for a number that none is

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bascule.audit.anchors import is_signed, parsed
from bascule.audit.chain import GENESIS, Row, columns, link
from bascule.audit.checkpoints import store
from bascule.audit.events import LedgerCut
from bascule.audit.ledger_file import Tables, append, hash_of, insert, tip
from bascule.db.statements import Statements
from bascule.errors import BasculeError

MOST_ROWS = 1_000
MOST_ANCHORS = 1_000
MAX_EVENT_BYTES = 128 * 1024
MAX_NUMBER = 2**62
_MAX_ID = 64
_HASH_BYTES = 32
_MAX_SECONDS = 1e12
#: What has the rows of a node taken that are refused.
REMEDY = (
    "if that is known to be harmless, such as after a restore, `bascule node accept --ledger` on "
    "the node's machine has them taken as a new ledger beside the one before"
)


class NotTaken(BasculeError):
    """Rows that are not taken; ``number`` is the first that is not as it should be."""

    code = "wrong_state"

    def __init__(self, number: int, words: str) -> None:
        self.number = number
        super().__init__(words)


class Malformed(BasculeError):
    """What is no row at all."""

    code = "invalid_request"


class SentRows(Struct, frozen=True, kw_only=True):
    """Rows of the chain of a node, the hash of the one before them, and lines about them."""

    node: str
    #: The id of its ledger.
    ledger: str
    #: The journal of the process that sends.
    process: int = 0
    before: bytes = GENESIS
    rows: Sequence[Row] = ()
    anchors: Sequence[bytes] = ()


class Reached(Struct, frozen=True):
    """How far a chain is: its last row, and the last that an anchor is about."""

    number: int
    hash: bytes
    anchored: int


class Taken(Struct, frozen=True):
    """How far a chain is now, and whether it began, or has a gap, with what was taken.

    ``new`` is how many of the rows were not there before: the last of those that were sent.
    """

    reached: Reached
    began: bool = False
    gap: bool = False
    #: The first row that was taken, if any.
    first: int = 0
    #: The earlier ledger of the node after whose rows the chain began, if so.
    follows: str | None = None


class _Fork(Struct, frozen=True):
    """The last row that a node sends as that of a new ledger, and sent of an earlier one before."""

    ledger: str
    number: int
    hash: bytes


def refuse_malformed(sent: SentRows) -> None:
    """Raise Malformed for what no node that is well sends."""
    if not 0 < len(sent.ledger) <= _MAX_ID or not sent.ledger.isascii():
        raise Malformed(f"ledger: must be the id of a ledger, of 1 to {_MAX_ID} characters")
    if len(sent.rows) > MOST_ROWS or len(sent.anchors) > MOST_ANCHORS:
        raise Malformed(f"rows: at most {MOST_ROWS} at once, and {MOST_ANCHORS} anchors")
    if not 0 <= sent.process < MAX_NUMBER:
        raise Malformed("journal: must be the number of a journal")
    if sent.rows and len(sent.before) != _HASH_BYTES:
        raise Malformed(f"before: must be a hash of {_HASH_BYTES} bytes")
    for at, row in enumerate(sent.rows):
        problem = _problem(row)
        if problem is not None:
            raise Malformed(f"rows[{at}].{problem}")


def _problem(row: Row) -> str | None:
    if not 0 < row.number < MAX_NUMBER:
        return "number: must be the number of a row"
    if row.journal >= MAX_NUMBER or row.place >= MAX_NUMBER:
        return "journal: must be the number of a journal, and place one in it"
    if len(row.hash) != _HASH_BYTES:
        return f"hash: must have {_HASH_BYTES} bytes"
    if len(row.event) > MAX_EVENT_BYTES or not _is_event(row.event):
        return f"event: must be an event of at most {MAX_EVENT_BYTES} bytes"
    return None


def _is_event(event: bytes) -> bool:
    """Say whether the columns of a row can have what an event says."""
    try:
        timestamp, kind, *words = columns(event)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    dated = timestamp is None or (
        isinstance(timestamp, int | float)
        and not isinstance(timestamp, bool)
        and abs(timestamp) < _MAX_SECONDS
    )
    return (
        dated
        and isinstance(kind, str)
        and all(one is None or isinstance(one, str) for one in words)
    )


def receive(statements: Statements, own: Tables, sent: SentRows, now: float) -> Taken:
    """Take rows in, inside a write transaction; ``own`` are the tables of the own chain.

    What was taken before is not taken again, nor as that of another ledger of the same node. Raise
    NotTaken, with nothing written, for rows that are others, or do not follow one another.
    """
    tables, fork = _chain_of(statements, own, sent), None
    began = tables is None and bool(sent.rows)
    if tables is None and not sent.rows:
        return Taken(Reached(0, GENESIS, 0))
    if tables is None:
        fork = _fork(statements, own, sent)
        if fork is not None and fork.number == sent.rows[-1].number:
            return Taken(Reached(fork.number, fork.hash, 0))
        sent = _after(sent, fork)
        tables = _begun(statements, own, sent, now, fork)
    last = tip(statements, tables)[0]
    new = _new_rows(statements, tables, sent, last)
    gap = bool(new) and new[0].number > last + 1
    if new:
        links = [(row.journal, row.place, row.hash, row.event) for row in new]
        insert(statements, new[0].number - 1, links, tables)
        own.given = tables.given
    for line in sent.anchors:
        _keep(statements, tables, line)
    tables.note_seen(statements, sent.process, now)
    if new:
        own.ring(statements)
    first, follows = new[0].number if new else 0, fork and fork.ledger
    return Taken(_reached(statements, tables), began, gap, first, follows)


def _chain_of(statements: Statements, own: Tables, sent: SentRows) -> Tables | None:
    """Return the tables of the chain that a node sends; None before its first row."""
    found = statements.execute(
        f"SELECT number, node, CASE WHEN {own.received} THEN 1 ELSE 0 END"  # noqa: S608 - constants
        f" FROM {own.chains} c WHERE id = ?",
        (sent.ledger,),
    ).fetchone()
    theirs = found is not None and (found[1], found[2]) == (sent.node, 1)
    if (found is not None and not theirs) or own.ledger_id(statements) == sent.ledger:
        raise NotTaken(
            sent.rows[0].number if sent.rows else 0,
            f"ledger {sent.ledger} is that of another: each node needs a data directory of its own",
        )
    return None if found is None else own.of(found[0])


def _fork(statements: Statements, own: Tables, sent: SentRows) -> _Fork | None:
    """Return the last of some rows, or the one before them, that another chain of the node has.

    A hash is about all rows before it, so that these are the same up to there.
    """
    points = [(sent.rows[0].number - 1, sent.before)]
    points += [(row.number, row.hash) for row in sent.rows]
    found: list[_Fork] = []
    chains = statements.execute(
        f"SELECT number, id FROM {own.chains} c WHERE node = ? AND {own.received}",  # noqa: S608 - constants
        (sent.node,),
    ).fetchall()
    for number, id in chains:
        shared = _shared(statements, own.of(number), points)
        if shared is not None:
            found.append(_Fork(id, *shared))
    return max(found, key=lambda one: one.number, default=None)


def _shared(
    statements: Statements, tables: Tables, points: Sequence[tuple[int, bytes]]
) -> tuple[int, bytes] | None:
    """Return the last of these rows that a chain has."""
    first = max(1, tables.base(statements)[0])
    there = [one for one in points if one[0] >= first]

    def is_other(one: tuple[int, bytes]) -> bool:
        return hash_of(statements, one[0], tables) != one[1]

    count = bisect_left(there, 1, key=is_other)
    return there[count - 1] if count else None


def _after(sent: SentRows, fork: _Fork | None) -> SentRows:
    """Return what is sent after the row of a fork."""
    if fork is None:
        return sent
    rows = [row for row in sent.rows if row.number > fork.number]
    return replace(sent, before=fork.hash, rows=rows)


def _begun(
    statements: Statements, own: Tables, sent: SentRows, now: float, fork: _Fork | None
) -> Tables:
    """Begin a chain; where it has no first rows, a row of the own chain says so.

    The node has cut them off, or they are in an earlier chain.
    """
    base = sent.rows[0].number - 1, sent.before
    if base[0] == 0 and sent.before != GENESIS:
        raise NotTaken(1, "row 1 does not begin a chain")
    number = own.begin_chain(statements, sent.ledger, sent.node, base, now)
    if base[0]:
        said = LedgerCut(
            timestamp=now,
            by=sent.node,
            reason="age" if fork is None else "fork",
            first=1,
            last=base[0],
            count=base[0],
            tip=sent.before.hex(),
            chain=sent.ledger,
            partial=True,
        )
        append(statements, [(0, 0, msgspec.json.encode(said))], own)
    return own.of(number)


def _new_rows(statements: Statements, tables: Tables, sent: SentRows, last: int) -> Sequence[Row]:
    """Return the rows that are not there yet; raise where any row is not what it should be."""
    if not sent.rows:
        return ()
    number, before = sent.rows[0].number - 1, sent.before
    if number <= last:
        _refuse_other(statements, tables, number, before)
    for row in sent.rows:
        number += 1
        if row.number != number or not _follows(before, row):
            raise NotTaken(row.number, f"row {row.number} does not follow the row before it")
        if number <= last:
            _refuse_other(statements, tables, number, row.hash)
        before = row.hash
    return [row for row in sent.rows if row.number > last]


def _follows(before: bytes, row: Row) -> bool:
    try:
        return link(before, row.number, row.journal, row.place, row.event) == row.hash
    except PackError:
        return False


def _refuse_other(statements: Statements, tables: Tables, number: int, digest: bytes) -> None:
    """Raise for a row that is another than the one that was taken."""
    found = hash_of(statements, number, tables)
    if found not in (None, b"", digest):
        raise NotTaken(
            number,
            f"row {number} is another than the one that was sent before: the ledger of this node "
            "was changed",
        )


def _keep(statements: Statements, tables: Tables, line: bytes) -> None:
    """Keep the line of an anchor, once; raise for one that does not speak of these rows."""
    anchor = parsed(line)
    if anchor is None or not is_signed(anchor):
        raise Malformed("anchors: must be signed lines")
    if anchor.ledger_id != tables.ledger_id(statements):
        raise NotTaken(anchor.number, "an anchor is of another ledger")
    found = hash_of(statements, anchor.number, tables)
    if found is None:
        return  # of rows that are no longer here
    if found.hex() != anchor.tip:
        raise NotTaken(anchor.number, f"an anchor has another hash for row {anchor.number}")
    query = f"SELECT anchor FROM {tables.checkpoints} WHERE {tables.mine} AND number = ?"  # noqa: S608 - constants
    kept = statements.execute(query, (anchor.number,)).fetchone()
    if kept is None or line not in bytes(kept[0]).split(b"\n"):
        store(statements, line, tables)


def _reached(statements: Statements, tables: Tables) -> Reached:
    query = f"SELECT max(number) FROM {tables.checkpoints} WHERE {tables.mine}"  # noqa: S608 - constants
    [anchored] = statements.execute(query).fetchone()
    return Reached(*tip(statements, tables), anchored or 0)
