"""Work for nodes in a PostgreSQL that replicas share.

Whoever writes rings; how long a row has is told by the database's own clock, as replicas may differ
in theirs. The table is not logged: after a crash of the server nobody waits for what was in it, and
a draft's values are in no log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any

from bascule.control.work.rows import (
    MOST_ANSWERS,
    MOST_OF_NODE,
    MOST_OPEN,
    Progress,
    Reception,
    TooMuchWork,
    Work,
)
from bascule.db.driver import Connection
from bascule.db.postgres import Postgres, lock_key
from bascule.db.postgres_listener import Listener

CHANNEL = "bascule_works"
FORMS = (
    """CREATE UNLOGGED TABLE node_works (
        id text PRIMARY KEY, node text NOT NULL, job bytea NOT NULL, revision bigint NOT NULL,
        expires_at timestamptz NOT NULL, taken boolean NOT NULL DEFAULT false,
        finished boolean NOT NULL DEFAULT false, answers bytea[] NOT NULL DEFAULT '{}'
    )""",
)
_NOW = "clock_timestamp()"
_OPEN = f"taken AND NOT finished AND expires_at > {_NOW}"
_RING = f"SELECT pg_notify('{CHANNEL}', '')"
_SWEEP = f"DELETE FROM node_works WHERE expires_at <= {_NOW}"  # noqa: S608 - a constant
_COUNT = "SELECT count(*) AS all, count(*) FILTER (WHERE node = $1) AS own FROM node_works"
_ADD = f"""INSERT INTO node_works (id, node, job, revision, expires_at)
    VALUES ($1, $2, $3, $4, {_NOW} + make_interval(secs => $5))"""  # noqa: S608 - a constant
_WAITING = f"SELECT DISTINCT node FROM node_works WHERE NOT taken AND expires_at > {_NOW}"  # noqa: S608 - a constant
_TAKE = f"""UPDATE node_works SET taken = true
    WHERE node = ANY($1) AND NOT taken AND expires_at > {_NOW}
    RETURNING id, node, job, revision,
        extract(epoch FROM expires_at - {_NOW})::double precision AS seconds"""  # noqa: S608 - a constant
_HANDED = f"SELECT id, node FROM node_works WHERE node = ANY($1) AND {_OPEN}"  # noqa: S608 - a constant
_ANSWER = f"""UPDATE node_works SET answers = answers || $3::bytea, finished = $4
    WHERE id = $1 AND node = $2 AND {_OPEN} AND cardinality(answers) < {MOST_ANSWERS}
    RETURNING pg_notify('{CHANNEL}', '')"""  # noqa: S608 - constants
_FOREIGN = "SELECT EXISTS (SELECT FROM node_works WHERE id = $1 AND node <> $2) AS found"
_PROGRESS = """SELECT w.id, w.taken, w.answers[k.known + 1:] AS answers FROM node_works AS w
    JOIN unnest($1::text[], $2::integer[]) AS k (id, known) USING (id)"""
_WANTED = f"SELECT id FROM node_works WHERE id = ANY($1) AND {_OPEN}"  # noqa: S608 - a constant
_WITHDRAW = "DELETE FROM node_works WHERE id = $1 AND NOT taken RETURNING id"
_REMOVE = f"""WITH gone AS (DELETE FROM node_works WHERE id = ANY($1) RETURNING id)
    SELECT pg_notify('{CHANNEL}', '') FROM gone LIMIT 1"""  # noqa: S608 - a constant


class PostgresRows:
    """``WorkRows`` that replicas share. ``open`` it before use."""

    shared = True

    def __init__(
        self, postgres: Postgres, most: int = MOST_OPEN, most_of_node: int = MOST_OF_NODE
    ) -> None:
        self._postgres = postgres
        self._most = most, most_of_node

    async def open(self) -> PostgresRows:
        """Make the table, or bring an older form up to date."""
        await self._postgres.migrate("works", FORMS)
        return self

    async def add(self, work: Work) -> None:
        """Keep a piece of work; whoever adds waits for others, so that no more are open."""

        async def add(connection: Connection) -> None:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", lock_key("works"))
            await connection.execute(_SWEEP)
            found = await connection.fetchrow(_COUNT, work.node)
            if found is None or found["all"] >= self._most[0] or found["own"] >= self._most[1]:
                raise TooMuchWork
            row = work.id, work.node, work.job, work.revision, work.seconds
            await connection.execute(_ADD, *row)
            await connection.execute(_RING)

        await self._postgres.write(add)

    async def waiting(self) -> Collection[str]:
        """Return who has work."""
        return {row["node"] for row in await self._postgres.fetch(_WAITING)}

    async def take(self, nodes: Collection[str]) -> Sequence[Work]:
        """Return what waits: a row that another has just taken is not there any more."""
        found = await self._postgres.statement(_TAKE, [*nodes])
        return [
            Work(id=id, node=node, job=job, revision=revision, seconds=seconds)
            for id, node, job, revision, seconds in found
        ]

    async def handed(self, nodes: Collection[str]) -> Mapping[str, str]:
        """Return what nodes were handed and are to finish."""
        return {row["id"]: row["node"] for row in await self._postgres.fetch(_HANDED, [*nodes])}

    async def answer(self, id: str, node: str, body: bytes, *, last: bool) -> Reception:
        """Keep what a node says."""
        if await self._postgres.statement(_ANSWER, id, node, body, last):
            return "kept"
        [row] = await self._postgres.fetch(_FOREIGN, id, node)
        return "foreign" if row["found"] else "unwanted"

    async def progress(self, known: Mapping[str, int]) -> Mapping[str, Progress]:
        """Return how far works are."""
        found = await self._postgres.fetch(_PROGRESS, [*known], [*known.values()])
        return {row["id"]: Progress(row["taken"], row["answers"]) for row in found}

    async def wanted(self, ids: Collection[str]) -> Collection[str]:
        """Return those that are waited for."""
        return {row["id"] for row in await self._postgres.fetch(_WANTED, [*ids])}

    async def withdraw(self, id: str) -> bool:
        """Take a piece of work away unless it was handed out."""
        return bool(await self._postgres.statement(_WITHDRAW, id))

    async def remove(self, ids: Collection[str]) -> None:
        """Take works away; whoever handed one out hears of it."""
        await self._postgres.statement(_REMOVE, [*ids])

    async def sweep(self) -> None:
        """Take away what is over its time."""
        await self._postgres.statement(_SWEEP)

    def listening(self, ring: Callable[[], None]) -> Coroutine[Any, Any, None]:
        """Return what rings when another replica wrote something."""
        return Listener(self._postgres, CHANNEL, lambda _: ring()).run()
