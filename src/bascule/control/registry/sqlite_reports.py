"""Nodes' reports in tables beside those of the SQLite store.

Every report is a turn; a row has the turn that wrote it. What is gone stays as a row without a
text, so that whoever reads on hears of it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from bascule.control.registry.nodes import Heard, digest_of, node_of, texts_of, word_of
from bascule.control.registry.status import NodeReport
from bascule.db.sqlite import Database

#: In place of those of the first form: whoever is alive says all of it again.
TABLES = (
    "DROP TABLE server_status",
    "DROP TABLE nodes",
    """CREATE TABLE node_reports (
        node TEXT PRIMARY KEY, revision INTEGER NOT NULL, state TEXT, at REAL NOT NULL,
        digest TEXT NOT NULL, turn INTEGER NOT NULL
    ) STRICT""",
    """CREATE TABLE node_servers (
        node TEXT NOT NULL, server_id TEXT NOT NULL, body TEXT, at REAL NOT NULL,
        turn INTEGER NOT NULL, PRIMARY KEY (node, server_id)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX node_reports_by_turn ON node_reports (turn)",
    "CREATE INDEX node_servers_by_turn ON node_servers (turn)",
)
#: Why a node is degraded.
REASONS = ("ALTER TABLE node_reports ADD COLUMN reason TEXT",)
_NEXT = "SELECT coalesce(max(turn), 0) + 1 FROM node_reports"
_AGAIN = """UPDATE node_reports SET revision = ?, state = ?, at = ?, reason = ?, turn = ?
    WHERE node = ? AND digest = ?"""
_NODE = """INSERT OR REPLACE INTO node_reports (node, revision, state, at, reason, digest, turn)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
_KNOWN = "SELECT server_id, body FROM node_servers WHERE node = ? AND body IS NOT NULL"
_WORD = "INSERT OR REPLACE INTO node_servers VALUES (?, ?, ?, ?, ?)"


class SqliteReports:
    """``NodeReports`` in the database of a ``SqliteStore``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def report(self, report: NodeReport) -> None:
        """Keep what a node says: one row where it says the same as before."""
        texts = texts_of(report)
        await self._database.write(lambda c: _keep(c, report, report.state, texts))

    async def forget_node(self, node: str, at: float) -> None:
        """Drop what a node said."""
        nothing = NodeReport(node=node, at=at)
        await self._database.write(lambda c: _keep(c, nothing, None, {}))

    async def note(self, replica: str, nodes: Sequence[str], at: float) -> None:
        """Keep nothing: one process alone serves a file, and there is no other to tell."""

    async def heard(self, since: int) -> Heard:
        """Return what was written after a turn."""
        return await self._database.read(lambda c: _heard(c, since))

    async def forget_before(self, at: float) -> None:
        """Drop what is old."""
        await self._database.write(lambda c: _forget(c, at))


def _keep(
    connection: sqlite3.Connection, report: NodeReport, state: str | None, texts: Mapping[str, str]
) -> None:
    node, digest = report.node, digest_of(texts)
    [turn] = connection.execute(_NEXT).fetchone()
    said = (report.revision, state, report.at, report.reason)
    if connection.execute(_AGAIN, (*said, turn, node, digest)).rowcount:
        return
    connection.execute(_NODE, (node, *said, digest, turn))
    known: dict[str, str] = dict(connection.execute(_KNOWN, (node,)).fetchall())
    gone = dict.fromkeys(known.keys() - texts.keys())
    news = {server: text for server, text in texts.items() if known.get(server) != text}
    rows = [(node, server, text, report.at, turn) for server, text in {**news, **gone}.items()]
    connection.executemany(_WORD, rows)


def _heard(connection: sqlite3.Connection, since: int) -> Heard:
    [following] = connection.execute(_NEXT).fetchone()
    whole = not since or following <= since
    after = 0 if whole else since
    nodes = connection.execute(
        "SELECT node, revision, state, at, reason FROM node_reports WHERE turn > ?", (after,)
    )
    words = connection.execute(
        "SELECT node, server_id, body FROM node_servers WHERE turn > ? ORDER BY node, server_id",
        (after,),
    )
    return Heard(
        place=following - 1,
        nodes={row[0]: node_of(*row) for row in nodes},
        words=[word_of(*row) for row in words],
        whole=whole,
    )


def _forget(connection: sqlite3.Connection, at: float) -> None:
    # The newest turn stays, for the next one is counted from it.
    connection.execute(
        """DELETE FROM node_reports WHERE at < ?
            AND turn < (SELECT max(turn) FROM node_reports)""",
        (at,),
    )
    connection.execute(
        """DELETE FROM node_servers WHERE body IS NULL AND at < ?
            OR node NOT IN (SELECT node FROM node_reports)""",
        (at,),
    )
