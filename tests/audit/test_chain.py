"""The chain of rows, and how rows get into the ledger's file."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.audit.chain import GENESIS, SEARCHED, columns, link
from bascule.audit.ledger_file import FILE, FILE_NAME, MIGRATIONS, append, tip
from bascule.db.sqlite import Database
from tests.audit.small_ledger import add, chained, empty, event, rows

pytestmark = pytest.mark.anyio
EVENTS = st.lists(
    st.tuples(st.integers(0, 2**63), st.integers(0, 2**63), st.binary(max_size=20)), max_size=8
)


def test_a_hash_covers_the_hash_before_the_number_the_origin_and_the_bytes():
    said = b"\1" * 32 + bytes(7) + b"\5" + bytes(7) + b"\2" + bytes(7) + b"\3" + b"{}"
    assert link(b"\1" * 32, 5, 2, 3, b"{}") == hashlib.sha256(said).digest()


@given(EVENTS, st.integers(0, 8))
def test_a_chain_made_in_two_pieces_is_the_same_chain(
    events: list[tuple[int, int, bytes]], at: int
):
    whole = list(chained(GENESIS, 0, events))
    first = list(chained(GENESIS, 0, events[:at]))
    number, before = (first[-1].number, first[-1].hash) if first else (0, GENESIS)
    assert [*first, *chained(before, number, events[at:])] == whole
    assert [row.number for row in whole] == list(range(1, len(events) + 1))


@given(EVENTS)
def test_no_two_rows_of_a_chain_have_one_hash(events: list[tuple[int, int, bytes]]):
    made = list(chained(GENESIS, 0, events))
    assert len({row.hash for row in made}) == len(made)


def test_columns_are_the_fields_of_the_event_in_their_order():
    found = dict(zip(SEARCHED, columns(b'{"caller":"ada","timestamp":1.5,"x":2}'), strict=True))
    assert found.pop("caller") == "ada"
    assert found.pop("timestamp") == 1.5
    assert set(found.values()) == {None}


def test_an_empty_ledger_begins_at_nothing():
    assert tip(empty()) == FILE.base(empty()) == (0, GENESIS)


def test_many_rows_are_appended_as_one_chain():
    connection = empty()
    events = [(1, number, event(number)) for number in range(1, 251)]
    assert append(connection, events[:120]) == 120
    assert append(connection, events[120:]) == 250
    assert append(connection, []) == 250
    assert rows(connection) == list(chained(GENESIS, 0, events))


async def test_two_writers_of_one_file_make_one_chain(tmp_path: Path):
    """Each reads the tip inside its own transaction."""
    writers = [Database(tmp_path / FILE_NAME) for _ in range(2)]
    for writer in writers:
        await writer.open(MIGRATIONS)
    events = [[(journal, place, event(place)) for place in range(1, 31)] for journal in (1, 2)]
    async with asyncio.timeout(30):
        await asyncio.gather(
            *(
                writer.write(lambda connection, one=one: append(connection, [one]))
                for writer, own in zip(writers, events, strict=True)
                for one in own
            )
        )
    made = await writers[0].read(rows)
    for writer in writers:
        await writer.close()
    order = [(row.journal, row.place, row.event) for row in made]
    assert sorted(order) == sorted([*events[0], *events[1]])
    assert made == list(chained(GENESIS, 0, order))


def test_what_is_searched_for_has_an_index_that_is_used():
    connection = empty()
    add(connection, range(1, 100))
    for column in ("request_id", "server_id", "caller", "approval_id", "timestamp"):
        query = f"EXPLAIN QUERY PLAN SELECT * FROM events WHERE {column} = ?"  # noqa: S608
        [[*_, plan]] = connection.execute(query, ("x",)).fetchall()
        assert f"events_{column}" in plan
