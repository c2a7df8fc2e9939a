"""Accepted pairs and proposals in the tables of the SQLite store, which inherits them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from bascule.control.registry.kinds import body_of, record_of
from bascule.control.registry.store import MAX_PROPOSALS, Key, Proposal
from bascule.db.sqlite import Database
from bascule.policy.pairs import Pair

TABLES = (
    "CREATE TABLE pairs (body TEXT PRIMARY KEY) STRICT, WITHOUT ROWID",
    """CREATE TABLE proposals (
        number INTEGER PRIMARY KEY, kind TEXT NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL,
        base INTEGER NOT NULL, actor TEXT NOT NULL, at REAL NOT NULL, UNIQUE (kind, id)
    ) STRICT""",
)
_WITHDRAW = "DELETE FROM proposals WHERE kind = ? AND id = ?"


class SqliteProposals:
    """What a store keeps for ``acceptance.py``."""

    _database: Database

    async def kept_pairs(self) -> frozenset[Pair]:
        """Return the accepted pairs that were kept when records lost them."""
        rows = await self._database.read(lambda c: c.execute("SELECT body FROM pairs").fetchall())
        return frozenset(msgspec.json.decode(body, type=Pair) for (body,) in rows)

    async def keep_pairs(self, pairs: Iterable[Pair]) -> None:
        """Keep pairs beyond the records that have them."""
        await self._for_each(pairs, "INSERT OR IGNORE INTO pairs VALUES (?)")

    async def forget_pairs(self, pairs: Iterable[Pair]) -> None:
        """Keep pairs no longer."""
        await self._for_each(pairs, "DELETE FROM pairs WHERE body = ?")

    async def _for_each(self, pairs: Iterable[Pair], statement: str) -> None:
        bodies = [(msgspec.json.encode(pair).decode(),) for pair in pairs]
        await self._database.write(lambda c: c.executemany(statement, bodies) and None)

    async def propose(self, proposals: Sequence[Proposal]) -> None:
        """Keep proposals, each in place of an older one, and no more of them than there may be."""
        await self._database.write(lambda c: _propose(c, proposals))

    async def proposals(self) -> tuple[Proposal, ...]:
        """Return what is proposed, the oldest first."""
        query = "SELECT kind, id, body, base, actor, at FROM proposals ORDER BY number"
        return tuple(
            Proposal(kind=kind, id=key, record=record_of(kind, body)[0], base=base, actor=by, at=at)
            for kind, key, body, base, by, at in await self._database.read(
                lambda c: c.execute(query).fetchall()
            )
        )

    async def withdraw(self, key: Key) -> None:
        """Forget what is proposed for a record."""
        await self._database.write(lambda c: c.execute(_WITHDRAW, key) and None)


def _propose(connection: sqlite3.Connection, proposals: Sequence[Proposal]) -> None:
    for one in proposals:
        connection.execute(_WITHDRAW, one.key)
        connection.execute(
            "INSERT INTO proposals (kind, id, body, base, actor, at) VALUES (?, ?, ?, ?, ?, ?)",
            (one.kind, one.id, body_of(one.record), one.base, one.actor, one.at),
        )
    connection.execute(
        """DELETE FROM proposals WHERE number NOT IN (
            SELECT number FROM proposals ORDER BY number DESC LIMIT ?)""",
        (MAX_PROPOSALS,),
    )
