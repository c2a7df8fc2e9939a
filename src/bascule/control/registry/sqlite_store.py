"""The store on SQLite: one file, durable before it answers.

``changes`` has every version of every object above the floor, and at the floor the last one of
each, so that any revision that is kept can be read back whole. ``objects`` has what is current.
``revisions`` has the marks, and ``meta`` that of the floor.
``bascule.db.sqlite`` runs each closure as one transaction.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, closing, nullcontext, suppress
from pathlib import Path
from typing import Self, TypeAlias

from msgspec.structs import replace

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.control.registry.errors import Compacted
from bascule.control.registry.history_clock import SteadyClock
from bascule.control.registry.kinds import record_of
from bascule.control.registry.sqlite_assignments import TABLES as ASSIGNMENT_TABLES
from bascule.control.registry.sqlite_assignments import SqliteAssignments
from bascule.control.registry.sqlite_proposals import TABLES, SqliteProposals
from bascule.control.registry.sqlite_reports import REASONS, SqliteReports
from bascule.control.registry.sqlite_reports import TABLES as REPORT_TABLES
from bascule.control.registry.store import (
    Author,
    Change,
    Current,
    Entry,
    Head,
    Key,
    Retention,
    Stored,
    View,
    Write,
    Writer,
    change_of,
    effective_writes,
    new_mark,
    refuse_moved,
    refuse_unreachable,
)
from bascule.db.errors import StoreUnavailable
from bascule.db.sqlite import (
    Commit,
    Database,
    Migration,
    Synchronous,
    backup,
    migrate,
    plain_commit,
    read_only,
)
from bascule.model.kinds import Kind
from bascule.model.snapshot import Position

MIGRATIONS: tuple[Migration, ...] = (
    (
        """CREATE TABLE meta (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            store_id TEXT NOT NULL, revision INTEGER NOT NULL, floor INTEGER NOT NULL
        ) STRICT""",
        "INSERT INTO meta VALUES (1, lower(hex(randomblob(8))), 0, 0)",
        """CREATE TABLE objects (
            kind TEXT NOT NULL, id TEXT NOT NULL, revision INTEGER NOT NULL,
            updated_at REAL NOT NULL, owner TEXT, body TEXT NOT NULL, PRIMARY KEY (kind, id)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE revisions (
            revision INTEGER PRIMARY KEY, at REAL NOT NULL, actor TEXT NOT NULL, note TEXT NOT NULL
        ) STRICT""",
        """CREATE TABLE changes (
            kind TEXT NOT NULL, id TEXT NOT NULL, revision INTEGER NOT NULL,
            updated_at REAL NOT NULL, owner TEXT, body TEXT, PRIMARY KEY (kind, id, revision)
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX changes_by_revision ON changes (revision)",
        """CREATE TABLE nodes (
            node TEXT PRIMARY KEY, revision INTEGER NOT NULL, state TEXT NOT NULL, at REAL NOT NULL
        ) STRICT""",
        """CREATE TABLE server_status (
            node TEXT NOT NULL REFERENCES nodes (node) ON DELETE CASCADE,
            server_id TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (node, server_id)
        ) STRICT""",
    ),
    TABLES,
    (
        "ALTER TABLE revisions ADD COLUMN mark TEXT NOT NULL DEFAULT ''",
        "UPDATE revisions SET mark = lower(hex(randomblob(8)))",
        "ALTER TABLE meta ADD COLUMN floor_mark TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE meta ADD COLUMN predecessor TEXT NOT NULL DEFAULT ''",
        "UPDATE meta SET floor_mark = lower(hex(randomblob(8)))",
    ),
    REPORT_TABLES,
    REASONS,
    ASSIGNMENT_TABLES,
)
Row: TypeAlias = tuple[Kind, str, str, int, float, str | None]
#: How soon a file that refused a write is tried again.
_HEAL_SECONDS = 2.0
_OBJECT = "kind, id, body, revision, updated_at, owner"
_AT = f"""SELECT {_OBJECT} FROM changes AS c WHERE body IS NOT NULL AND revision = (
    SELECT max(revision) FROM changes WHERE kind = c.kind AND id = c.id AND revision <= ?)"""  # noqa: S608 - the columns are a constant


class SqliteStore(SqliteProposals):
    """A ``Store`` in one file. ``open`` it before use."""

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Clock = SYSTEM_CLOCK,
        synchronous: Synchronous = "FULL",
        commit: Commit = plain_commit,
    ) -> None:
        self._clock = clock
        self._age = SteadyClock(clock)
        self._database = Database(path, synchronous=synchronous, commit=commit)
        self._database.advice = "it goes on by itself when the disk has room"
        self._listeners: list[Callable[[Change], None]] = []
        #: What nodes say, in the same file.
        self.reports = SqliteReports(self._database)
        #: What they are assigned, too.
        self.assignments = SqliteAssignments(self._database)

    async def open(self) -> Self:
        """Open the file, or make it; bring an older form up to date, after a backup."""
        await self._database.open(MIGRATIONS)
        return self

    @property
    def refusal(self) -> str | None:
        """Say why writes are refused now, if they are."""
        return self._database.refusal

    def listen(self, listener: Callable[[Change], None]) -> None:
        """Call ``listener`` on the event loop for every change, in order."""
        self._listeners.append(listener)

    async def watch_others(self, ring: Callable[[], None]) -> None:
        """Open the file anew after a write that failed; a file tells nobody who writes it."""
        while True:
            await self._clock.sleep(_HEAL_SECONDS)
            if self._database.poisoned is None:
                continue
            with suppress(StoreUnavailable):  # which stays as it is, and is tried again
                await self._database.heal()
                await self._database.write(_touch)
                ring()

    def reserved(self) -> AbstractAsyncContextManager[Writer]:
        """Reserve nothing: the few who share a file wait for each other in its queue."""
        return nullcontext(self.write)

    async def head(self) -> Head:
        """Return where the store is."""
        return await self._database.read(_head)

    async def view(self, revision: int | None = None) -> View:
        """Return every object, now or at an older revision, from one snapshot."""

        def work(connection: sqlite3.Connection) -> View:
            head = _head(connection)
            if revision is None:
                rows = connection.execute(f"SELECT {_OBJECT} FROM objects")  # noqa: S608 - a constant
                return _view(head, rows)
            refuse_unreachable(revision, head)
            then = replace(head, revision=revision, mark=_mark_at(connection, revision) or "")
            return _view(then, connection.execute(_AT, (revision,)))

        return await self._database.read(work)

    async def write(
        self, writes: Sequence[Write], by: Author, *, base: Position | None = None
    ) -> Change | None:
        """Write all or nothing as one revision, durable on return."""
        at = self._clock.now()
        loop = asyncio.get_running_loop()

        def tell(change: Change | None) -> None:
            if change is not None:
                for listener in self._listeners:
                    loop.call_soon_threadsafe(listener, change)

        def work(connection: sqlite3.Connection) -> Change | None:
            head = _head(connection)
            refuse_moved(base, head.position)
            effective = effective_writes(writes, lambda key: _current(connection, key))
            if not effective:
                return None
            change = change_of(
                (write for write, _ in effective),
                revision=head.revision + 1,
                at=at,
                by=by,
                mark=new_mark(),
            )
            _insert(connection, change, {write.key: body for write, body in effective})
            return change

        return await self._database.write(work, after=tell)

    async def changes(self, since: int, limit: int = 256) -> tuple[Change, ...]:
        """Return the changes after a revision, the oldest first."""

        def work(connection: sqlite3.Connection) -> tuple[Change, ...]:
            floor = _head(connection).floor
            if since < floor:
                raise Compacted(since, floor)
            return _changes(connection, "revision > ? ORDER BY revision", since, limit)

        return await self._database.read(work)

    async def history(self, before: int | None = None, limit: int = 50) -> tuple[Change, ...]:
        """Return the changes that are kept below a revision, the newest first."""
        top = 2**63 - 1 if before is None else before
        where = "revision < ? ORDER BY revision DESC"
        return await self._database.read(lambda c: _changes(c, where, top, limit))

    async def mark_at(self, revision: int) -> str | None:
        """Return the mark of a revision; None where that is not kept."""
        return await self._database.read(lambda c: _mark_at(c, revision))

    async def compact(self, retention: Retention) -> int:
        """Forget what is too old."""
        cutoff = self._age.now() - retention.seconds
        return await self._database.write(lambda c: _compact(c, retention.changes, cutoff))

    async def announce(self, predecessor: str, renewed: str | None = None) -> None:
        """Name the store that this one replaces."""
        query = "UPDATE meta SET predecessor = ?, store_id = coalesce(?, store_id)"
        await self._database.write(lambda c: c.execute(query, (predecessor, renewed)))

    async def backup(self, target: Path) -> None:
        """Copy the store, as it is now, to a file of its own."""
        await self._database.read(lambda connection: backup(connection, target))

    async def close(self) -> None:
        """Let go of the file."""
        await self._database.close()


def restore(source: Path, target: Path) -> str:
    """Put a backup in place of a store that is not open; return its new ``store_id``.

    The store is another one from now on: revisions may go back, so nobody may go on from one of
    the old store as if it were the same. It names the one that it replaces, so that those who
    follow that one may take it.
    """
    replaced = _store_id(target) or _store_id(source)
    for leftover in ("-wal", "-shm"):
        target.with_name(target.name + leftover).unlink(missing_ok=True)
    with closing(sqlite3.connect(source)) as kept:
        backup(kept, target)
    store_id = secrets.token_hex(8)
    with closing(sqlite3.connect(target, isolation_level=None)) as restored:
        migrate(restored, target, MIGRATIONS)
        query = "UPDATE meta SET store_id = ?, predecessor = ?"
        restored.execute(query, (store_id, replaced))
    return store_id


def _store_id(path: Path) -> str:
    """Return which store a file has; nothing for one that is gone or cannot be read."""
    try:
        with closing(read_only(path)) as connection:
            [store_id] = connection.execute("SELECT store_id FROM meta").fetchone()
    except sqlite3.Error:
        return ""
    return store_id


def _touch(connection: sqlite3.Connection) -> None:
    """Write what is there already: whether the disk takes it is not known before."""
    connection.execute("UPDATE meta SET floor = floor")


def _head(connection: sqlite3.Connection) -> Head:
    row = connection.execute("SELECT store_id, revision, floor, predecessor FROM meta").fetchone()
    store_id, revision, floor, predecessor = row
    return Head(store_id, revision, floor, _mark_at(connection, revision) or "", predecessor)


def _mark_at(connection: sqlite3.Connection, revision: int) -> str | None:
    query = """SELECT mark FROM revisions WHERE revision = ?1
        UNION ALL SELECT floor_mark FROM meta WHERE floor = ?1"""
    row = connection.execute(query, (revision,)).fetchone()
    return None if row is None else row[0]


def _current(connection: sqlite3.Connection, key: Key) -> Current | None:
    query = "SELECT revision, owner, body FROM objects WHERE kind = ? AND id = ?"
    row = connection.execute(query, key).fetchone()
    return None if row is None else Current(*row)


def _view(at: Head, rows: Iterable[Row]) -> View:
    objects = {stored.key: stored for stored in (_stored(*row) for row in rows)}
    return View(at.store_id, at.revision, objects, at.mark, at.predecessor)


def _stored(
    kind: Kind, key: str, body: str, revision: int, updated_at: float, owner: str | None
) -> Stored:
    record, extra = record_of(kind, body)
    return Stored(kind, key, record, revision, updated_at, owner, extra)


def _insert(connection: sqlite3.Connection, change: Change, bodies: dict[Key, str | None]) -> None:
    connection.execute("UPDATE meta SET revision = ?", (change.revision,))
    connection.execute(
        "INSERT INTO revisions VALUES (?, ?, ?, ?, ?)",
        (change.revision, change.at, change.actor, change.note, change.mark),
    )
    for entry in change.entries:
        owner = None if entry.stored is None else entry.stored.owner
        row = (*entry.key, change.revision, change.at, owner, bodies[entry.key])
        connection.execute("INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?)", row)
        if entry.stored is None:
            connection.execute("DELETE FROM objects WHERE kind = ? AND id = ?", row[:2])
        else:
            connection.execute("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?)", row)


def _changes(
    connection: sqlite3.Connection, where: str, bound: int, limit: int
) -> tuple[Change, ...]:
    query = f"SELECT revision, at, actor, note, mark FROM revisions WHERE {where} LIMIT ?"  # noqa: S608 - both callers give a constant
    found = connection.execute(query, (bound, limit)).fetchall()
    return tuple(
        Change(
            revision=revision,
            at=at,
            actor=actor,
            note=note,
            entries=_entries(connection, revision),
            mark=mark,
        )
        for revision, at, actor, note, mark in found
    )


def _entries(connection: sqlite3.Connection, revision: int) -> tuple[Entry, ...]:
    query = f"SELECT {_OBJECT} FROM changes WHERE revision = ? ORDER BY kind, id"  # noqa: S608 - a constant
    rows = connection.execute(query, (revision,)).fetchall()
    return tuple(Entry(row[0], row[1], None if row[2] is None else _stored(*row)) for row in rows)


def _compact(connection: sqlite3.Connection, keep: int, cutoff: float) -> int:
    head = _head(connection)
    # All that is below the first revision that is not old. A clock that was wrong for a while
    # has given an old date to a late one, and that must not take the earlier ones with it.
    query = "SELECT min(revision) FROM revisions WHERE at >= ?"
    [fresh] = connection.execute(query, (cutoff,)).fetchone()
    aged = head.revision if fresh is None else fresh - 1
    floor = max(head.floor, aged, head.revision - keep)
    if floor == head.floor:
        return floor
    # First what was superseded, then the deletions: what is left at or below the floor is the
    # last version of each object that lives there.
    connection.execute(
        """DELETE FROM changes WHERE revision <= ?1 AND EXISTS (
            SELECT 1 FROM changes AS later WHERE later.kind = changes.kind
            AND later.id = changes.id AND later.revision > changes.revision
            AND later.revision <= ?1)""",
        (floor,),
    )
    connection.execute("DELETE FROM changes WHERE revision <= ? AND body IS NULL", (floor,))
    mark = _mark_at(connection, floor)
    connection.execute("UPDATE meta SET floor = ?, floor_mark = ?", (floor, mark))
    connection.execute("DELETE FROM revisions WHERE revision <= ?", (floor,))
    return floor
