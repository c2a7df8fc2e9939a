"""Cuts at the front of the ledger: by age, by size, whole checkpoints, and as a row."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.audit import retention
from bascule.audit.anchors import Anchors
from bascule.audit.chain import GENESIS
from bascule.audit.checkpoints import checkpoint
from bascule.audit.events import LedgerCut
from bascule.audit.ledger_file import FILE, append, tip
from bascule.audit.retention import Limits, cut
from bascule.audit.verification import verify
from bascule.db.errors import StoreUnavailable
from tests.audit.small_ledger import add, anchors_in, empty, filled, lines, rows
from tests.scale import scaled

DAY = 86_400.0


def daily(folder: Path, days: int, *, each: int = 3) -> tuple[sqlite3.Connection, Anchors]:
    """Return a ledger with so many rows and a checkpoint each day."""
    connection, anchors = empty(), anchors_in(folder)
    for day in range(1, days + 1):
        add(connection, range((day - 1) * each + 1, day * each + 1))
        assert checkpoint(connection, anchors, day * DAY)
    return connection, anchors


def test_whole_checkpoints_that_are_too_old_are_cut_and_a_row_says_so(tmp_path: Path):
    connection, anchors = daily(tmp_path, 5)
    before = rows(connection)
    done = cut(connection, Limits(max_days=2), 5.5 * DAY, "retention")
    assert done == LedgerCut(
        timestamp=5.5 * DAY,
        by="retention",
        reason="age",
        first=1,
        last=9,
        count=9,
        tip=before[8].hash.hex(),
    )
    after = rows(connection)
    assert after[:-1] == before[9:]
    assert msgspec.json.decode(after[-1].event, type=LedgerCut) == done
    assert (after[-1].number, after[-1].journal, after[-1].place) == (16, 0, 0)
    assert FILE.base(connection) == (9, before[8].hash)
    kept = connection.execute("SELECT number FROM checkpoints").fetchall()
    assert kept == [(12,), (15,)]
    assert cut(connection, Limits(max_days=2), 5.5 * DAY, "retention") is None
    assert checkpoint(connection, anchors, 6 * DAY)
    for some in (None, lines(tmp_path)):
        found = verify(connection, some, anchors.public_key())
        assert found.ok, found.problems
        assert (found.first, found.rows, found.unprotected) == (10, 7, 0)
        assert [(told.row, told.first, told.last) for told in found.cuts] == [(16, 1, 9)]


def test_a_cut_counts_when_an_anchor_covers_it(tmp_path: Path):
    connection, anchors = daily(tmp_path, 3)
    assert cut(connection, Limits(max_days=1), 3 * DAY, "retention")
    found = verify(connection)
    assert [problem.row for problem in found.problems] == [10]
    assert "bascule audit checkpoint" in found.problems[0].words
    assert checkpoint(connection, anchors, 4 * DAY)
    assert verify(connection).ok


def test_nothing_is_cut_without_a_limit_or_a_checkpoint(tmp_path: Path):
    connection, _anchors = daily(tmp_path, 3)
    assert cut(connection, Limits(), 100 * DAY, "retention") is None
    unanchored = empty()
    assert cut(unanchored, Limits(max_days=0, max_bytes=0), DAY, "retention") is None
    add(unanchored, range(1, 50))
    assert cut(unanchored, Limits(max_days=0, max_bytes=0), DAY, "retention") is None


def test_all_rows_may_go_but_the_one_that_says_so(tmp_path: Path):
    connection, anchors = daily(tmp_path, 2)
    assert cut(connection, Limits(max_days=0), 9 * DAY, "retention")
    assert [row.number for row in rows(connection)] == [7]
    assert checkpoint(connection, anchors, 10 * DAY)
    assert verify(connection, lines(tmp_path)).ok
    assert cut(connection, Limits(max_days=0), 11 * DAY, "retention")
    assert [row.number for row in rows(connection)] == [8]
    assert checkpoint(connection, anchors, 12 * DAY)
    assert verify(connection, lines(tmp_path)).ok


def test_size_cuts_the_oldest_and_gives_their_pages_back(tmp_path: Path):
    path = tmp_path / "ledger.db"
    connection, anchors = empty(path), anchors_in(tmp_path)
    for last in range(200, 4001, 200):
        add(connection, range(last - 199, last + 1))
        assert checkpoint(connection, anchors, float(last))
    half = path.stat().st_size // 2
    limits = Limits(max_bytes=half)
    connection.execute("BEGIN IMMEDIATE")
    done = cut(connection, limits, 5 * DAY, "retention")
    connection.execute("COMMIT")
    assert done is not None
    assert done.reason == "size"
    assert done.last % 200 == 0
    assert 0.4 * 4000 < done.count < 0.7 * 4000
    assert path.stat().st_size <= half
    assert cut(connection, limits, 5 * DAY, "retention") is None
    assert checkpoint(connection, anchors, 5 * DAY)
    assert verify(connection, lines(tmp_path)).ok
    connection.close()


def test_size_cuts_nothing_that_is_younger_than_keep_days(tmp_path: Path):
    connection, _anchors = daily(tmp_path, 5)
    limits = Limits(max_bytes=1, keep_days=3)
    done = cut(connection, limits, 5.5 * DAY, "retention")
    assert done is not None
    assert (done.reason, done.last) == ("size", 6)
    assert cut(connection, limits, 5.5 * DAY, "retention") is None


def test_one_cut_takes_so_many_rows_and_the_next_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(retention, "MOST_ROWS", 7)
    connection, anchors = daily(tmp_path, 5)
    found: list[LedgerCut] = []
    while done := cut(connection, Limits(max_days=0), 5.5 * DAY, "retention"):
        found.append(done)
    assert [(done.first, done.last) for done in found] == [(1, 6), (7, 12), (13, 15)]
    assert checkpoint(connection, anchors, 6 * DAY)
    assert verify(connection, lines(tmp_path)).ok


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM events WHERE number = 2",
        "DELETE FROM events WHERE number = 1",
        "DELETE FROM events WHERE number = 6",
        "UPDATE events SET hash = x'00' WHERE number = 6",
        "UPDATE checkpoints SET tip = x'00' WHERE number = 6",
    ],
)
def test_what_is_not_as_it_was_signed_is_kept(tmp_path: Path, statement: str):
    connection, _anchors = daily(tmp_path, 3)
    connection.execute(statement)
    before = rows(connection)
    with pytest.raises(StoreUnavailable, match="bascule audit verify"):
        cut(connection, Limits(max_days=1), 3.5 * DAY, "retention")
    assert rows(connection) == before


def test_a_ledger_without_its_last_row_goes_on_from_the_cut(tmp_path: Path):
    connection = empty()
    filled(connection, tmp_path)
    assert cut(connection, Limits(max_days=0), DAY, "retention")
    number, digest = tip(connection)
    assert append(connection, [(1, 1, b"{}")]) == number + 1
    assert digest != GENESIS


@settings(max_examples=scaled(300))
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=10),
    st.integers(0, 4),
)
def test_a_ledger_that_is_cut_now_and_then_is_always_well(
    days: list[tuple[int, int]], max_days: int
):
    """Each day adds rows and a checkpoint, and then cuts some times."""
    with TemporaryDirectory() as folder:
        connection, anchors, number = empty(), anchors_in(Path(folder)), 0
        for day, (count, cuts) in enumerate(days, start=1):
            add(connection, range(number + 1, number + count + 1))
            number += count
            for _ in range(cuts):
                cut(connection, Limits(max_days=max_days), day * DAY, "retention")
            assert checkpoint(connection, anchors, day * DAY)
            for some in (None, lines(Path(folder))):
                found = verify(connection, some, anchors.public_key())
                assert found.ok, found.problems
                assert found.unprotected == 0
