"""Events of every kind, and a real ``ledger.db`` that has them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import msgspec

from bascule.audit.events import (
    ApprovalMoved,
    CallEvent,
    CallIntent,
    Event,
    SessionOpened,
    SessionRefusal,
    TokenMade,
)
from bascule.audit.ledger_file import FILE_NAME, MIGRATIONS, append
from bascule.db.sqlite import Database
from bascule.model.approval import ApprovalState
from bascule.model.code import CallStatus
from tests.audit import small_ledger

T = TypeVar("T")
#: When everything here begins; a second passes from one event to the next, where nobody says more.
START = 1_700_000_000.0
#: An event and the number of the journal that it came from.
Written = tuple[Event, int]


def intent(
    request_id: str,
    *,
    timestamp: float = START,
    server: str = "fs",
    tool: str = "read",
    caller: str | None = "ann",
    task: str | None = "review",
    token_id: str | None = "t1",  # noqa: S107 - an id
    approval: str | None = None,
    person: str | None = None,
) -> CallIntent:
    session = request_id.rpartition("-")[0]
    return CallIntent(
        timestamp, request_id, session, task, caller, token_id, server, tool, 3, "d1",
        approval is not None, approval, person,
    )  # fmt: skip


def outcome(
    request_id: str,
    status: CallStatus = "ok",
    code: str | None = None,
    *,
    timestamp: float = START,
    server: str = "fs",
    tool: str = "read",
    caller: str | None = "ann",
    task: str | None = "review",
    token_id: str | None = "t1",  # noqa: S107 - an id
    approval: str | None = None,
    person: str | None = None,
) -> CallEvent:
    session = request_id.rpartition("-")[0]
    return CallEvent(
        timestamp, request_id, session, task, caller, token_id, server, tool, 3, status, code,
        "", "", "", 12.5, 40, {"path": "<string>"}, "d1", approval, person=person,
    )  # fmt: skip


def opened(session: str = "s1", *, timestamp: float = START, caller: str = "ann") -> SessionOpened:
    return SessionOpened(
        timestamp=timestamp,
        session_id=session,
        task_id="review",
        caller=caller,
        token_id="t1",
        revision=3,
        mcp_effective_servers=("fs",),
        tool_count=None,
        decisions=(),
        warnings=(),
    )


def refused(*, timestamp: float = START, server: str = "git") -> SessionRefusal:
    return SessionRefusal(
        timestamp=timestamp,
        session_id=None,
        task_id="review",
        caller="ann",
        token_id="t1",
        revision=3,
        server_id=server,
        reason="unknown_server",
        message="there is no such server",
    )


def token_made(*, timestamp: float = START, name: str = "wall") -> TokenMade:
    return TokenMade(
        timestamp=timestamp,
        by="setup",
        token_id="t9",
        name=name,
        role="viewer",
        task_id=None,
        expires_at=None,
    )


def approval_step(
    state: ApprovalState,
    request_id: str = "s1-1",
    *,
    approval: str = "apr-1",
    by: str = "ann",
    self_approved: bool = False,
    timestamp: float = START,
) -> ApprovalMoved:
    return ApprovalMoved(
        timestamp=timestamp,
        approval_id=approval,
        state=state,
        task_id="review",
        caller="ann",
        token_id="t1",
        person=None,
        server_id="fs",
        tool_name="delete",
        session_id="s1",
        request_id=request_id,
        revision=3,
        arguments_digest="d1",
        definition_digest="d2",
        rule="always",
        expires_at=START + 60,
        by=by,
        by_token_id=None,
        by_person=None,
        reason="",
        self_approved=self_approved,
    )


def placed(events: Iterable[Event | Written]) -> list[tuple[int, int, bytes]]:
    """Return events as they are appended; those that say nothing are of journal 1."""
    places: dict[int, int] = {}
    rows: list[tuple[int, int, bytes]] = []
    for one in events:
        event, journal = one if isinstance(one, tuple) else (one, 1)
        places[journal] = places.get(journal, 0) + 1
        rows.append((journal, places[journal], msgspec.json.encode(event)))
    return rows


def journal_id(number: int) -> str:
    return f"{number:016x}"


def _add(connection: sqlite3.Connection, events: Iterable[Event | Written]) -> None:
    rows = placed(events)
    numbers = sorted({journal for journal, _, _ in rows} - {0})
    connection.executemany(
        "INSERT OR IGNORE INTO journals VALUES (?, ?, 0, 1, 0)",
        [(number, journal_id(number)) for number in numbers],
    )
    append(connection, rows)


class Held:
    """A ledger in memory, read as the one of a file is."""

    def __init__(self, events: Iterable[Event | Written]) -> None:
        self.connection = small_ledger.empty()
        _add(self.connection, events)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return work(self.connection)

    def close(self) -> None:
        self.connection.close()


def cut(connection: sqlite3.Connection, last: int) -> None:
    """Take the first rows away, up to this one, as retention does."""
    [found] = connection.execute("SELECT hash FROM events WHERE number = ?", (last,)).fetchone()
    connection.execute("DELETE FROM events WHERE number <= ?", (last,))
    rows = [("base_number", str(last)), ("base_hash", found.hex())]
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)


async def write_ledger(folder: Path, events: Sequence[Event | Written]) -> Path:
    """Make the ``ledger.db`` of a data directory, with these events."""
    path = folder / FILE_NAME
    database = Database(path)
    await database.open(MIGRATIONS)
    await database.write(lambda connection: _add(connection, events))
    await database.close()
    return path


def spoil(path: Path, number: int, body: bytes) -> None:
    """Write something else into a row, as no process of ours does."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE events SET body = ? WHERE number = ?", (body, number))
