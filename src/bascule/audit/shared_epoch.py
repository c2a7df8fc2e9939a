"""Whether the database of several replicas is still the one whose approvals were decided.

A failover or a restore may forget that an approval was used. Which server, timeline, database and
table it is tells most of that; where one of these may not be asked, the others must do. What a
replica itself has seen tells the rest: a step that is not there any more, a row of its own chain.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from bascule.audit.replica import Replica
from bascule.db.statements import Statements

logger = logging.getLogger("bascule.ledger")
#: What tells a database, and the functions that one must be allowed to call for that.
_PARTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "server": (
        "(SELECT system_identifier::text FROM pg_control_system())",
        ("pg_control_system()",),
    ),
    "timeline": (
        "left(pg_walfile_name(pg_current_wal_lsn()), 8)",
        ("pg_walfile_name(pg_lsn)", "pg_current_wal_lsn()"),
    ),
    "database": ("(SELECT oid::text FROM pg_database WHERE datname = current_database())", ()),
    "table": ("'ledger_epochs'::regclass::oid::text", ()),
}
#: What a role must be allowed to call so that no failover goes unnoticed.
FUNCTIONS = tuple(function for _, functions in _PARTS.values() for function in functions)
_LAST = "SELECT id, identity FROM ledger_epochs ORDER BY number DESC LIMIT 1"


class SharedEpoch:
    """The epoch of the approvals that replicas share; any write may find that it is over."""

    reason = "the database is another one now, or went back: a failover, or a restore"
    always = True

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._allowed: tuple[str, ...] | None = None
        #: The epoch as of the write under way.
        self._current: str | None = None

    def renew(self, statements: Statements, steps: int) -> bool:
        """Begin another epoch where the database is not what it was; say if one was before it."""
        identity = self._identity(statements)
        last = statements.execute(_LAST).fetchone()
        if last is not None and last[0] == self._current != self._replica.known.epoch:
            return False  # it began in this very write
        change = "the first" if last is None else self._change(statements, last, identity, steps)
        if last is not None and change is None:
            self._current = last[0]
            return False
        self._current = secrets.token_hex(8)
        if last is not None:
            logger.error("approvals begin another epoch: %s", change)
        statements.execute(
            "INSERT INTO ledger_epochs (id, identity, reason) VALUES (?, ?, ?)",
            (self._current, msgspec.json.encode(identity).decode(), change),
        )
        return last is not None

    def mark(self, steps: int) -> None:
        """Know, after a commit, how many steps there are now."""
        known = self._replica.known
        new = replace(known, epoch=self._current, steps=steps, lost=False)
        if new != known:
            self._replica.learn(new)

    def close(self) -> None:
        """Do nothing: what is known is the ledger's."""

    def _change(
        self, statements: Statements, last: tuple[str, str], identity: dict[str, str], steps: int
    ) -> str | None:
        """Say what shows that this is not the database that it was."""
        id, was = last[0], msgspec.json.decode(last[1], type=dict[str, str])
        for part, value in identity.items():
            if was.get(part, value) != value:
                return f"the {part} is {value}, and was {was[part]}"
        known = self._replica.now_known
        if known.epoch is None:
            return None
        if known.epoch != id:
            query = "SELECT 1 FROM ledger_epochs WHERE id = ?"
            there = statements.execute(query, (known.epoch,)).fetchone()
            return None if there else f"the epoch {known.epoch} is not there any more"
        if steps < known.steps:
            return f"there are {steps} steps, and were {known.steps}"
        return "rows of this replica are not there any more" if known.lost else None

    def _identity(self, statements: Statements) -> dict[str, str]:
        if self._allowed is None:
            self._allowed = _allowed(statements)
        words = ", ".join(_PARTS[part][0] for part in self._allowed)
        found = statements.execute(f"SELECT {words}").fetchone()
        return dict(zip(self._allowed, found, strict=True))


def _allowed(statements: Statements) -> tuple[str, ...]:
    """Return what may be asked here; say what may not."""
    allowed: list[str] = []
    for part, (_, functions) in _PARTS.items():
        query = "SELECT has_function_privilege(?, 'EXECUTE')"
        missing = [one for one in functions if not statements.execute(query, (one,)).fetchone()[0]]
        if missing:
            logger.warning(
                "whether PostgreSQL failed over cannot be told by its %s: the role may not call %s",
                part,
                " and ".join(missing),
            )
        else:
            allowed.append(part)
    return tuple(allowed)
