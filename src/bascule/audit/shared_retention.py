"""Retention of what replicas left that are gone: their chains go as a whole, once all is too old.

Nobody has their key any more, so nobody can sign what would be left of them. A row of the chain of
whoever removes one says so, before the first of its rows goes.
"""

from __future__ import annotations

import msgspec

from bascule.audit.events import LedgerCut
from bascule.audit.ledger_file import append, tip
from bascule.audit.retention import MOST_ROWS, Limits
from bascule.audit.shared_tables import REMOVED, SharedTables
from bascule.db.statements import Statements

_DAY = 86_400
#: Chains whose replica was last heard of so many days ago, by the database's own clock: one that
#: runs fast removes no chain of the living. Its last row must be as old.
_GONE = """SELECT c.number, c.id FROM ledger_chains c
    WHERE c.number <> ? AND c.seen_at < now() - make_interval(secs => ?) AND coalesce((
        SELECT e.timestamp FROM ledger_events e WHERE e.chain = c.number
        ORDER BY e.link DESC LIMIT 1
    ), 0) < ? ORDER BY c.number LIMIT 1"""


def cut_gone(statements: Statements, limits: Limits, now: float, tables: SharedTables) -> bool:
    """Remove a part of a chain of which everything is too old; say whether there was one."""
    if limits.max_days is None:
        return False
    age = limits.max_days * _DAY
    found = statements.execute(_GONE, (tables.own, float(age), now - age)).fetchone()
    if found is None:
        return False
    number, id = found
    gone = SharedTables(number)
    if statements.execute(REMOVED, (id,)).fetchone() is None:
        _say(statements, now, gone, id, tables)
    last = statements.execute(
        "SELECT link, number FROM ledger_events WHERE chain = ? ORDER BY link LIMIT 1 OFFSET ?",
        (number, MOST_ROWS),
    ).fetchone()
    if last is not None:
        gone.cutting(statements, last[0])
        query = "DELETE FROM ledger_events WHERE chain = ? AND link <= ?"
        statements.execute(query, (number, last[0]))
        return True
    gone.cutting(statements, tip(statements, gone)[0])
    for query in (
        "DELETE FROM ledger_events WHERE chain = ?",
        "DELETE FROM ledger_checkpoints WHERE chain = ?",
        "DELETE FROM ledger_chains WHERE number = ?",
    ):
        statements.execute(query, (number,))
    return True


def _say(
    statements: Statements, now: float, gone: SharedTables, id: str, own: SharedTables
) -> None:
    first = gone.base(statements)[0] + 1
    last, digest = tip(statements, gone)
    said = LedgerCut(
        timestamp=now,
        by="retention",
        reason="age",
        first=first,
        last=last,
        count=last - first + 1,
        tip=digest.hex(),
        chain=id,
    )
    append(statements, [(0, 0, msgspec.json.encode(said))], own)
