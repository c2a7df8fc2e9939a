"""Searching the ledger: each call once, every row once, whatever is asked for and however paged."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, fields

from bascule.audit.chain import GENESIS, SEARCHED, link
from bascule.audit.events import Event
from bascule.audit.ledger_file import FILE_NAME, MIGRATIONS
from bascule.audit.search import EVENTS, LedgerFile, LedgerReader, Stretch
from bascule.audit.search_queries import LOOKED_AT
from bascule.db.errors import StoreUnavailable
from bascule.db.postgres_transactions import PostgresTransactions
from bascule.db.sqlite import Database
from bascule.model.code import CallStatus
from bascule.wire.api.audit import AuditEntry, AuditFilters
from tests.audit.ledger_rows import (
    START,
    Held,
    Written,
    approval_step,
    cut,
    intent,
    journal_id,
    opened,
    outcome,
    refused,
    spoil,
    token_made,
    write_ledger,
)
from tests.audit.shared_rows import KINDS, Unmarked, rewrite, rows_in, shared
from tests.scale import scaled

EVERYTHING = AuditFilters()
#: The journal whose process lives, in all of these tests.
LIVE = 2
LIVE_ID = journal_id(LIVE)


def live(journal: str) -> bool:
    return journal == LIVE_ID


class Reader(Protocol):
    """Makes a reader of some events."""

    async def __call__(
        self, events: Sequence[Event | Written], *, looked_at: int = LOOKED_AT
    ) -> LedgerReader: ...


@pytest.fixture(params=KINDS)
async def reader(request: pytest.FixtureRequest) -> AsyncGenerator[Reader, None]:
    async with AsyncExitStack() as stack:

        async def made(
            events: Sequence[Event | Written], *, looked_at: int = LOOKED_AT
        ) -> LedgerReader:
            rows = await stack.enter_async_context(rows_in(request.param, events, live))
            return rows(looked_at=looked_at)

        yield made


async def listed(
    source: LedgerReader, filters: AuditFilters = EVERYTHING, limit: int = 100
) -> list[AuditEntry]:
    """Return everything that pages give."""
    found: list[AuditEntry] = []
    before: int | None = None
    while True:
        page = await source.search(filters, before, limit)
        found += page.entries
        if page.next_before is None:
            return found
        assert before is None or page.next_before < before
        before = page.next_before


def said(entries: Sequence[AuditEntry]) -> list[tuple[int, object, str | None]]:
    return [(entry.number, entry.event["event"], entry.status) for entry in entries]


# --- calls


@pytest.mark.requirement("audit:query")
async def test_a_call_is_one_entry_and_its_intent_one_only_while_nothing_came_of_it(reader: Reader):
    source = await reader(
        [
            opened(),
            intent("s1-1"),
            outcome("s1-1"),
            intent("s1-2"),
            (intent("s1-3"), LIVE),
            outcome("s1-4", "denied", "mcp_policy_denied"),
        ]
    )
    assert said(await listed(source)) == [
        (6, "call", "denied"),
        (5, "call_intent", "running"),
        (4, "call_intent", "unknown"),
        (3, "call", "ok"),
        (1, "session_opened", None),
    ]


async def test_calls_are_asked_for_with_those_that_have_not_ended(reader: Reader):
    source = await reader([opened(), intent("s1-1"), outcome("s1-1"), intent("s1-2"), token_made()])
    calls = await listed(source, AuditFilters(event="call"))
    intents = await listed(source, AuditFilters(event="call_intent"))
    assert said(calls) == [(4, "call_intent", "unknown"), (3, "call", "ok")]
    assert said(intents) == [(4, "call_intent", "unknown"), (2, "call_intent", "ok")]


async def test_a_call_whose_process_lives_is_running_and_unknown_once_it_does_not():
    held = Held([(intent("s1-1"), LIVE), outcome("s1-2", "unknown", "mcp_outcome_unknown")])
    running, unknown = AuditFilters(status="running"), AuditFilters(status="unknown")
    for is_live, numbers in ((live, ([1], [2])), (lambda _: False, ([], [2, 1]))):
        source = LedgerReader(held, is_live)
        found = [await listed(source, filters) for filters in (running, unknown)]
        assert tuple([entry.number for entry in entries] for entries in found) == numbers


async def test_whether_a_process_lives_is_asked_once_for_a_page():
    asked: list[str] = []

    def dying(journal: str) -> bool:
        asked.append(journal)
        return len(asked) == 1

    source = LedgerReader(Held([intent("s1-1"), intent("s1-2"), intent("s1-3")]), dying)
    found = await source.search(AuditFilters(status="running"), None, 10)
    assert [entry.status for entry in found.entries] == ["running"] * 3
    assert asked == [journal_id(1)]


async def test_the_life_of_a_call_is_all_that_was_written_about_it_in_order(reader: Reader):
    source = await reader(
        [intent("s1-1"), intent("s1-2"), outcome("s1-1", "failed", "mcp_timeout")]
    )
    life = await source.life("s1-1")
    assert life is not None
    assert (life.status, said(life.entries)) == (
        "failed",
        [(1, "call_intent", "failed"), (3, "call", "failed")],
    )
    assert life.entries[1].event["arguments"] == {"path": "<string>"}
    left = await source.life("s1-2")
    assert left is not None
    assert left.status == "unknown"
    assert await source.life("s1-3") is None


@pytest.mark.parametrize("journal", [LIVE_ID, journal_id(1), None])
async def test_a_claimed_call_runs_while_the_process_lives_that_claimed_it(journal: str | None):
    held = Held([(intent("s1-1", approval="apr-1"), 0)])
    claimed = ("apr-1", "claimed", *[""] * 6, *[0] * 3, journal, b"")
    marks = ", ".join("?" * len(claimed))
    held.connection.execute(f"INSERT INTO approvals VALUES ({marks})", claimed)  # noqa: S608
    [found] = await listed(LedgerReader(held, live))
    assert found.status == ("running" if journal == LIVE_ID else "unknown")


async def test_the_life_of_a_call_has_its_approval_whichever_call_asked(reader: Reader):
    source = await reader(
        [
            approval_step("pending", "s1-1"),
            outcome("s1-1", "denied", "mcp_approval_required"),
            approval_step("pending", "s9-1", approval="apr-2"),
            approval_step("approved", "s1-1", by="otto"),
            approval_step("claimed", "s1-2"),
            intent("s1-2", approval="apr-1"),
            outcome("s1-2", approval="apr-1"),
        ]
    )
    life = await source.life("s1-2")
    assert life is not None
    assert life.status == "ok"
    assert [entry.number for entry in life.entries] == [1, 4, 5, 6, 7]


async def test_a_file_from_before_there_were_approvals_can_be_searched(tmp_path: Path):
    path = tmp_path / FILE_NAME
    database = Database(path)
    await database.open(MIGRATIONS[:1])
    await database.close()
    file = LedgerFile(path)
    try:
        old = LedgerReader(file, tables=file.tables)
        assert await old.life("s1-1") is None
        assert (await old.search(EVERYTHING, None, 10)).entries == ()
    finally:
        file.close()


async def test_an_entry_has_the_event_as_it_was_written_and_its_time_for_people(reader: Reader):
    event = outcome("s1-1", timestamp=START + 0.25)
    [entry] = (await (await reader([event])).search(EVERYTHING, None, 1)).entries
    assert entry.event == msgspec.to_builtins(event)
    assert entry.at == "2023-11-14T22:13:20.250Z"


# --- laws

NAMES = st.sampled_from(["a", "b"])
MAYBE = st.none() | NAMES
TIMES = st.integers(0, 6).map(lambda seconds: START + seconds)
ENDED: tuple[CallStatus, ...] = ("ok", "denied", "failed", "unknown")
STATUSES = st.sampled_from(ENDED)
CODES = st.none() | st.sampled_from(["mcp_timeout", "mcp_policy_denied"])


@st.composite
def ledgers(draw: st.DrawFn) -> list[Written]:
    """Draw what several processes wrote: sessions, acts, calls that ended or did not."""
    written: list[Written] = []
    for number in range(draw(st.integers(0, 14))):
        kind = draw(
            st.sampled_from(["opened", "refused", "token", "left", "ended", "refused call"])
        )
        at, journal = draw(TIMES), draw(st.integers(0, LIVE))
        whose: dict[str, Any] = {
            "timestamp": at,
            "server": draw(NAMES),
            "tool": draw(NAMES),
            "caller": draw(MAYBE),
            "task": draw(MAYBE),
            "token_id": draw(MAYBE),
            "approval": draw(MAYBE),
        }
        request_id = f"{draw(NAMES)}-{number}"
        how = (draw(STATUSES), draw(CODES))
        events: dict[str, list[Event]] = {
            "opened": [opened(draw(NAMES), timestamp=at)],
            "refused": [refused(timestamp=at, server=draw(NAMES))],
            "token": [token_made(timestamp=at)],
            "left": [intent(request_id, **whose)],
            "ended": [intent(request_id, **whose), outcome(request_id, *how, **whose)],
            "refused call": [outcome(request_id, *how, **whose)],
        }
        for event in events[kind]:
            place = draw(st.integers(0, len(written))) if event is events[kind][0] else None
            written.insert(len(written) if place is None else place, (event, journal))
    return written


FILTERS = st.builds(
    AuditFilters,
    since=st.none() | TIMES,
    until=st.none() | TIMES,
    event=st.none() | st.sampled_from(EVENTS[:8]),
    request_id=st.none() | st.sampled_from(["a-0", "b-1", "a-2"]),
    session_id=MAYBE,
    task_id=MAYBE,
    caller=MAYBE,
    token_id=MAYBE,
    server_id=MAYBE,
    tool_name=MAYBE,
    status=st.none() | st.sampled_from(["ok", "denied", "failed", "unknown", "running"]),
    code=st.none() | st.sampled_from(["mcp_timeout", "mcp_policy_denied"]),
    approval_id=MAYBE,
)
#: Few filters at a time: many leave nothing to find.
SOME_FILTERS = st.builds(
    lambda filters, kept: AuditFilters(**{k: v for k, v in asdict(filters).items() if k in kept}),
    FILTERS,
    st.sets(st.sampled_from([field.name for field in fields(AuditFilters)]), max_size=3),
)


class Plain:
    """The rows of a ledger as plain values, and what each of them is."""

    def __init__(self, written: Sequence[Written]) -> None:
        self.rows = {
            number: (json.loads(msgspec.json.encode(event)), journal)
            for number, (event, journal) in enumerate(written, start=1)
        }
        self.ended = {
            row["request_id"]: row["status"]
            for row, _ in self.rows.values()
            if row["event"] == "call"
        }

    def has_ended(self, number: int) -> bool:
        row, _ = self.rows[number]
        return row["event"] == "call_intent" and row["request_id"] in self.ended

    def status(self, number: int) -> str | None:
        row, journal = self.rows[number]
        if row["event"] != "call_intent":
            return row.get("status")
        return self.ended.get(row["request_id"], "running" if journal == LIVE else "unknown")

    def fits(self, number: int, filters: AuditFilters) -> bool:
        wanted = {name: value for name, value in asdict(filters).items() if value is not None}
        return all(self.has(number, name, value) for name, value in wanted.items())

    def has(self, number: int, name: str, value: Any) -> bool:
        row, _ = self.rows[number]
        if name == "since":
            return row["timestamp"] >= value
        if name == "until":
            return row["timestamp"] <= value
        if name == "status":
            return self.status(number) == value
        return self.is_of(number, value) if name == "event" else row.get(name) == value

    def is_of(self, number: int, event: str) -> bool:
        row, _ = self.rows[number]
        left = row["event"] == "call_intent" and not self.has_ended(number)
        return row["event"] == event or (event == "call" and left)

    def numbers(
        self, filters: AuditFilters, hidden: Callable[[int], bool] = lambda _: False
    ) -> list[int]:
        shows_all = filters.event == "call_intent"
        return [n for n in self.rows if self.fits(n, filters) and (shows_all or not hidden(n))]


@pytest.mark.requirement("audit:query")
@given(ledgers(), SOME_FILTERS, st.integers(1, 5), st.integers(1, 20))
async def test_pages_give_every_entry_once_the_newest_first_as_a_plain_filter_would(
    written: list[Written], filters: AuditFilters, limit: int, looked_at: int
):
    plain = Plain(written)
    async with rows_in("sqlite", written, live) as rows:
        found = await listed(rows(looked_at=looked_at), filters, limit)
    numbers = plain.numbers(filters, plain.has_ended)
    assert [entry.number for entry in found] == numbers[::-1]
    assert [entry.status for entry in found] == [plain.status(n) for n in numbers[::-1]]
    assert [entry.event for entry in found] == [plain.rows[n][0] for n in numbers[::-1]]


@given(ledgers(), SOME_FILTERS, st.integers(1, 5), st.integers(1, 20))
async def test_who_follows_gets_every_entry_once_in_order_and_calls_when_they_have_ended(
    written: list[Written], filters: AuditFilters, limit: int, looked_at: int
):
    plain = Plain(written)
    async with rows_in("sqlite", written, live) as rows:
        source = rows(looked_at=looked_at)
        found: list[AuditEntry] = []
        reached = 0
        while reached < len(written):
            stretch = await source.after(reached, filters, limit)
            assert stretch.upto > reached
            found += stretch.entries
            reached = stretch.upto
        assert await source.after(reached, filters, limit) == Stretch((), reached)

    def hidden(number: int) -> bool:
        is_intent = plain.rows[number][0]["event"] == "call_intent"
        return is_intent and (plain.has_ended(number) or plain.status(number) == "running")

    assert [entry.number for entry in found] == plain.numbers(filters, hidden)


@given(ledgers(), SOME_FILTERS)
async def test_an_export_has_every_row_that_a_plain_filter_finds(
    written: list[Written], filters: AuditFilters
):
    plain = Plain(written)
    async with rows_in("sqlite", written, live) as found:
        lines = [lines async for lines in found().export(filters)]
    rows = [json.loads(line) for line in b"".join(lines).splitlines()]
    assert [row["number"] for row in rows] == plain.numbers(filters)


@settings(max_examples=2, phases=[Phase.generate], deadline=None)
@given(st.lists(st.tuples(ledgers(), st.lists(SOME_FILTERS, max_size=4)), min_size=8, max_size=8))
async def test_a_shared_ledger_answers_as_a_file_does(
    cases: list[tuple[list[Written], list[AuditFilters]]],
):
    async with shared([]) as (postgres, tables):
        for written, asked in cases:
            await rewrite(postgres, tables, written, live)
            reading = PostgresTransactions(postgres, Unmarked())
            there = LedgerReader(reading, looked_at=5, tables=tables)
            with closing(Held(written)) as held:
                here = LedgerReader(held, live, looked_at=5)
                for filters in (EVERYTHING, *asked):
                    assert await answers(there, filters) == await answers(here, filters)
            await reading.close()


async def answers(source: LedgerReader, filters: AuditFilters) -> object:
    exported = b"".join([lines async for lines in source.export(filters)])
    rows = [json.loads(line) for line in exported.splitlines()]
    stretches = [await source.after(number, filters, 3) for number in (0, 2, 5)]
    lives = [await source.life(request_id, filters) for request_id in ("a-0", "b-1", "a-2")]
    hashes = [(row["number"], row["hash"], row["body"]) for row in rows]
    return await listed(source, filters, 2), stretches, lives, hashes, await source.bounds()


# --- export


async def test_an_exported_row_has_all_that_its_hash_covers(reader: Reader):
    events = [opened(caller="é\n\u2028"), (intent("s1-1"), LIVE), outcome("s1-1")]
    source = await reader(events)
    lines = b"".join([lines async for lines in source.export()])
    before = GENESIS
    for line in lines.splitlines():
        row = json.loads(line)
        body = row["body"].encode()
        before = link(before, row["number"], row["journal"], row["place"], body)
        assert row["hash"] == before.hex()
    assert (len(lines.splitlines()), await source.tip()) == (3, (3, before))


async def test_an_export_ends_where_the_ledger_ended_when_it_began(tmp_path: Path):
    path = await write_ledger(tmp_path, [opened(f"s{n}") for n in range(1_500)])
    database = Database(path)
    await database.open(MIGRATIONS)
    pages = LedgerReader(database).export()
    first = await anext(pages)
    await write_ledger(tmp_path, [opened("late")])
    rest = [lines async for lines in pages]
    await database.close()
    numbers = [json.loads(line)["number"] for line in (first + b"".join(rest)).splitlines()]
    assert numbers == list(range(1, 1_501))


async def test_an_export_whose_rows_are_cut_off_meanwhile_does_not_pretend_to_be_whole():
    held = Held([opened(f"s{n}") for n in range(2_500)])
    pages = LedgerReader(held).export()
    await anext(pages)
    cut(held.connection, 1_200)
    with pytest.raises(StoreUnavailable, match="rows 1001 to 1200 were cut off"):
        await anext(pages)


async def test_a_ledger_that_was_cut_is_searched_and_exported_from_its_first_row():
    held = Held([opened(f"s{n}") for n in range(10)])
    cut(held.connection, 6)
    source = LedgerReader(held, looked_at=2)
    assert [entry.number for entry in await listed(source, limit=3)] == [10, 9, 8, 7]
    lines = b"".join([lines async for lines in source.export()])
    assert [json.loads(line)["number"] for line in lines.splitlines()] == [7, 8, 9, 10]
    assert await source.bounds() == (6, 10)


# --- bounds


async def test_a_page_looks_at_so_many_rows_and_says_where_to_go_on(reader: Reader):
    events = [*[outcome(f"s1-{n}", tool="rare") for n in range(2)], *[opened() for _ in range(20)]]
    source = await reader(events, looked_at=8)
    filters = AuditFilters(tool_name="rare")
    first = await source.search(filters, None, 10)
    assert (first.entries, first.next_before, first.tip) == ((), 15, 22)
    assert [entry.number for entry in await listed(source, filters)] == [2, 1]


#: What is asked, and the index that must find it; none of them may sort.
PLANS = {
    "request_id": AuditFilters(request_id="a", code="mcp_timeout"),
    "approval_id": AuditFilters(approval_id="a", server_id="b"),
    "caller": AuditFilters(caller="a", since=1.0),
    "server_id": AuditFilters(server_id="b", tool_name="c", status="running"),
    None: AuditFilters(tool_name="c", since=START, until=START + 1),
}


@pytest.mark.parametrize("index", PLANS)
async def test_a_search_goes_through_an_index_and_sorts_nothing(index: str | None):
    held = Held([opened(), intent("a"), outcome("a")])
    asked: list[str] = []
    held.connection.set_trace_callback(asked.append)
    await LedgerReader(held).search(PLANS[index], None, 10)
    held.connection.set_trace_callback(None)
    [query] = [one for one in asked if "e.body" in one]
    plan = [row[3] for row in held.connection.execute(f"EXPLAIN QUERY PLAN {query}")]
    way = "SEARCH e USING INTEGER PRIMARY KEY" if index is None else f"USING INDEX events_{index}"
    assert way in plan[0]
    assert not any("TEMP B-TREE" in step for step in plan)
    assert all("USING INDEX events_request_id" in step for step in plan if "o" in step.split())


async def test_a_large_time_window_is_not_looked_through_to_find_its_ends(reader: Reader):
    events = [opened(f"s{n}", timestamp=START + n) for n in range(scaled(1_000))]
    filters = AuditFilters(since=START, until=START + 40)
    for looked_at in (1, 1_000):  # larger than a window may be, and smaller
        found = await listed(await reader(events, looked_at=looked_at), filters)
        assert [entry.number for entry in found] == list(range(41, 0, -1))


# --- files


async def test_a_ledger_is_read_while_another_process_writes_to_it(tmp_path: Path):
    await write_ledger(tmp_path, [opened("s1")])
    database = Database(tmp_path / FILE_NAME)
    await database.open(MIGRATIONS)
    with closing(LedgerFile(database.path)) as file:
        before = await LedgerReader(file).tip()
        await write_ledger(tmp_path, [opened("s2")])
        after = await LedgerReader(file).tip()
        with pytest.raises(StoreUnavailable, match="readonly"):
            await file.read(lambda connection: connection.execute("DELETE FROM events"))
    both = await asyncio.gather(*(LedgerReader(database).tip() for _ in range(4)))
    await database.close()
    assert (before[0], after[0]) == (1, 2)
    assert both == [after] * 4


async def test_a_file_that_is_not_a_ledger_of_this_form_is_refused_and_not_touched(tmp_path: Path):
    text = tmp_path / "text.db"
    text.write_bytes(b"not a database at all" * 100)
    newer = await write_ledger(tmp_path, [opened()])
    with closing(sqlite3.connect(newer, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("PRAGMA application_id = 7")
    cases = {
        tmp_path / "missing.db": "unable to open",
        text: "not a database",
        newer: "written by a newer one",
        other: "another program's",
    }
    for path, words in cases.items():
        before = path.read_bytes() if path.exists() else None
        with pytest.raises(StoreUnavailable, match=words):
            LedgerFile(path)
        assert (path.read_bytes() if path.exists() else None) == before


async def test_a_row_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path):
    path = await write_ledger(tmp_path, [opened(), outcome("s1-1"), outcome("s1-2")])
    spoil(path, 2, b"\xff{")
    spoil(path, 3, b"[]")
    with closing(LedgerFile(path)) as file:
        found = await listed(LedgerReader(file))
        lines = [lines async for lines in LedgerReader(file).export()]
    assert [entry.event.get("unreadable") for entry in found] == ["[]", "\ufffd{", None]
    assert len(b"".join(lines).splitlines()) == 3


def test_filters_have_the_names_of_what_can_be_searched():
    names = {field.name for field in fields(AuditFilters)}
    assert names == {"since", "until", "node", *SEARCHED} - {"timestamp"}
    assert {"call", "call_intent", "session_opened", "ledger_cut", "set_aside"} <= set(EVENTS)
