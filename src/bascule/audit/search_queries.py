"""The questions that a search asks, each inside one read of the ledger's database."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cache

import orjson
from msgspec import Struct
from msgspec.structs import asdict

from bascule.audit.chain import SEARCHED, Row
from bascule.audit.export import export_row
from bascule.audit.ledger_file import FILE, Tables
from bascule.clock import rfc3339
from bascule.db.errors import StoreUnavailable
from bascule.db.statements import Statements
from bascule.model.json import JsonObject, is_object
from bascule.wire.api.audit import AuditEntry, AuditFilters, AuditPage, CallLife

#: How many rows one page looks at, whether they match or not.
LOOKED_AT = 100_000
#: How many times that a time window may have, to learn which numbers its rows have.
_WINDOW = 5
_EXPORTED = 1_000
_LIFE = 1_000
EVERYTHING = AuditFilters()
#: The filters that have an index, the narrowest first.
_INDEXED = ("request_id", "approval_id", "caller", "server_id")
_EQUAL = tuple(name for name in SEARCHED if name not in {"timestamp", "event", "status"})


class SeenFilters(AuditFilters, frozen=True, kw_only=True):
    """What somebody asks for who may see some tasks alone; None is all."""

    tasks: tuple[str, ...] | None = None


class Stretch(Struct, frozen=True):
    """What was found after a row, and up to which row was looked."""

    entries: tuple[AuditEntry, ...]
    upto: int


class Words:
    """The parts of queries over some tables. All are constants: what somebody gives is bound."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.events = tables.events
        outcome = f"FROM {tables.events} o WHERE o.request_id = e.request_id AND o.event = 'call'"
        # The intent of a claimed call came with the claim, and not by a journal.
        journal = f"""(CASE WHEN e.journal <> 0
            THEN (SELECT id FROM {tables.journals} j WHERE j.number = e.journal)
            ELSE (SELECT journal FROM approvals a WHERE a.id = e.approval_id) END)"""  # noqa: S608 - constants
        live = _live(tables, journal)
        self.status = f"""CASE WHEN e.event = 'call_intent' THEN coalesce(
            (SELECT o.status {outcome} LIMIT 1),
            CASE WHEN {live} THEN 'running' ELSE 'unknown' END
        ) ELSE e.status END"""
        self._ended_intent = f"e.event = 'call_intent' AND EXISTS (SELECT 1 {outcome})"
        self.entry = f"SELECT e.number, e.timestamp, {self.status}, e.event, e.body, {tables.node}"
        self.row = (
            f"SELECT e.number, {tables.number_of}, e.journal, e.place, e.body, e.hash, "
            f"{tables.chain}, coalesce({tables.node}, '')"
        )
        #: What is not shown where no intents are asked for: those of calls that have an entry
        #: already; and for who follows, of those that will have one.
        self.hidden = f"NOT ({self._ended_intent})"
        self.followed = (
            f"{self.hidden} AND NOT (e.event = 'call_intent' AND ({self.status}) = 'running')"
        )
        #: What was written about a call, and the steps of its approval, whoever asked for that.
        self.of_call = f"""(e.request_id = :request_id OR e.event = 'approval'
            AND e.approval_id IN (SELECT approval_id FROM {tables.events}
                WHERE request_id = :request_id AND approval_id IS NOT NULL))"""  # noqa: S608 - constants

    def source(self, index: str | None) -> str:
        """Return the table with the way that leads through it in the order of numbers."""
        return f"{self.events} e {self._tables.by(index)}"

    def conditions(self, filters: AuditFilters, shown: str) -> tuple[str, dict[str, object]]:
        """Return what a row must be, and the values of that; ``shown`` is left out for intents."""
        given: Mapping[str, object] = asdict(filters)
        values = {name: value for name, value in given.items() if value is not None}
        asked = [f"e.{name} = :{name}" for name in _EQUAL if name in values]
        values |= {name: self._tables.column(values[name]) for name in _EQUAL if name in values}
        if isinstance(filters, SeenFilters) and filters.tasks is not None:
            tasks = {f"task_{place}": task for place, task in enumerate(filters.tasks)}
            asked.append(f"e.task_id IN ({', '.join(f':{name}' for name in tasks) or 'NULL'})")
            values |= tasks
        if filters.since is not None:
            asked.append("e.timestamp >= :since")
        if filters.until is not None:
            asked.append("e.timestamp <= :until")
        if filters.status is not None:
            asked.append(f"({self.status}) = :status")
        if filters.node is not None:
            asked.append(f"({self._tables.node}) = :node")
        if filters.event is not None:
            asked.append(self._of_kind(filters.event))
        if filters.event != "call_intent":
            asked.append(shown)
        return " AND ".join(asked) or "true", values

    def _of_kind(self, event: str) -> str:
        """Return the condition for a kind of events; a call without an outcome is a call too."""
        if event != "call":
            return "e.event = :event"
        return f"(e.event = :event OR (e.event = 'call_intent' AND NOT ({self._ended_intent})))"


def _live(tables: Tables, journal: str) -> str:
    """Return the condition that the process that wrote a row lives: here, or at its node."""
    if tables.chains is None:
        return tables.is_live(journal)
    sent = f"FROM {tables.chains} c WHERE c.number = e.chain AND {tables.received}"
    return f"""CASE WHEN EXISTS (SELECT 1 {sent})
        THEN EXISTS (SELECT 1 {sent} AND c.process = e.journal AND {tables.heard})
        ELSE {tables.is_live(journal)} END"""


words_of = cache(Words)


class Questions:
    """The questions of one read."""

    def __init__(
        self, statements: Statements, tables: Tables = FILE, looked_at: int = LOOKED_AT
    ) -> None:
        self._statements = statements
        self._tables = tables
        self._words = words_of(tables)
        self._looked_at = looked_at

    def search(self, filters: AuditFilters, before: int | None, limit: int) -> AuditPage:
        """Return the newest entries below a number."""
        words = self._words
        low, (_, tip) = self._tables.first(self._statements), self.bounds()
        first, top = self._window(filters, _WINDOW * self._looked_at) or (low, tip)
        top = top if before is None else min(top, before - 1)
        floor = self._floor(filters, (first, top))
        where, values = words.conditions(filters, words.hidden)
        found = self._entries(
            f"{words.entry} FROM {words.source(_index(filters))} WHERE {where}"
            " AND e.number BETWEEN :floor AND :top ORDER BY e.number DESC LIMIT :limit",
            {**values, "floor": floor, "top": top, "limit": limit + 1},
        )
        further = found[limit - 1].number if len(found) > limit else floor
        more = further > first and top >= first
        return AuditPage(
            entries=tuple(found[:limit]), tip=tip, next_before=further if more else None
        )

    def life(self, request_id: str, filters: AuditFilters = EVERYTHING) -> CallLife | None:
        """Return what was written about one call, or None when nothing was."""
        words = self._words
        where, values = words.conditions(filters, "true")
        found = self._entries(
            f"{words.entry} FROM {words.events} e WHERE {words.of_call} AND {where}"
            f" ORDER BY e.number LIMIT {_LIFE}",
            {**values, "request_id": self._tables.column(request_id)},
        )
        if not found:
            return None
        stands = next((one.status for one in reversed(found) if one.status is not None), None)
        return CallLife(request_id=request_id, status=stands, entries=tuple(found))

    def after(self, number: int, filters: AuditFilters, limit: int) -> Stretch:
        """Return the entries after a row, in order; of calls, those that have ended."""
        words = self._words
        upto = min(number + self._looked_at, self.bounds()[1])
        where, values = words.conditions(filters, words.followed)
        found = self._entries(
            f"{words.entry} FROM {words.source(None)} WHERE {where}"
            " AND e.number BETWEEN :after AND :upto ORDER BY e.number LIMIT :limit",
            {**values, "after": number + 1, "upto": upto, "limit": limit},
        )
        return Stretch(tuple(found), found[-1].number if len(found) == limit else max(upto, number))

    def export(
        self, number: int, span: tuple[int, int], filters: AuditFilters
    ) -> tuple[bytes, int]:
        """Return rows after a number as lines, and up to which number was looked.

        ``span`` is what had been cut off, and the last row, when the export began.
        """
        was_cut, end = span
        cut, words = self.bounds()[0], self._words
        if cut > max(number, was_cut):
            raise StoreUnavailable(
                f"rows {number + 1} to {cut} were cut off while they were exported; export again"
            )
        upto = min(number + LOOKED_AT, end)
        where, values = words.conditions(filters, "true")
        rows = self._statements.execute(
            f"{words.row} FROM {words.source(None)} WHERE {where}"
            " AND e.number BETWEEN :after AND :upto ORDER BY e.number LIMIT :limit",
            {**values, "after": number + 1, "upto": upto, "limit": _EXPORTED},
        ).fetchall()
        lines = b"".join(export_row(Row(*row)) + b"\n" for _, *row in rows)
        return lines, rows[-1][0] if len(rows) == _EXPORTED else upto

    def bounds(self) -> tuple[int, int]:
        """Return the last number that was ever cut off, and the last of all."""
        return self._tables.bounds(self._statements)

    def _window(self, filters: AuditFilters, most: int) -> tuple[int, int] | None:
        """Return the first and last number of a time window, unless it is all or too large."""
        if filters.since is None and filters.until is None:
            return None
        times = AuditFilters(since=filters.since, until=filters.until)
        where, values = self._words.conditions(times, "true")
        source = self._words.source("timestamp")
        inside = f"SELECT number FROM {source} WHERE {where} LIMIT {most}"  # noqa: S608 - constants
        first, last, count = self._statements.execute(
            f"SELECT min(number), max(number), count(*) FROM ({inside}) AS inside",  # noqa: S608 - constants
            values,
        ).fetchone()
        if count == most:
            return None
        return (first, last) if count else (1, 0)

    def _floor(self, filters: AuditFilters, span: tuple[int, int]) -> int:
        """Return the lowest number that one page looks at."""
        index, (first, top) = _index(filters), span
        if index is None:
            return max(first, top - self._looked_at + 1)
        found = self._statements.execute(
            f"SELECT number FROM {self._words.source(index)} WHERE e.{index} = ?"  # noqa: S608 - constants
            " AND number BETWEEN ? AND ? ORDER BY number DESC"
            f" LIMIT 1 OFFSET {self._looked_at - 1}",
            (self._tables.column(getattr(filters, index)), first, top),
        ).fetchone()
        return first if found is None else found[0]

    def _entries(self, query: str, values: Mapping[str, object]) -> list[AuditEntry]:
        return [
            AuditEntry(
                number=number, at=_at(seconds), status=status, event=_event(kind, body), node=node
            )
            for number, seconds, status, kind, body, node in self._statements.execute(query, values)
        ]


def _index(filters: AuditFilters) -> str | None:
    """Return the filter by whose index rows are found."""
    return next((name for name in _INDEXED if getattr(filters, name) is not None), None)


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
