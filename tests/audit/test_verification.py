"""Laws of verification: whatever is changed before the last anchor is found."""

from __future__ import annotations

import sqlite3
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bascule.audit.anchors import KEY_NAME, Anchors, SigningKey, line_digest, parsed
from bascule.audit.chain import GENESIS, SEARCHED, Row
from bascule.audit.checkpoints import checkpoint
from bascule.audit.events import LedgerCut
from bascule.audit.export import export_row, rows_of_export
from bascule.audit.findings import MOST_TOLD, Verification
from bascule.audit.ledger_file import append
from bascule.audit.retention import Limits, cut
from bascule.audit.verification import verify
from bascule.db.errors import StoreUnavailable
from bascule.db.sqlite import APPLICATION_ID
from bascule.errors import InvalidRecord
from tests.audit.small_ledger import (
    ANCHORED,
    PROTECTED,
    ROWS,
    add,
    anchors_in,
    chained,
    empty,
    event,
    filled,
    lines,
    rows,
)

NUMBERS = st.integers(1, ROWS)
UNSEARCHED = ("journal", "place", "hash", "body")


class Sealed:
    """A ledger as it was written, its anchors, and its public key."""

    def __init__(self, folder: Path) -> None:
        connection = empty()
        self.public = filled(connection, folder).public_key()
        self.image = connection.serialize()
        self.lines = lines(folder)
        self.key = (folder / KEY_NAME).read_bytes()
        self.scratch = folder / "scratch"

    def opened(self) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.deserialize(self.image)
        return connection

    def verified(self, connection: sqlite3.Connection) -> Verification:
        return verify(connection, self.lines, self.public)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Sealed:
    return Sealed(tmp_path_factory.mktemp("sealed"))


def words(found: Verification) -> str:
    return "; ".join(f"{problem.row}: {problem.words}" for problem in found.problems)


def rewritten(connection: sqlite3.Connection, events: list[tuple[int, int, bytes]]) -> None:
    """Write another history, every hash of which fits."""
    connection.execute("DELETE FROM events")
    append(connection, events)


@pytest.mark.requirement("audit:ledger:hash-chain")
def test_what_nobody_changed_is_well(sealed: Sealed):
    found = sealed.verified(sealed.opened())
    assert found.problems == ()
    assert found.ok
    assert (found.rows, found.first, found.last) == (ROWS, 1, ROWS)
    assert found.anchors == len(ANCHORED)
    assert found.unprotected == ROWS - PROTECTED
    assert found.anchored_at == float(PROTECTED)
    assert found.key_from == "given"
    assert found.cuts == ()
    assert msgspec.json.decode(msgspec.json.encode(found), type=Verification) == found


def test_a_ledger_of_before_there_were_people_is_well(sealed: Sealed):
    connection = sealed.opened()
    connection.execute("ALTER TABLE events DROP COLUMN person")
    assert sealed.verified(connection).ok


@pytest.mark.requirement("audit:ledger:hash-chain")
@given(NUMBERS, st.sampled_from([*UNSEARCHED, *SEARCHED]), st.booleans())
def test_every_edit_of_any_column_is_found(sealed: Sealed, number: int, column: str, null: bool):
    connection = sealed.opened()
    blob = column in ("hash", "body")
    other: object = 77 if column in ("journal", "place", "timestamp") else "other"
    other = b"x" * 32 if blob else other
    if null and column in SEARCHED:
        other = None
    query = f"UPDATE events SET {column} = ? WHERE number = ? AND {column} IS NOT ?"  # noqa: S608
    changed = connection.execute(query, (other, number, other)).rowcount
    found = sealed.verified(connection)
    assert found.ok is not bool(changed)
    if changed:
        assert number in {problem.row for problem in found.problems}


@given(NUMBERS, st.integers(0, 10_000), st.integers(1, 255))
def test_every_changed_byte_of_an_event_is_found(
    sealed: Sealed, number: int, place: int, change: int
):
    connection = sealed.opened()
    [[body]] = connection.execute("SELECT body FROM events WHERE number = ?", (number,))
    changed = bytearray(body)
    changed[place % len(changed)] ^= change
    query = "UPDATE events SET body = ? WHERE number = ?"
    connection.execute(query, (bytes(changed), number))
    found = sealed.verified(connection)
    assert not found.ok
    assert number in {problem.row for problem in found.problems}


@pytest.mark.requirement("audit:ledger:hash-chain")
@given(st.sets(NUMBERS, min_size=1, max_size=4))
def test_every_deletion_is_found_unless_it_is_of_the_last_rows_which_no_anchor_covers(
    sealed: Sealed, numbers: set[int]
):
    connection = sealed.opened()
    connection.executemany("DELETE FROM events WHERE number = ?", [(n,) for n in numbers])
    found = sealed.verified(connection)
    left = ROWS - len(numbers)
    only_the_end = numbers == set(range(left + 1, ROWS + 1)) and left >= PROTECTED
    assert found.ok is only_the_end, words(found)
    if only_the_end:
        assert found.unprotected == left - PROTECTED


@given(NUMBERS, NUMBERS)
def test_rows_that_changed_places_are_found(sealed: Sealed, one: int, other: int):
    connection = sealed.opened()
    query = "UPDATE events SET number = ? WHERE number = ?"
    connection.executemany(query, [(-1, one), (one, other), (other, -1)])
    assert sealed.verified(connection).ok is (one == other)


@given(st.integers(0, ROWS))
def test_a_row_put_in_between_is_found(sealed: Sealed, after: int):
    connection = sealed.opened()
    connection.execute("UPDATE events SET number = -1 - number WHERE number > ?", (after,))
    connection.execute("UPDATE events SET number = -number WHERE number < 0")
    query = "INSERT INTO events (number, journal, place, hash, body) VALUES (?, 0, 0, ?, ?)"
    connection.execute(query, (after + 1, b"h" * 32, b"{}"))
    assert not sealed.verified(connection).ok


@given(st.integers(0, ROWS), st.sampled_from(["edit", "insert", "delete"]))
def test_another_history_whose_hashes_fit_is_found_up_to_the_last_anchor(
    sealed: Sealed, at: int, change: str
):
    """Beyond it nothing can be found, and that is what ``unprotected`` says."""
    connection = sealed.opened()
    events = [(1, number, event(number)) for number in range(1, ROWS + 1)]
    if change == "insert":
        events.insert(at, (1, 99, event(99)))
    elif at == ROWS:
        return
    elif change == "edit":
        events[at] = (1, 99, event(99))
    else:
        del events[at]
    rewritten(connection, events)
    found = sealed.verified(connection)
    assert found.ok is (at >= PROTECTED), words(found)
    if found.ok:
        assert found.unprotected == len(events) - PROTECTED


@given(st.integers(1, ROWS), st.booleans())
def test_a_cut_at_the_front_that_no_row_explains_is_found(sealed: Sealed, last: int, tidy: bool):
    connection = sealed.opened()
    tip = connection.execute("SELECT hash FROM events WHERE number = ?", (last,)).fetchone()[0]
    connection.execute("DELETE FROM events WHERE number <= ?", (last,))
    if tidy:
        connection.execute("DELETE FROM checkpoints WHERE number <= ?", (last,))
        connection.execute("INSERT INTO meta VALUES ('base_number', ?)", (str(last),))
        connection.execute("INSERT INTO meta VALUES ('base_hash', ?)", (tip.hex(),))
    assert not sealed.verified(connection).ok


@given(st.integers(1, ROWS))
def test_a_cut_that_only_an_unsigned_row_explains_is_found(sealed: Sealed, last: int):
    connection = sealed.opened()
    tip = connection.execute("SELECT hash FROM events WHERE number = ?", (last,)).fetchone()[0]
    forged = LedgerCut(
        timestamp=1, by="x", reason="age", first=1, last=last, count=last, tip=tip.hex()
    )
    append(connection, [(0, 0, msgspec.json.encode(forged))])
    connection.execute("DELETE FROM events WHERE number <= ?", (last,))
    connection.execute("INSERT INTO meta VALUES ('base_number', ?)", (str(last),))
    connection.execute("INSERT INTO meta VALUES ('base_hash', ?)", (tip.hex(),))
    found = sealed.verified(connection)
    assert not found.ok
    assert "no anchor covers it" in words(found)


def cut_off(sealed: Sealed, folder: Path) -> tuple[sqlite3.Connection, list[bytes]]:
    """Return the ledger without its first rows, as retention leaves it, and its anchors."""
    (folder / "anchors.jsonl").write_bytes(b"\n".join(sealed.lines) + b"\n")
    connection = sealed.opened()
    assert cut(connection, Limits(max_days=1), 86_404.0, "retention")
    (folder / KEY_NAME).write_bytes(sealed.key)
    (folder / KEY_NAME).chmod(0o600)
    assert checkpoint(connection, anchors_in(folder), 86_500.0)
    return connection, lines(folder)


def test_every_edit_of_the_first_row_after_a_cut_is_found(sealed: Sealed, tmp_path: Path):
    connection, anchors = cut_off(sealed, tmp_path)
    found = verify(connection, anchors, sealed.public)
    assert found.ok, words(found)
    assert found.first == ANCHORED[0] + 1
    assert [(told.first, told.last) for told in found.cuts] == [(1, ANCHORED[0])]
    connection.execute("UPDATE events SET place = 77 WHERE number = ?", (found.first,))
    changed = verify(connection, anchors, sealed.public)
    assert [problem.row for problem in changed.problems] == [found.first]


def test_a_further_cut_without_a_row_is_found(sealed: Sealed, tmp_path: Path):
    connection, anchors = cut_off(sealed, tmp_path)
    connection.execute("DELETE FROM events WHERE number <= 5")
    assert "rows 1 to 5 are missing" in words(verify(connection, anchors, sealed.public))


@pytest.mark.parametrize("first", [2, 4, 9])
def test_an_export_without_its_first_rows_is_found(sealed: Sealed, first: int):
    content = [export_row(row) for row in rows(sealed.opened())[first - 1 :]]
    sealed.scratch.write_bytes(b"\n".join(content))
    found = verify(sealed.scratch, sealed.lines, sealed.public)
    assert [problem.row for problem in found.problems] == [first]
    assert f"rows 1 to {first - 1} are missing" in words(found)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"no JSON", "its body is not an event"),
        (b"[]", "its body is not an event"),
        (b'{"event":"ledger_cut"}', "and not which"),
        (
            msgspec.json.encode(
                LedgerCut(timestamp=1, by="x", reason="age", first=1, last=3, count=3, tip="00")
            ),
            "some are here",
        ),
        (
            msgspec.json.encode(
                LedgerCut(timestamp=1, by="x", reason="age", first=0, last=0, count=9, tip="00")
            ),
            "some are here",
        ),
    ],
)
def test_a_row_that_fits_its_hash_and_says_what_cannot_be_is_found(
    sealed: Sealed, body: bytes, told: str
):
    before = rows(sealed.opened())
    [last] = chained(before[-1].hash, ROWS, [(0, 0, body)])
    sealed.scratch.write_bytes(b"\n".join(map(export_row, [*before, last])))
    found = verify(sealed.scratch, sealed.lines, sealed.public)
    assert [problem.row for problem in found.problems] == [ROWS + 1]
    assert told in words(found)


@given(st.integers(0, ROWS))
def test_a_cut_at_the_end_is_found_up_to_the_last_anchor(sealed: Sealed, last: int):
    connection = sealed.opened()
    connection.execute("DELETE FROM events WHERE number > ?", (last,))
    found = sealed.verified(connection)
    assert found.ok is (last >= PROTECTED)
    if found.ok:
        assert found.unprotected == last - PROTECTED
    else:
        missing = f"rows {last + 1} to {PROTECTED}, which an anchor covers, are missing"
        assert missing in words(found)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO meta VALUES ('base_number', '3')",
        "INSERT INTO meta VALUES ('base_number', 'three')",
        "INSERT INTO meta SELECT 'base_hash', hex(tip) FROM checkpoints WHERE number = 7",
        "UPDATE meta SET value = 'led-2'",
        "UPDATE checkpoints SET made_at = 0 WHERE number = 7",
        "UPDATE checkpoints SET tip = x'00' WHERE number = 7",
        "UPDATE checkpoints SET number = 8 WHERE number = 7",
        "UPDATE checkpoints SET anchor = x'00' WHERE number = 7",
    ],
)
def test_edits_of_the_tables_beside_the_rows_are_found(sealed: Sealed, statement: str):
    connection = sealed.opened()
    connection.execute(statement)
    assert not sealed.verified(connection).ok


@pytest.mark.requirement("audit:ledger:checkpoints")
def test_without_anchors_every_row_is_unprotected(sealed: Sealed):
    found = verify(sealed.opened(), [])
    assert found.ok
    assert found.unprotected == ROWS
    assert (found.key_id, found.key_from, found.anchored_at) == (None, None, None)


def test_the_ledgers_own_anchors_and_key_are_used_and_named_so(sealed: Sealed):
    found = verify(sealed.opened())
    assert found.ok
    assert found.anchors == len(ANCHORED)
    assert found.key_from == "ledger"


@pytest.mark.parametrize("which", range(len(ANCHORED)))
def test_every_changed_byte_of_an_anchor_is_found_or_leaves_its_rows_unprotected(
    sealed: Sealed, which: int
):
    """The first or last line without its end counts as torn, as by an accident: as no line."""
    for place in range(len(sealed.lines[which])):
        changed = [bytearray(line) for line in sealed.lines]
        changed[which][place] ^= 1
        found = verify(sealed.opened(), map(bytes, changed), sealed.public)
        if found.ok:
            assert (found.anchors, found.anchors_torn) == (2, 1), bytes(changed[which])
            assert place == len(sealed.lines[which]) - 1
            assert found.unprotected == ROWS - ANCHORED[1 if which == 2 else 2]
            assert which != 1


def test_an_anchor_that_another_key_signed_is_found(sealed: Sealed):
    connection = sealed.opened()
    last = parsed(sealed.lines[-1])
    assert last is not None
    forged = SigningKey(b"k" * 32).sign(
        replace(
            last,
            number=ROWS,
            tip=rows(connection)[-1].hash.hex(),
            before=line_digest(sealed.lines[-1]),
        )
    )
    for key in (None, sealed.public):
        found = verify(connection, [*sealed.lines, forged], key)
        assert "is signed by another key" in words(found)
        assert found.unprotected == ROWS - PROTECTED


def test_an_anchor_that_is_missing_breaks_the_chain_of_anchors(sealed: Sealed):
    first, second, third = sealed.lines
    for some in [[first, third], [second, first, third], [first, third, second]]:
        assert not verify(sealed.opened(), some, sealed.public).ok
    found = verify(sealed.opened(), [first, second], sealed.public)
    assert found.ok
    assert found.unprotected == ROWS - ANCHORED[1]
    assert verify(sealed.opened(), [second, third], sealed.public).ok, "a later file begins later"


def test_anchors_that_the_given_key_did_not_sign_protect_nothing(sealed: Sealed):
    found = verify(sealed.opened(), sealed.lines, SigningKey(b"k" * 32).public)
    assert not found.ok
    assert "no anchor is signed by the given key" in words(found)
    assert found.unprotected == ROWS


def test_whoever_gives_a_key_is_not_content_with_no_anchor_at_all(sealed: Sealed):
    found = verify(sealed.opened(), [], SigningKey(b"k" * 32).public)
    assert not found.ok
    assert "no anchor is signed by the given key" in words(found)


def test_a_whole_ledger_signed_with_another_key_is_found(sealed: Sealed, tmp_path: Path):
    forged = empty()
    filled(forged, tmp_path)
    assert verify(forged, lines(tmp_path)).ok, "it is only the key that tells"
    assert not verify(forged, lines(tmp_path), sealed.public).ok
    assert not verify(forged, [*sealed.lines, *lines(tmp_path)], sealed.public).ok


def test_a_key_that_is_none_is_refused(sealed: Sealed):
    for key in ("", "ed25519:", "ed25519:AAAA", sealed.public.removeprefix("ed25519:")):
        with pytest.raises(InvalidRecord, match="public_key"):
            verify(sealed.opened(), [], key)


def test_a_key_may_follow_another_and_either_vouches_for_all(tmp_path: Path):
    connection = empty()
    anchors = filled(connection, tmp_path)
    old = anchors.public_key()
    anchors.renew(10.0)
    new = anchors.public_key()
    assert checkpoint(connection, anchors, 12.0)
    for key in (old, new):
        found = verify(connection, lines(tmp_path), key)
        assert found.ok, words(found)
        assert found.unprotected == 0
    found = verify(connection, lines(tmp_path)[:-2], new)
    assert not found.ok, "that the old key names it does not make it the old key's"


def test_many_problems_are_counted_and_some_told(sealed: Sealed):
    connection = sealed.opened()
    add(connection, range(ROWS + 1, 400))
    connection.execute("UPDATE events SET caller = 'eve'")
    found = sealed.verified(connection)
    assert found.problem_count == 399
    assert len(found.problems) == MOST_TOLD


def test_a_long_ledger_takes_no_more_memory_than_a_short_one(sealed: Sealed):
    def peak(connection: sqlite3.Connection) -> int:
        tracemalloc.start()
        verify(connection, sealed.lines, sealed.public)
        _now, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    short, long = sealed.opened(), sealed.opened()
    add(short, range(ROWS + 1, 200))
    add(long, range(ROWS + 1, 6_000))
    peak(short)  # what is loaded with the first is kept
    assert peak(long) < peak(short) + 100_000


def database(sealed: Sealed, path: Path) -> Path:
    path.write_bytes(sealed.image)
    return path


def exported(sealed: Sealed, path: Path) -> Path:
    path.write_bytes(b"".join(export_row(row) + b"\n" for row in rows(sealed.opened())))
    return path


@pytest.mark.parametrize("made", [database, exported])
def test_files_alone_are_verified_and_not_changed(
    sealed: Sealed, tmp_path: Path, made: Callable[[Sealed, Path], Path]
):
    path = made(sealed, tmp_path / "file")
    before = path.read_bytes()
    found = verify(path, sealed.lines, sealed.public)
    assert found.ok, words(found)
    assert (found.rows, found.unprotected) == (ROWS, ROWS - PROTECTED)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == before


def test_a_ledger_in_use_is_verified_as_of_one_moment(sealed: Sealed, tmp_path: Path):
    path = database(sealed, tmp_path / "ledger.db")
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    add(writer, [13])

    def anchors() -> Iterator[bytes]:
        for number, line in enumerate(sealed.lines, start=14):
            add(writer, [number])
            yield line

    found = verify(path, anchors(), sealed.public)
    assert found.ok, words(found)
    assert found.rows == 13
    writer.close()


@given(st.permutations(range(4)), st.sampled_from(["none", "drop", "double", "text", "torn"]))
def test_exported_lines_that_changed_places_or_are_missing_or_no_rows_are_found(
    sealed: Sealed, order: list[int], change: str
):
    content = [export_row(row) for row in rows(sealed.opened())]
    content[4:8] = [content[4 + at] for at in order]
    if change == "drop":
        del content[6]
    elif change == "double":
        content.insert(6, content[6])
    elif change == "text":
        content.insert(6, b"not a row")
    elif change == "torn":
        content[6] = content[6][:-5]
    path = sealed.scratch
    path.write_bytes(b"\n".join(content))
    found = verify(path, sealed.lines, sealed.public)
    assert found.ok is (change == "none" and order == [0, 1, 2, 3])


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.text(max_size=9)), max_size=9))
def test_exported_rows_are_read_as_they_were(events: list[tuple[int, int, str]]):
    made = list(chained(GENESIS, 0, [(j, p, body.encode()) for j, p, body in events]))
    assert list(rows_of_export(map(export_row, made))) == made


def test_a_body_that_is_no_text_is_exported_as_one_that_does_not_fit():
    line = export_row(Row(1, 0, 0, b"\xff", bytes(32)))
    [row] = rows_of_export([line])
    assert row is not None
    assert row.event != b"\xff"


def test_what_is_no_ledger_is_refused_with_its_name(tmp_path: Path):
    other = tmp_path / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE t (x)")
    with pytest.raises(StoreUnavailable, match=r"other\.db is another program's"):
        verify(other)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.close()
    with pytest.raises(StoreUnavailable, match=r"other\.db is not a ledger"):
        verify(other)
    with pytest.raises(StoreUnavailable, match=r"none\.db cannot be read"):
        verify(tmp_path / "none.db")


def test_a_damaged_page_is_found(sealed: Sealed, tmp_path: Path):
    connection = empty(tmp_path / "ledger.db")
    add(connection, range(1, 200))
    connection.close()
    content = bytearray((tmp_path / "ledger.db").read_bytes())
    at = content.rindex(b'"r151"')
    content[at - at % 4096 : at - at % 4096 + 100] = bytes(100)
    (tmp_path / "ledger.db").write_bytes(content)
    found = verify(tmp_path / "ledger.db")
    assert "the file is damaged" in words(found)


def test_an_anchor_file_of_another_ledger_is_found(sealed: Sealed, tmp_path: Path):
    anchors = Anchors(tmp_path / "a", tmp_path / "k", "led-2")
    line = anchors.add(3, rows(sealed.opened())[2].hash, 1.0)
    found = verify(sealed.opened(), [line])
    assert "its anchor is of another ledger" in words(found)
