"""Searching the ledger: what happened, the newest first, each call as one entry.

A call is two rows, its intent and its outcome. Its entry is the outcome; the intent is one only
while there is none, or where intents are asked for. However many rows there are, one page looks at
a bounded number of them, through an index where a filter has one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar, get_args

import orjson
from msgspec import Struct
from msgspec.structs import asdict

from bascule.audit.chain import SEARCHED, Row
from bascule.audit.events import Event
from bascule.audit.export import export_row
from bascule.audit.ledger_file import MIGRATIONS, base
from bascule.audit.ledger_file import tip as chain_tip
from bascule.clock import rfc3339
from bascule.db.errors import StoreUnavailable
from bascule.db.sqlite import read_only, refuse_foreign
from bascule.model.json import JsonObject, is_object
from bascule.wire.api.audit import AuditEntry, AuditFilters, AuditPage, CallLife

T = TypeVar("T")
#: Says of a journal, by its id, whether its process lives. It is asked on a reader's thread.
IsLive: TypeAlias = Callable[[str], bool]

#: What an event can be.
EVENTS: tuple[str, ...] = tuple(kind.__struct_config__.tag for kind in get_args(Event))
#: How many rows one page looks at, whether they match or not.
LOOKED_AT = 100_000
#: How many times that a time window may have, to learn which numbers its rows have.
_WINDOW = 5
_EXPORTED = 1_000
_LIFE = 1_000

_EVERYTHING = AuditFilters()
#: The filters that have an index, the narrowest first.
_INDEXED = ("request_id", "approval_id", "caller", "server_id")
_EQUAL = tuple(name for name in SEARCHED if name not in {"timestamp", "event", "status"})
_OUTCOME = "FROM events o WHERE o.request_id = e.request_id AND o.event = 'call'"
# All of these are made of constants: what somebody gives is bound.
_JOURNAL = """iif(e.journal,
    (SELECT id FROM journals j WHERE j.number = e.journal),
    (SELECT journal FROM approvals a WHERE a.id = e.approval_id)
)"""  # the intent of a claimed call came with the claim, and not by a journal
_STATUS = f"""CASE WHEN e.event = 'call_intent' THEN coalesce(
    (SELECT o.status {_OUTCOME} LIMIT 1),
    iif(is_live(coalesce({_JOURNAL}, '')), 'running', 'unknown')
) ELSE e.status END"""
_ENDED_INTENT = f"e.event = 'call_intent' AND EXISTS (SELECT 1 {_OUTCOME})"
_ENTRY = f"SELECT e.number, e.timestamp, {_STATUS}, e.event, e.body"
_ROW = "SELECT e.number, e.journal, e.place, e.body, e.hash"

#: What is not shown where no intents are asked for: those of calls that have an entry already; and
#: for who follows, of those that will have one.
_HIDDEN = f"NOT ({_ENDED_INTENT})"
_FOLLOWED = f"{_HIDDEN} AND NOT (e.event = 'call_intent' AND ({_STATUS}) = 'running')"

#: What was written about a call, and the steps of its approval, whichever call had asked for it.
_OF_CALL = """(e.request_id = :request_id OR e.event = 'approval' AND e.approval_id IN (
    SELECT approval_id FROM events WHERE request_id = :request_id AND approval_id IS NOT NULL
))"""


class SeenFilters(AuditFilters, frozen=True, kw_only=True):
    """What somebody asks for who may see some tasks alone; None is all."""

    tasks: tuple[str, ...] | None = None


class Stretch(Struct, frozen=True):
    """What was found after a row, and up to which row was looked."""

    entries: tuple[AuditEntry, ...]
    upto: int


class Readable(Protocol):
    """A database that can be read (``Database`` and ``LedgerFile`` can)."""

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run several queries over one snapshot."""
        ...


class LedgerFile:
    """A ``ledger.db`` that is read where it is, whoever writes to it; nothing of it changes."""

    def __init__(self, path: Path) -> None:
        """Open it; raise StoreUnavailable for a file that is not there, foreign or newer."""
        self.path = path
        try:
            self._connection = read_only(path)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{path} cannot be opened: {error}") from error
        try:
            refuse_foreign(self._connection, path, len(MIGRATIONS))
            _know_approvals(self._connection)
        except StoreUnavailable:
            self.close()
            raise

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run several queries over one snapshot, at once."""
        self._connection.execute("BEGIN")
        try:
            return work(self._connection)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self.path} cannot be read: {error}") from error
        finally:
            self._connection.rollback()

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()


def _know_approvals(connection: sqlite3.Connection) -> None:
    """Have an empty table of approvals beside a file from before there were any."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'approvals'").fetchone():
        connection.execute("CREATE TEMP TABLE approvals (id TEXT, journal TEXT)")


class LedgerReader:
    """The reading side of a ledger."""

    def __init__(
        self,
        database: Readable,
        is_live: IsLive = lambda _: False,
        *,
        looked_at: int = LOOKED_AT,
    ) -> None:
        self._database = database
        self._is_live = is_live
        self._looked_at = looked_at

    async def search(self, filters: AuditFilters, before: int | None, limit: int) -> AuditPage:
        """Return the newest entries below a number."""
        looked_at = self._looked_at
        return await self._read(lambda found: search(found, filters, before, limit, looked_at))

    async def life(self, request_id: str, filters: AuditFilters = _EVERYTHING) -> CallLife | None:
        """Return what was written about one call, or None when nothing was."""
        return await self._read(lambda found: life(found, request_id, filters))

    async def after(self, number: int, filters: AuditFilters, limit: int) -> Stretch:
        """Return the entries after a row, in order; of calls, those that have ended."""
        looked_at = self._looked_at
        return await self._read(lambda found: after(found, number, filters, limit, looked_at))

    async def export(self, filters: AuditFilters = _EVERYTHING) -> AsyncGenerator[bytes, None]:
        """Yield every row up to the last one of this moment, as lines, many at a time.

        Raise StoreUnavailable when rows are cut off before they could be read.
        """
        reached, end = await self.bounds()
        while reached < end:
            page = partial(export, number=reached, end=end, filters=filters)
            lines, reached = await self._read(page)
            if lines:
                yield lines

    async def bounds(self) -> tuple[int, int]:
        """Return the number of the last row that was cut off the front, and of the last one."""
        return await self._read(lambda found: (base(found)[0], chain_tip(found)[0]))

    async def tip(self) -> tuple[int, bytes]:
        """Return the number and the hash of the last row."""
        return await self._read(chain_tip)

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def reading(connection: sqlite3.Connection) -> T:
            # Asked once for a read, so that all of it says the same.
            connection.create_function("is_live", 1, cache(self._is_live))
            return work(connection)

        return await self._database.read(reading)


# --- over a connection that knows ``is_live``


def search(
    connection: sqlite3.Connection,
    filters: AuditFilters,
    before: int | None,
    limit: int,
    looked_at: int = LOOKED_AT,
) -> AuditPage:
    """Return the newest entries below a number."""
    low, tip = base(connection)[0] + 1, chain_tip(connection)[0]
    first, top = _window(connection, filters, _WINDOW * looked_at) or (low, tip)
    top = top if before is None else min(top, before - 1)
    floor = _floor(connection, filters, (first, top), looked_at)
    where, values = _conditions(filters, _HIDDEN)
    found = _entries(
        connection,
        f"{_ENTRY} FROM {_source(filters)} WHERE {where} AND e.number BETWEEN :floor AND :top"
        " ORDER BY e.number DESC LIMIT :limit",
        {**values, "floor": floor, "top": top, "limit": limit + 1},
    )
    further = found[limit - 1].number if len(found) > limit else floor
    more = further > first and top >= first
    return AuditPage(entries=tuple(found[:limit]), tip=tip, next_before=further if more else None)


def life(
    connection: sqlite3.Connection, request_id: str, filters: AuditFilters = _EVERYTHING
) -> CallLife | None:
    """Return what was written about one call, or None when nothing was."""
    where, values = _conditions(filters, "1")
    found = _entries(
        connection,
        f"{_ENTRY} FROM events e WHERE {_OF_CALL} AND {where} ORDER BY e.number LIMIT {_LIFE}",
        {**values, "request_id": request_id},
    )
    if not found:
        return None
    stands = next((one.status for one in reversed(found) if one.status is not None), None)
    return CallLife(request_id=request_id, status=stands, entries=tuple(found))


def after(
    connection: sqlite3.Connection,
    number: int,
    filters: AuditFilters,
    limit: int,
    looked_at: int = LOOKED_AT,
) -> Stretch:
    """Return the entries after a row, in order; of calls, those that have ended."""
    upto = min(number + looked_at, chain_tip(connection)[0])
    where, values = _conditions(filters, _FOLLOWED)
    found = _entries(
        connection,
        f"{_ENTRY} FROM events e NOT INDEXED WHERE {where} AND e.number BETWEEN :after AND :upto"
        " ORDER BY e.number LIMIT :limit",
        {**values, "after": number + 1, "upto": upto, "limit": limit},
    )
    return Stretch(tuple(found), found[-1].number if len(found) == limit else max(upto, number))


def export(
    connection: sqlite3.Connection, number: int, end: int, filters: AuditFilters
) -> tuple[bytes, int]:
    """Return rows after a number as lines, and up to which number was looked."""
    cut = base(connection)[0]
    if cut > number:
        raise StoreUnavailable(
            f"rows {number + 1} to {cut} were cut off while they were exported; export again"
        )
    upto = min(number + LOOKED_AT, end)
    where, values = _conditions(filters, "1")
    rows = connection.execute(
        f"{_ROW} FROM events e NOT INDEXED WHERE {where} AND e.number BETWEEN :after AND :upto"
        " ORDER BY e.number LIMIT :limit",
        {**values, "after": number + 1, "upto": upto, "limit": _EXPORTED},
    ).fetchall()
    lines = b"".join(export_row(Row(*row)) + b"\n" for row in rows)
    return lines, rows[-1][0] if len(rows) == _EXPORTED else upto


# --- what is asked


def _conditions(filters: AuditFilters, shown: str) -> tuple[str, dict[str, object]]:
    """Return what a row must be, and the values of that; ``shown`` is left out for intents."""
    given: Mapping[str, object] = asdict(filters)
    values = {name: value for name, value in given.items() if value is not None}
    asked = [f"e.{name} = :{name}" for name in _EQUAL if name in values]
    if isinstance(filters, SeenFilters) and filters.tasks is not None:
        asked.append("e.task_id IN (SELECT value FROM json_each(:tasks))")
        values["tasks"] = orjson.dumps(filters.tasks).decode()
    if filters.since is not None:
        asked.append("e.timestamp >= :since")
    if filters.until is not None:
        asked.append("e.timestamp <= :until")
    if filters.status is not None:
        asked.append(f"({_STATUS}) = :status")
    if filters.event is not None:
        asked.append(_of_kind(filters.event))
    if filters.event != "call_intent":
        asked.append(shown)
    return " AND ".join(asked) or "1", values


def _of_kind(event: str) -> str:
    """Return the condition for a kind of events; a call without an outcome is a call too."""
    if event != "call":
        return "e.event = :event"
    return f"(e.event = :event OR (e.event = 'call_intent' AND NOT ({_ENDED_INTENT})))"


def _index(filters: AuditFilters) -> str | None:
    """Return the filter by whose index rows are found."""
    return next((name for name in _INDEXED if getattr(filters, name) is not None), None)


def _source(filters: AuditFilters) -> str:
    """Return the table with the way that leads through it in the order of numbers."""
    index = _index(filters)
    return f"events e {'NOT INDEXED' if index is None else f'INDEXED BY events_{index}'}"


def _window(
    connection: sqlite3.Connection, filters: AuditFilters, most: int
) -> tuple[int, int] | None:
    """Return the first and last number of a time window, unless it is all or too large."""
    if filters.since is None and filters.until is None:
        return None
    where, values = _conditions(AuditFilters(since=filters.since, until=filters.until), "1")
    inside = f"SELECT number FROM events e INDEXED BY events_timestamp WHERE {where} LIMIT {most}"  # noqa: S608
    first, last, count = connection.execute(
        f"SELECT min(number), max(number), count(*) FROM ({inside})",  # noqa: S608
        values,
    ).fetchone()
    if count == most:
        return None
    return (first, last) if count else (1, 0)


def _floor(
    connection: sqlite3.Connection, filters: AuditFilters, span: tuple[int, int], looked_at: int
) -> int:
    """Return the lowest number that one page looks at."""
    index, (first, top) = _index(filters), span
    if index is None:
        return max(first, top - looked_at + 1)
    found = connection.execute(
        f"SELECT number FROM {_source(filters)} WHERE e.{index} = ?"  # noqa: S608
        f" AND number BETWEEN ? AND ? ORDER BY number DESC LIMIT 1 OFFSET {looked_at - 1}",
        (getattr(filters, index), first, top),
    ).fetchone()
    return first if found is None else found[0]


# --- what is found


def _entries(
    connection: sqlite3.Connection, query: str, values: Mapping[str, object] | tuple[object, ...]
) -> list[AuditEntry]:
    return [
        AuditEntry(number=number, at=_at(seconds), status=status, event=_event(kind, body))
        for number, seconds, status, kind, body in connection.execute(query, values)
    ]


def _at(seconds: float | None) -> str | None:
    with suppress(ValueError, OverflowError, OSError):
        return rfc3339(seconds)
    return None


def _event(kind: str | None, body: bytes) -> JsonObject:
    """Return an event as it was written; one that cannot be read does not hide the others."""
    with suppress(orjson.JSONDecodeError):
        event = orjson.loads(body)
        if is_object(event):
            return event
    return {"event": kind, "unreadable": body.decode(errors="replace")}
