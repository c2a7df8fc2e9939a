"""Nodes' reports on PostgreSQL: any replica takes any node's, and none of them rings.

A row has the number of the transaction that wrote it. Whoever reads on asks for all from the
oldest transaction that was under way when it read last: some comes twice, nothing is missed, and
no report waits for another. A report that is lost is repeated soon, so none waits for the disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bascule.control.registry.nodes import Heard, digest_of, node_of, texts_of, word_of
from bascule.control.registry.offload import apart
from bascule.control.registry.status import NodeReport
from bascule.db.driver import Connection, Row
from bascule.db.postgres import Postgres

_TRANSACTION = "(pg_current_xact_id()::text::bigint)"
FORMS = (
    f"""CREATE TABLE node_reports (
        node text PRIMARY KEY, revision bigint NOT NULL, state text,
        at double precision NOT NULL, digest text NOT NULL,
        written bigint NOT NULL DEFAULT {_TRANSACTION}
    );
    CREATE TABLE node_servers (
        node text NOT NULL, server_id text NOT NULL, body text, at double precision NOT NULL,
        written bigint NOT NULL DEFAULT {_TRANSACTION}, PRIMARY KEY (node, server_id)
    );
    CREATE INDEX node_reports_written ON node_reports (written);
    CREATE INDEX node_servers_written ON node_servers (written);""",
    # One row a replica, for all the nodes that follow it: it is written every few seconds.
    f"""CREATE TABLE node_streams (
        replica text PRIMARY KEY, nodes text[] NOT NULL, at double precision NOT NULL,
        written bigint NOT NULL DEFAULT {_TRANSACTION}
    )""",
    # Why a node is degraded.
    "ALTER TABLE node_reports ADD COLUMN reason text",
)
_UNHURRIED = "SET LOCAL synchronous_commit = off"
_AGAIN = f"""UPDATE node_reports SET revision = $2, state = $3, at = $4, reason = $6,
    written = {_TRANSACTION} WHERE node = $1 AND digest = $5"""  # noqa: S608 - a constant
# The node's row is written first: two replicas that hear one node at once take turns at it.
_NODE = f"""INSERT INTO node_reports (node, revision, state, at, digest, reason)
    VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (node) DO UPDATE SET
    revision = excluded.revision, state = excluded.state, at = excluded.at,
    reason = excluded.reason, digest = excluded.digest, written = {_TRANSACTION}"""  # noqa: S608 - a constant
_WORDS = f"""INSERT INTO node_servers SELECT $1, coalesce(said.server_id, known.server_id),
        said.body, $4
    FROM unnest($2::text[], $3::text[]) AS said (server_id, body)
    FULL JOIN (SELECT server_id, body FROM node_servers WHERE node = $1) AS known
        USING (server_id)
    WHERE said.body IS DISTINCT FROM known.body
    ON CONFLICT (node, server_id) DO UPDATE SET
        body = excluded.body, at = excluded.at, written = {_TRANSACTION}"""  # noqa: S608 - a constant
_NOTE = f"""INSERT INTO node_streams VALUES ($1, $2, $3) ON CONFLICT (replica) DO UPDATE SET
    nodes = excluded.nodes, at = excluded.at, written = {_TRANSACTION}"""  # noqa: S608 - a constant
_OLDEST = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
_NODES = "SELECT node, revision, state, at, reason FROM node_reports WHERE written >= $1"
_SAID = "SELECT node, server_id, body FROM node_servers WHERE written >= $1"
_NOTES = "SELECT at, nodes FROM node_streams WHERE written >= $1"


class PostgresReports:
    """``NodeReports`` in a database that replicas share. ``open`` it before use."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def open(self) -> PostgresReports:
        """Make the tables, or bring an older form up to date."""
        await self._postgres.migrate("reports", FORMS)
        return self

    async def report(self, report: NodeReport) -> None:
        """Keep what a node says: one row where it says the same as before."""
        await self._keep(report, report.state, texts_of(report))

    async def forget_node(self, node: str, at: float) -> None:
        """Drop what a node said."""
        await self._keep(NodeReport(node=node, at=at), None, {})

    async def _keep(self, report: NodeReport, state: str | None, texts: Mapping[str, str]) -> None:
        of_servers = digest_of(texts)
        row = (report.node, report.revision, state, report.at, of_servers, report.reason)

        async def work(connection: Connection) -> None:
            await connection.execute(_UNHURRIED)
            if await connection.execute(_AGAIN, *row) != "UPDATE 0":
                return
            await connection.execute(_NODE, *row)
            said = ([*texts], [*texts.values()])
            await connection.execute(_WORDS, report.node, *said, report.at)

        await self._postgres.write(work)

    async def note(self, replica: str, nodes: Sequence[str], at: float) -> None:
        """Keep which nodes follow a replica, in one statement."""

        async def work(connection: Connection) -> None:
            await connection.execute(_UNHURRIED)
            await connection.execute(_NOTE, replica, nodes, at)

        await self._postgres.write(work)

    async def heard(self, since: int) -> Heard:
        """Return what was written since a transaction."""

        async def work(connection: Connection) -> tuple[int, bool, list[list[Row]]]:
            oldest: int = await connection.fetchval(_OLDEST)
            whole = not since or oldest < since  # another database, or what one was before
            after = 0 if whole else since
            found = [await connection.fetch(one, after) for one in (_NODES, _SAID, _NOTES)]
            return oldest, whole, found

        place, whole, found = await self._postgres.read(work)
        return await apart(len(found[1]), lambda: _read(place, *found, whole=whole))

    async def forget_before(self, at: float) -> None:
        """Drop what is old."""

        async def work(connection: Connection) -> None:
            await connection.execute("DELETE FROM node_reports WHERE at < $1", at)
            await connection.execute("DELETE FROM node_streams WHERE at < $1", at)
            await connection.execute(
                "DELETE FROM node_servers AS s WHERE body IS NULL AND at < $1 OR NOT EXISTS"
                " (SELECT FROM node_reports AS n WHERE n.node = s.node)",
                at,
            )

        await self._postgres.write(work)


def _read(
    place: int, nodes: list[Row], words: list[Row], notes: list[Row], *, whole: bool
) -> Heard:
    return Heard(
        place=place,
        nodes={row["node"]: node_of(*row) for row in nodes},
        words=[word_of(*row) for row in words],
        notes=[(row["at"], row["nodes"]) for row in notes],
        whole=whole,
    )
