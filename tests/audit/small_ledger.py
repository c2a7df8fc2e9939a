"""A small ledger to tamper with: rows, some of them anchored, and the key that signed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from bascule.audit.anchors import KEY_NAME, Anchors
from bascule.audit.chain import Row, link
from bascule.audit.checkpoints import checkpoint
from bascule.audit.events import CallEvent, CallIntent, TokenEnded
from bascule.audit.ledger_file import MIGRATIONS, append
from bascule.db.sqlite import APPLICATION_ID

LEDGER_ID = "led-1"
ROWS = 12
#: The rows at which there is an anchor.
ANCHORED = (3, 7, 9)
PROTECTED = ANCHORED[-1]


def event(number: int) -> bytes:
    """Return the bytes of one of several kinds of event."""
    who = ("task", "ada", f"tok-{number}", "fs", "read", 7)
    if number % 4 == 0:
        ended = TokenEnded(timestamp=float(number), by="ada", token_id=f"tok-{number}")
        return msgspec.json.encode(ended)
    if number % 2:
        intent = CallIntent(float(number), f"r{number}", "s", *who, "digest", False, None)
        return msgspec.json.encode(intent)
    result = ("ok", None, "", "", "", 1.5, 20, {"path": "str"}, "digest", None)
    return msgspec.json.encode(CallEvent(float(number), f"r{number - 1}", "s", *who, *result))


def empty(path: str | Path = ":memory:") -> sqlite3.Connection:
    """Return a ledger without rows."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    for migration in MIGRATIONS:
        for statement in migration:
            assert isinstance(statement, str)
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("INSERT INTO meta VALUES ('ledger_id', ?)", (LEDGER_ID,))
    return connection


def add(connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """Append events, from a journal."""
    append(connection, [(1, number, event(number)) for number in numbers])


def anchors_in(folder: Path) -> Anchors:
    """Return the anchors that are kept in a folder."""
    return Anchors(folder / "anchors.jsonl", folder / KEY_NAME, LEDGER_ID)


def filled(
    connection: sqlite3.Connection, folder: Path, anchored: Iterable[int] = ANCHORED
) -> Anchors:
    """Fill a ledger, with checkpoints, and return its anchors."""
    anchors, number = anchors_in(folder), 0
    for last in anchored:
        add(connection, range(number + 1, last + 1))
        assert checkpoint(connection, anchors, float(last))
        number = last
    add(connection, range(number + 1, ROWS + 1))
    return anchors


def rows(connection: sqlite3.Connection) -> list[Row]:
    """Return all rows."""
    query = "SELECT number, journal, place, body, hash FROM events ORDER BY number"
    return [Row(*found) for found in connection.execute(query)]


def lines(folder: Path) -> list[bytes]:
    """Return the lines of the anchor file."""
    return (folder / "anchors.jsonl").read_bytes().splitlines()


def chained(before: bytes, number: int, events: Iterable[tuple[int, int, bytes]]) -> Iterator[Row]:
    """Yield rows for events (journal, place, bytes) after the row with this number and hash."""
    for journal, place, event in events:
        number += 1
        before = link(before, number, journal, place, event)
        yield Row(number, journal, place, event, before)
