"""Accepted pairs and proposals in the tables of the PostgreSQL store, which inherits them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from bascule.control.registry.kinds import body_of, record_of
from bascule.control.registry.store import MAX_PROPOSALS, Key, Proposal
from bascule.db.driver import Connection
from bascule.db.postgres import Postgres, lock_key
from bascule.policy.pairs import Pair

#: A pair may be longer than a key of PostgreSQL's may be.
TABLES = """CREATE TABLE registry_pairs (digest bytea PRIMARY KEY, body text NOT NULL);
    CREATE TABLE registry_proposals (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text NOT NULL,
        id text NOT NULL, body text NOT NULL, base bigint NOT NULL, actor text NOT NULL,
        at double precision NOT NULL, UNIQUE (kind, id)
    );
    """
_PROPOSING = lock_key("proposing to the registry")
_PROPOSE = """INSERT INTO registry_proposals (kind, id, body, base, actor, at)
    VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (kind, id) DO UPDATE SET number = DEFAULT,
        body = excluded.body, base = excluded.base, actor = excluded.actor, at = excluded.at"""
_TRIM = """DELETE FROM registry_proposals WHERE number NOT IN (
    SELECT number FROM registry_proposals ORDER BY number DESC LIMIT $1)"""


class PostgresProposals:
    """What a store keeps for ``acceptance.py``."""

    _postgres: Postgres

    async def kept_pairs(self) -> frozenset[Pair]:
        """Return the accepted pairs that were kept when records lost them."""
        rows = await self._postgres.fetch("SELECT body FROM registry_pairs")
        return frozenset(msgspec.json.decode(row[0], type=Pair) for row in rows)

    async def keep_pairs(self, pairs: Iterable[Pair]) -> None:
        """Keep pairs beyond the records that have them."""
        bodies = [msgspec.json.encode(pair) for pair in pairs]
        await self._postgres.statement(
            "INSERT INTO registry_pairs SELECT * FROM unnest($1::bytea[], $2::text[])"
            " ON CONFLICT DO NOTHING",
            [_digest(body) for body in bodies],
            [body.decode() for body in bodies],
        )

    async def forget_pairs(self, pairs: Iterable[Pair]) -> None:
        """Keep pairs no longer."""
        digests = [_digest(msgspec.json.encode(pair)) for pair in pairs]
        await self._postgres.statement(
            "DELETE FROM registry_pairs WHERE digest = ANY ($1::bytea[])", digests
        )

    async def propose(self, proposals: Sequence[Proposal]) -> None:
        """Keep proposals, each in place of an older one, and no more of them than there may be."""
        rows = [(p.kind, p.id, body_of(p.record), p.base, p.actor, p.at) for p in proposals]

        async def work(connection: Connection) -> None:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _PROPOSING)
            await connection.executemany(_PROPOSE, rows)
            await connection.execute(_TRIM, MAX_PROPOSALS)

        await self._postgres.write(work)

    async def proposals(self) -> tuple[Proposal, ...]:
        """Return what is proposed, the oldest first."""
        query = "SELECT kind, id, body, base, actor, at FROM registry_proposals ORDER BY number"
        return tuple(
            Proposal(kind=kind, id=key, record=record_of(kind, body)[0], base=base, actor=by, at=at)
            for kind, key, body, base, by, at in await self._postgres.fetch(query)
        )

    async def withdraw(self, key: Key) -> None:
        """Forget what is proposed for a record."""
        await self._postgres.statement(
            "DELETE FROM registry_proposals WHERE kind = $1 AND id = $2", *key
        )


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()
