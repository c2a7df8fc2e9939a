"""What must hold before ``ledger.db`` is opened, and that a large one is not read through."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from bascule.audit import ledger_check as module
from bascule.audit.ledger_check import end_check, ledger_check
from bascule.audit.ledger_file import FILE_NAME, MIGRATIONS
from bascule.audit.retention import Limits, cut
from bascule.db.errors import StoreUnavailable
from bascule.db.sqlite import Database
from tests.audit.small_ledger import PROTECTED, add, empty, filled

pytestmark = pytest.mark.anyio


def made(folder: Path) -> Path:
    connection = empty(folder / FILE_NAME)
    filled(connection, folder)
    connection.close()
    return folder / FILE_NAME


def tampered(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


async def test_a_ledger_that_is_well_is_opened(tmp_path: Path):
    for _ in range(2):  # a new file, and one that is there
        database = Database(tmp_path / FILE_NAME, check=ledger_check, shrinks=True)
        await database.open(MIGRATIONS)
        await database.close()
    (tmp_path / "other").mkdir()
    database = Database(made(tmp_path / "other"), check=ledger_check)
    await database.open(MIGRATIONS)
    await database.close()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE events SET body = x'7b7d' WHERE number = 11", "row 11: changed"),
        ("UPDATE events SET caller = 'eve' WHERE number = 11", "row 11: its columns differ"),
        ("DELETE FROM events WHERE number = 11", "row 12: rows 11 to 11"),
        ("DELETE FROM events WHERE number >= 9", "row 9 is not what its checkpoint says"),
        ("UPDATE checkpoints SET tip = x'00' WHERE number = 9", "row 9 is not what"),
        ("DROP TABLE journals", "there is no table journals"),
        ("INSERT INTO meta VALUES ('base_number', 'x')", "base_number"),
    ],
)
async def test_a_ledger_whose_end_is_not_well_is_refused_and_not_touched(
    tmp_path: Path, statement: str, words: str
):
    path = made(tmp_path)
    tampered(path, statement)
    before = files(tmp_path)
    with pytest.raises(StoreUnavailable, match=f"is damaged .*{words}"):
        await Database(path, check=ledger_check).open(MIGRATIONS)
    assert files(tmp_path) == before


async def test_all_of_a_small_ledger_is_looked_at(tmp_path: Path):
    path = tmp_path / FILE_NAME
    connection = empty(path)
    add(connection, range(1, 200))
    connection.close()
    content = bytearray(path.read_bytes())
    at = content.rindex(b'"r5"')
    content[at - at % 4096 : at - at % 4096 + 100] = bytes(100)
    path.write_bytes(content)
    with pytest.raises(StoreUnavailable, match="is damaged"):
        await Database(path, check=ledger_check).open(MIGRATIONS)
    assert path.read_bytes() == content


async def test_a_large_ledger_is_looked_at_from_its_last_checkpoint_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "SMALL_BYTES", 0)
    connection = empty(tmp_path / FILE_NAME)
    filled(connection, tmp_path)
    read: list[str] = []
    connection.set_trace_callback(read.append)
    assert ledger_check(connection) is None
    assert not [statement for statement in read if "quick_check" in statement]
    assert [statement for statement in read if f"number) > {PROTECTED}" in statement]
    connection.execute("UPDATE events SET body = x'7b7d' WHERE number = 2")
    assert ledger_check(connection) is None, "that is for a verification to find"
    connection.close()


async def test_of_many_rows_without_an_anchor_the_last_ones_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(module, "MOST_ROWS", 5)
    connection = empty()
    add(connection, range(1, 21))
    assert end_check(connection) is None
    connection.execute("UPDATE events SET body = x'7b7d' WHERE number = 15")
    assert end_check(connection) is None
    connection.execute("UPDATE events SET body = x'7b7d' WHERE number = 16")
    assert "row 16" in (end_check(connection) or "")


async def test_a_ledger_that_was_cut_up_to_its_last_checkpoint_is_well(tmp_path: Path):
    connection = empty()
    filled(connection, tmp_path)
    assert cut(connection, Limits(max_days=0), 86_400.0, "retention")
    assert end_check(connection) is None
    assert end_check(empty()) is None
    assert end_check(sqlite3.connect(":memory:")) is None
