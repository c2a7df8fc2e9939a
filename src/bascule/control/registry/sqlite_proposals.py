"""Accepted pairs and proposals in the tables of the SQLite store.

Below: sqlite3. Above: ``sqlite_store.py`` runs each of these in a transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from bascule.control.registry.kinds import body_of, record_of
from bascule.control.registry.store import MAX_PROPOSALS, Key, Proposal
from bascule.policy.pairs import Pair

TABLES = (
    "CREATE TABLE pairs (body TEXT PRIMARY KEY) STRICT, WITHOUT ROWID",
    """CREATE TABLE proposals (
        number INTEGER PRIMARY KEY, kind TEXT NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL,
        base INTEGER NOT NULL, actor TEXT NOT NULL, at REAL NOT NULL, UNIQUE (kind, id)
    ) STRICT""",
)


def kept_pairs(connection: sqlite3.Connection) -> frozenset[Pair]:
    """Return the pairs that are kept."""
    rows = connection.execute("SELECT body FROM pairs").fetchall()
    return frozenset(msgspec.json.decode(body, type=Pair) for (body,) in rows)


def keep_pairs(connection: sqlite3.Connection, pairs: Iterable[Pair]) -> None:
    """Keep pairs."""
    connection.executemany("INSERT OR IGNORE INTO pairs VALUES (?)", _bodies(pairs))


def forget_pairs(connection: sqlite3.Connection, pairs: Iterable[Pair]) -> None:
    """Keep pairs no longer."""
    connection.executemany("DELETE FROM pairs WHERE body = ?", _bodies(pairs))


def _bodies(pairs: Iterable[Pair]) -> list[tuple[str]]:
    return [(msgspec.json.encode(pair).decode(),) for pair in pairs]


def propose(connection: sqlite3.Connection, proposals: Sequence[Proposal]) -> None:
    """Keep proposals, and no more of them than there may be."""
    for one in proposals:
        withdraw(connection, one.key)
        connection.execute(
            "INSERT INTO proposals (kind, id, body, base, actor, at) VALUES (?, ?, ?, ?, ?, ?)",
            (one.kind, one.id, body_of(one.record), one.base, one.actor, one.at),
        )
    connection.execute(
        """DELETE FROM proposals WHERE number NOT IN (
            SELECT number FROM proposals ORDER BY number DESC LIMIT ?)""",
        (MAX_PROPOSALS,),
    )


def proposals(connection: sqlite3.Connection) -> tuple[Proposal, ...]:
    """Return what is proposed, the oldest first."""
    query = "SELECT kind, id, body, base, actor, at FROM proposals ORDER BY number"
    return tuple(
        Proposal(kind=kind, id=key, record=record_of(kind, body)[0], base=base, actor=actor, at=at)
        for kind, key, body, base, actor, at in connection.execute(query).fetchall()
    )


def withdraw(connection: sqlite3.Connection, key: Key) -> None:
    """Forget what is proposed for a record."""
    connection.execute("DELETE FROM proposals WHERE kind = ? AND id = ?", key)
