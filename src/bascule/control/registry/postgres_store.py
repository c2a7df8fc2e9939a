"""The store on PostgreSQL: several processes write it, and none can tell that it is not alone.

A write reads the head and what it touches by one query, judges it here, and is one statement that
raises the counter only where it was read: so there is no gap, and the order of revisions is the
order of commits. Whoever loses that race plans again. The tables are those of ``sqlite_store.py``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from itertools import groupby
from typing import NamedTuple, Self

from msgspec.structs import replace

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.control.registry.errors import Compacted, HeadMoved
from bascule.control.registry.history_clock import SteadyClock
from bascule.control.registry.kinds import record_of
from bascule.control.registry.offload import apart
from bascule.control.registry.postgres_proposals import TABLES, PostgresProposals
from bascule.control.registry.store import (
    PATIENCE,
    Author,
    Change,
    Current,
    Entry,
    Head,
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
from bascule.db.driver import Connection, Row
from bascule.db.errors import OutcomeUnknown, StoreUnavailable
from bascule.db.postgres import Lent, Postgres, Transaction, lock_key
from bascule.db.postgres_listener import Listener
from bascule.model.kinds import Kind
from bascule.model.snapshot import Position

CHANNEL = "bascule_registry"
#: The row of revision 0, and later of the floor, has the mark that comes before all others.
FORMS = (
    """CREATE TABLE registry_head (
        one boolean PRIMARY KEY DEFAULT true CHECK (one),
        store_id text NOT NULL, revision bigint NOT NULL DEFAULT 0,
        floor bigint NOT NULL DEFAULT 0, predecessor text NOT NULL DEFAULT '',
        fence bigint NOT NULL DEFAULT 0
    ) WITH (fillfactor = 10);
    INSERT INTO registry_head (store_id)
        VALUES (left(replace(gen_random_uuid()::text, '-', ''), 16));
    CREATE TABLE registry_objects (
        kind text COLLATE "C", id text COLLATE "C", revision bigint NOT NULL,
        updated_at double precision NOT NULL, owner text, body text NOT NULL,
        PRIMARY KEY (kind, id)
    );
    CREATE TABLE registry_revisions (
        revision bigint PRIMARY KEY, at double precision NOT NULL, actor text NOT NULL,
        note text NOT NULL, mark text NOT NULL
    );
    INSERT INTO registry_revisions
        VALUES (0, 0, '', '', left(replace(gen_random_uuid()::text, '-', ''), 16));
    CREATE TABLE registry_changes (
        kind text COLLATE "C", id text COLLATE "C", revision bigint,
        updated_at double precision NOT NULL, owner text, body text,
        PRIMARY KEY (kind, id, revision)
    );
    CREATE INDEX registry_changes_by_revision ON registry_changes (revision);
    """,
    TABLES,
)
#: With a limit, the mark is looked up by its key whatever the planner knows: of a plain join it
#: may think that it is best to read all revisions.
_FROM_HEAD = """FROM registry_head h CROSS JOIN LATERAL (
        SELECT mark FROM registry_revisions r WHERE r.revision = h.revision LIMIT 1) AS r"""
_HEAD = f"SELECT store_id, revision, floor, mark, predecessor {_FROM_HEAD}"
_OBJECT = "kind, id, body, revision, updated_at, owner"
_AT = f"""SELECT {_OBJECT} FROM (
    SELECT DISTINCT ON (kind, id) * FROM registry_changes
    WHERE revision <= $1 ORDER BY kind, id, revision DESC) AS last WHERE body IS NOT NULL"""  # noqa: S608 - the columns are a constant
_TOUCHED = f"""SELECT store_id, h.revision, mark, fence,
        o.kind, o.id, o.revision, o.owner, o.body
    {_FROM_HEAD} LEFT JOIN (
        unnest($1::text[], $2::text[]) AS w (kind, id) JOIN registry_objects o USING (kind, id)
    ) ON true"""
#: How many of these say which store is where, to be written there.
_HEAD_WIDTH = 4
#: All of one revision, or nothing: whatever it adds comes from the row whose counter it raised,
#: and that is the row which was read, not that of a store which took its place.
_WRITE = f"""WITH raised AS (
        UPDATE registry_head SET revision = revision + 1
        WHERE store_id = $1 AND revision = $2 AND fence = $4
            AND (SELECT mark FROM registry_revisions WHERE revision = $2) = $3
        RETURNING revision
    ), noted AS (
        INSERT INTO registry_revisions SELECT revision, $5, $6, $7, $8 FROM raised
    ), entries AS (
        SELECT kind, id, revision, $5::double precision, owner, body
        FROM raised, unnest($9::text[], $10::text[], $11::text[], $12::text[])
            AS w (kind, id, owner, body)
    ), logged AS (
        INSERT INTO registry_changes SELECT * FROM entries
    ), deleted AS (
        DELETE FROM registry_objects o USING entries e
        WHERE e.body IS NULL AND (o.kind, o.id) = (e.kind, e.id)
    ), kept AS (
        INSERT INTO registry_objects SELECT * FROM entries WHERE body IS NOT NULL
        ON CONFLICT (kind, id) DO UPDATE SET revision = excluded.revision,
            updated_at = excluded.updated_at, owner = excluded.owner, body = excluded.body
    )
    SELECT pg_notify('{CHANNEL}', $8) FROM raised"""  # noqa: S608 - a constant
_CHANGES = """SELECT h.floor, r.revision, at, actor, note, mark,
        c.kind, c.id, c.body, c.revision, c.updated_at, c.owner
    FROM registry_head h LEFT JOIN (
        SELECT r.* FROM registry_revisions r, registry_head
        WHERE r.revision > floor AND {where} LIMIT $2
    ) AS r ON true LEFT JOIN registry_changes c ON c.revision = r.revision
    ORDER BY {order}, c.kind, c.id"""
_AFTER = _CHANGES.format(where="r.revision > $1 ORDER BY r.revision", order="r.revision")
_BEFORE = _CHANGES.format(where="r.revision < $1 ORDER BY r.revision DESC", order="r.revision DESC")
_MARK = """SELECT mark FROM registry_revisions WHERE revision = $1
    AND revision >= (SELECT floor FROM registry_head)"""
_ANNOUNCE = f"""UPDATE registry_head SET predecessor = $1, store_id = coalesce($2, store_id)
    RETURNING pg_notify('{CHANNEL}', revision::text)"""  # noqa: S608 - a constant
_RAISE_FENCE = "UPDATE registry_head SET fence = fence + 1 RETURNING floor"
_COMPACTING = lock_key("compacting the registry")
#: What is left at or below the floor is the last version of each object that lives there.
_SUPERSEDED = """DELETE FROM registry_changes c USING (
        SELECT kind, id, max(revision) AS revision FROM registry_changes
        WHERE revision > $1 AND revision <= $2 GROUP BY kind, id
    ) AS last WHERE c.kind = last.kind AND c.id = last.id AND c.revision < last.revision"""
_DELETIONS = """DELETE FROM registry_changes
    WHERE revision > $1 AND revision <= $2 AND body IS NULL"""
#: How many revisions are forgotten in one transaction.
BATCH = 500
#: How long following may take: who is away is noticed in less time than that of a write.
FOLLOW_SECONDS = 2.5
_AGAIN_SECONDS = 0.1
#: A word may come some writes later; one that comes later still only asks for nothing new.
_OWN = 64
#: How soon a write that was refused is tried again.
_HEAL_SECONDS = 2.0


class _Refused(NamedTuple):
    """A write that was not taken, and why."""

    words: str
    arguments: Sequence[object]


class PostgresStore(PostgresProposals):
    """A ``Store`` in a database that others write too. ``open`` it before use.

    The database belongs to whoever opened that.
    """

    def __init__(
        self, postgres: Postgres, *, clock: Clock = SYSTEM_CLOCK, batch: int = BATCH
    ) -> None:
        self._postgres = postgres
        self._batch = batch
        self._clock = clock
        self._age = SteadyClock(clock)
        self._listeners: list[Callable[[Change], None]] = []
        #: The marks of the last changes that were made here: a word about one is no news.
        self._own: deque[str] = deque(maxlen=_OWN)
        #: One at a time, so that changes are told in order; against others they race anyway.
        self._writing = asyncio.Lock()
        #: The last write, if it was not taken; the database may answer all else.
        self._refused: _Refused | None = None

    async def open(self) -> Self:
        """Make the tables, or bring an older form up to date."""
        await self._postgres.migrate("registry", FORMS)
        return self

    @property
    def refusal(self) -> str | None:
        """Say why writes are refused now, if they are."""
        return self._postgres.trouble or (self._refused and self._refused.words)

    def listen(self, listener: Callable[[Change], None]) -> None:
        """Call ``listener`` on the event loop for every change, in order."""
        self._listeners.append(listener)

    async def watch_others(self, ring: Callable[[], None]) -> None:
        """Call ``ring`` whenever somebody else may have written, until cancelled; heal."""

        def heard(mark: str) -> None:
            if mark not in self._own:
                ring()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(Listener(self._postgres, CHANNEL, heard).run())
            while True:
                await self._clock.sleep(_HEAL_SECONDS)
                await self.heal()

    # --- reading

    async def head(self) -> Head:
        """Return where the store is."""
        return _head(await self._postgres.fetch(_HEAD, seconds=FOLLOW_SECONDS))

    async def view(self, revision: int | None = None) -> View:
        """Return every object, now or at an older revision, from one snapshot."""

        async def work(connection: Connection) -> tuple[Head, list[Row]]:
            head = _head(await connection.fetch(_HEAD))
            if revision is None:
                return head, await connection.fetch(f"SELECT {_OBJECT} FROM registry_objects")  # noqa: S608 - a constant
            refuse_unreachable(revision, head)
            mark = await connection.fetchval(_MARK, revision)
            then = replace(head, revision=revision, mark=mark)
            return then, await connection.fetch(_AT, revision)

        head, rows = await self._postgres.read(work)
        return await apart(len(rows), partial(_view, head, rows))

    async def changes(self, since: int, limit: int = 256) -> tuple[Change, ...]:
        """Return the changes after a revision, the oldest first."""
        rows = await self._postgres.fetch(_AFTER, since, limit, seconds=FOLLOW_SECONDS)
        floor = _first(rows)[0]
        if since < floor:
            raise Compacted(since, floor)
        return await apart(len(rows), partial(_changes, rows))

    async def history(self, before: int | None = None, limit: int = 50) -> tuple[Change, ...]:
        """Return the changes that are kept below a revision, the newest first."""
        top = 2**63 - 1 if before is None else before
        rows = await self._postgres.fetch(_BEFORE, top, limit)
        return await apart(len(rows), partial(_changes, rows))

    async def mark_at(self, revision: int) -> str | None:
        """Return the mark of a revision; None where that is not kept."""
        rows = await self._postgres.fetch(_MARK, revision, seconds=FOLLOW_SECONDS)
        return rows[0][0] if rows else None

    # --- writing

    async def write(
        self, writes: Sequence[Write], by: Author, *, base: Position | None = None
    ) -> Change | None:
        """Write all or nothing as one revision, durable on return."""
        async with self._turn():
            for _ in range(PATIENCE):
                try:
                    async with self._postgres.lent() as lent:
                        return await self._write(lent, writes, by, base)
                except HeadMoved:
                    if base is not None:
                        raise
            async with self._locked() as transaction:
                return await self._write(transaction, writes, by, None)

    @asynccontextmanager
    async def reserved(self) -> AsyncGenerator[Writer, None]:
        """Keep others from writing until this has written, or is left."""
        async with self._turn(), self._locked() as transaction:

            async def write(
                writes: Sequence[Write], by: Author, *, base: Position | None = None
            ) -> Change | None:
                return await self._write(transaction, writes, by, base)

            yield write

    @asynccontextmanager
    async def _turn(self) -> AsyncGenerator[None, None]:
        """Wait for this process's earlier writes, as long as two of them may take."""
        try:
            async with asyncio.timeout(2 * self._postgres.seconds):
                await self._writing.acquire()
        except TimeoutError as error:
            raise StoreUnavailable("the registry is busy: an earlier write hangs") from error
        try:
            yield
        finally:
            self._writing.release()

    @asynccontextmanager
    async def _locked(self) -> AsyncGenerator[Transaction, None]:
        """Lock the counter first: others wait, and lose their race."""
        async with self._postgres.transaction() as transaction:
            await transaction.fetch("SELECT FROM registry_head FOR UPDATE")
            yield transaction

    async def _write(
        self,
        place: Lent,
        writes: Sequence[Write],
        by: Author,
        base: Position | None,
    ) -> Change | None:
        kinds, ids = [write.kind for write in writes], [write.id for write in writes]
        rows = await place.fetch(_TOUCHED, kinds, ids)
        head = list(_first(rows))[:_HEAD_WIDTH]
        revision = head[1]
        refuse_moved(base, Position(*head[:3]))
        current = {(row[4], row[5]): Current(row[6], row[7], row[8]) for row in rows if row[4]}
        effective = await apart(len(writes), partial(effective_writes, writes, current.get))
        if not effective:
            return None
        bodies = {write.key: body for write, body in effective}
        change = change_of(
            (write for write, _ in effective),
            revision=revision + 1,
            at=self._clock.now(),
            by=replace(by, actor=_text(by.actor), note=_text(by.note)),
            mark=new_mark(),
        )
        arguments = _arguments(change, bodies)
        with self._telling(change), self._refusals(arguments):
            try:
                raised = await place.statement(_WRITE, *head, *arguments)
            except OutcomeUnknown as error:
                await self._find_out(change, error)
            else:
                if not raised:
                    raise HeadMoved(revision, change.revision)
        return change

    @contextmanager
    def _telling(self, change: Change) -> Generator[None, None, None]:
        """Tell of a change once it is made."""
        self._own.append(change.mark)
        try:
            yield
        except BaseException:
            self._own.pop()  # if it happened all the same, that is news
            raise
        for listener in self._listeners:
            listener(change)

    @contextmanager
    def _refusals(self, arguments: Sequence[object]) -> Generator[None, None, None]:
        """Remember a write that is not taken, until one is."""
        try:
            yield
        except StoreUnavailable as error:
            self._refused = _Refused(str(error), arguments)
            raise
        self._refused = None

    async def heal(self) -> None:
        """Try a refused write again and undo it, as no other write may come that would be taken."""
        refused = self._refused
        if refused is None:
            return
        with suppress(StoreUnavailable):
            async with self._locked() as transaction:
                head = _first(await transaction.fetch(_TOUCHED, [], []))
                await transaction.fetch(_WRITE, *list(head)[:_HEAD_WIDTH], *refused.arguments)
            if self._refused is refused:
                self._refused = None

    async def _find_out(self, change: Change, error: OutcomeUnknown) -> None:
        """Return if a change was written that nobody answered for; raise StoreUnavailable."""
        happened = None
        with suppress(TimeoutError):
            async with asyncio.timeout(self._postgres.seconds):
                happened = await self._happened(change)
        if happened is None:
            raise OutcomeUnknown(
                f"{error}; whether revision {change.revision} was written cannot be found out now"
            ) from error
        if not happened:
            raise StoreUnavailable(f"{error}; nothing was written") from error

    async def _happened(self, change: Change) -> bool | None:
        """Say whether a change is there, and keep it from happening if it is not.

        None: it may have been forgotten already.
        """
        while True:
            with suppress(StoreUnavailable):
                # Waits for whoever writes, and from then on a statement that still lies unread
                # in a server's buffer finds another fence.
                floor = _first(await self._postgres.statement(_RAISE_FENCE))[0]
                mark = await self.mark_at(change.revision)
                return None if floor > change.revision else mark == change.mark
            await SYSTEM_CLOCK.sleep(_AGAIN_SECONDS)

    # --- upkeep

    async def compact(self, retention: Retention) -> int:
        """Forget what is too old, a batch at a time; one process does it."""
        cutoff = self._age.now() - retention.seconds
        work = partial(_compact, keep=retention.changes, cutoff=cutoff, batch=self._batch)
        while True:
            floor, goal = await self._postgres.write(work)
            if floor >= goal:
                return floor

    async def announce(self, predecessor: str, renewed: str | None = None) -> None:
        """Name the store that this one replaces; other replicas are told."""
        await self._postgres.statement(_ANNOUNCE, predecessor, renewed)

    async def close(self) -> None:
        """Do nothing: the database is closed by whoever opened it."""


def _first(rows: Sequence[Row]) -> Row:
    """Return the row that is always there, but for a database that somebody has emptied."""
    if not rows:
        raise StoreUnavailable("the tables of the registry have been emptied")
    return rows[0]


def _head(rows: Sequence[Row]) -> Head:
    return Head(*_first(rows))


def _arguments(change: Change, bodies: dict[tuple[Kind, str], str | None]) -> list[object]:
    entries = change.entries
    return [
        change.at,
        change.actor,
        change.note,
        change.mark,
        [entry.kind for entry in entries],
        [entry.id for entry in entries],
        [None if entry.stored is None else entry.stored.owner for entry in entries],
        [bodies[entry.key] for entry in entries],
    ]


def _text(given: str) -> str:
    """Return a text as PostgreSQL can keep it: with another character in place of zero."""
    return given.replace("\0", "\ufffd")


def _view(at: Head, rows: Iterable[Row]) -> View:
    objects = {stored.key: stored for stored in (_stored(*row) for row in rows)}
    return View(at.store_id, at.revision, objects, at.mark, at.predecessor)


def _stored(
    kind: Kind, key: str, body: str, revision: int, updated_at: float, owner: str | None
) -> Stored:
    record, extra = record_of(kind, body)
    return Stored(kind, key, record, revision, updated_at, owner, extra)


def _changes(rows: Iterable[Row]) -> tuple[Change, ...]:
    """Return changes from rows of ``floor``, the revision, and one of its objects each."""
    plain = [tuple(row) for row in rows]
    return tuple(
        Change(
            revision=revision,
            at=at,
            actor=actor,
            note=note,
            mark=mark,
            entries=tuple(_entry(*row[6:]) for row in entries),
        )
        for (_, revision, at, actor, note, mark), entries in groupby(plain, lambda row: row[:6])
        if revision is not None
    )


def _entry(
    kind: Kind, key: str, body: str | None, revision: int, updated_at: float, owner: str | None
) -> Entry:
    stored = None if body is None else _stored(kind, key, body, revision, updated_at, owner)
    return Entry(kind, key, stored)


async def _compact(
    connection: Connection, *, keep: int, cutoff: float, batch: int
) -> tuple[int, int]:
    """Forget a batch; return the floor, and where it is to be."""
    mine = await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", _COMPACTING)
    head = _head(await connection.fetch(_HEAD))
    if not mine:
        return head.floor, head.floor
    query = "SELECT min(revision) FROM registry_revisions WHERE at >= $1 AND revision > $2"
    fresh = await connection.fetchval(query, cutoff, head.floor)
    aged = head.revision if fresh is None else fresh - 1
    goal = max(head.floor, aged, head.revision - keep)
    floor = min(goal, head.floor + batch)
    if floor > head.floor:
        await connection.execute(_SUPERSEDED, head.floor, floor)
        await connection.execute(_DELETIONS, head.floor, floor)
        # The floor's own row stays: it has the mark by which those who are there are known.
        await connection.execute("DELETE FROM registry_revisions WHERE revision < $1", floor)
        await connection.execute("UPDATE registry_head SET floor = $1", floor)
    return floor, goal
