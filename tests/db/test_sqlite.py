"""What a database file must be to be opened; what is refused is not touched."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from bascule.db.errors import StoreUnavailable
from bascule.db.sqlite import APPLICATION_ID, Database, give_back, plain_commit, read_only
from tests.db.others import another_looks

pytestmark = pytest.mark.anyio
TABLE = ("CREATE TABLE t (x INTEGER PRIMARY KEY, y TEXT) STRICT",)

#: Writes a database and dies, so that what it wrote last is in the ``-wal`` only.
KILLED = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = WAL")
for statement in sys.argv[2:]:
    connection.execute(statement)
os._exit(0)
"""


def killed(path: Path, *statements: str) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(path), *statements], check=True, timeout=60)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


FOREIGN = ("CREATE TABLE other (x)", "PRAGMA user_version = 7")
NEWER = (*TABLE, f"PRAGMA application_id = {APPLICATION_ID}", "PRAGMA user_version = 2")


@pytest.mark.parametrize(
    ("statements", "words"), [(FOREIGN, "another program"), (NEWER, "newer one")]
)
async def test_a_foreign_or_newer_file_is_refused_and_not_touched(
    tmp_path: Path, statements: tuple[str, ...], words: str
):
    path = tmp_path / "x.db"
    killed(path, *statements)
    assert (tmp_path / "x.db-wal").stat().st_size, "all of it is still in the -wal"
    before = files(tmp_path)
    with pytest.raises(StoreUnavailable, match=words):
        await Database(path).open((TABLE,))
    assert files(tmp_path) == before


@pytest.mark.parametrize("statements", [FOREIGN, NEWER])
async def test_one_that_is_not_in_wal_mode_stays_as_it_is(
    tmp_path: Path, statements: tuple[str, ...]
):
    path = tmp_path / "x.db"
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()
    before = files(tmp_path)
    with pytest.raises(StoreUnavailable):
        await Database(path).open((TABLE,))
    assert files(tmp_path) == before


async def test_a_damaged_file_is_refused_and_not_touched(tmp_path: Path):
    path = tmp_path / "x.db"
    database = Database(path)
    await database.open((TABLE,))
    await database.write(
        lambda c: c.executemany("INSERT INTO t (y) VALUES (?)", [("y" * 100,)] * 500) and None
    )
    await database.close()
    content = bytearray(path.read_bytes())
    content[5 * 4096 : 7 * 4096] = bytes(2 * 4096)
    path.write_bytes(content)
    before = files(tmp_path)
    with pytest.raises(StoreUnavailable, match=r"x\.db is damaged .*: restore it from a backup"):
        await Database(path).open((TABLE,))
    assert files(tmp_path) == before


async def test_the_check_decides_what_is_damaged(tmp_path: Path):
    path = tmp_path / "x.db"
    database = Database(path)
    await database.open((TABLE,))
    await database.close()
    with pytest.raises(StoreUnavailable, match=r"damaged \(all of it\)"):
        await Database(path, check=lambda _connection: "all of it").open((TABLE,))


async def test_what_a_killed_writer_left_in_the_wal_is_read_and_taken_over(tmp_path: Path):
    path = tmp_path / "x.db"
    marks = (f"PRAGMA application_id = {APPLICATION_ID}", "PRAGMA user_version = 1")
    killed(path, *TABLE, *marks, "INSERT INTO t VALUES (1, 'kept')")
    before = files(tmp_path)
    connection = read_only(path)
    assert connection.execute("SELECT y FROM t").fetchall() == [("kept",)]
    connection.close()
    assert files(tmp_path) == before
    database = Database(path)
    await database.open((TABLE,))
    assert await database.read(lambda c: c.execute("SELECT y FROM t").fetchall()) == [("kept",)]
    await database.close()


async def test_a_copy_without_its_index_file_is_read_with_its_wal(tmp_path: Path):
    path = tmp_path / "x.db"
    killed(path, *TABLE, "INSERT INTO t VALUES (1, 'kept')")
    (tmp_path / "x.db-shm").unlink()
    before = files(tmp_path)
    connection = read_only(path)
    assert connection.execute("SELECT y FROM t").fetchall() == [("kept",)]
    connection.close()
    after = files(tmp_path)
    after.pop("x.db-shm")
    assert after == before


@pytest.mark.parametrize("left", [(), ("-shm",), ("-wal",), ("-wal", "-shm")])
async def test_empty_files_beside_a_database_are_left_as_they_are(
    tmp_path: Path, left: tuple[str, ...]
):
    path = tmp_path / "x.db"
    database = Database(path)
    await database.open((TABLE,))
    await database.close()
    for end in left:
        path.with_name(path.name + end).touch()
    before = files(tmp_path)
    connection = read_only(path)
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)
    connection.close()
    assert files(tmp_path) == before


async def test_a_reader_beside_a_writer_sees_what_is_committed(tmp_path: Path):
    path = tmp_path / "x.db"
    database = Database(path)
    await database.open((TABLE,))
    await database.write(lambda c: c.execute("INSERT INTO t VALUES (1, 'one')") and None)
    connection = read_only(path)
    await database.write(lambda c: c.execute("INSERT INTO t VALUES (2, 'two')") and None)
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (2,)
    connection.close()
    await database.close()


async def test_a_new_file_that_shrinks_gives_its_pages_back(tmp_path: Path):
    sizes: dict[bool, int] = {}
    for shrinks in (False, True):
        path = tmp_path / f"{shrinks}.db"
        database = Database(path, shrinks=shrinks)
        await database.open((TABLE,))
        many = [("y" * 1000,)] * 1000
        await database.write(
            lambda c, many=many: c.executemany("INSERT INTO t (y) VALUES (?)", many) and None
        )
        await database.write(lambda c: c.execute("DELETE FROM t") and None)
        await database.write(give_back)
        await database.close()
        sizes[shrinks] = path.stat().st_size
    assert sizes[False] > 1_000_000
    assert sizes[True] < 50_000


class FailsOnce:
    """Commits for real, but for one time."""

    def __init__(self) -> None:
        self.fails = False

    def __call__(self, connection: sqlite3.Connection, /) -> None:
        if self.fails:
            self.fails = False
            raise sqlite3.OperationalError("disk I/O error")
        plain_commit(connection)


@pytest.mark.requirement("audit:ledger:held")
@pytest.mark.parametrize("how", ["opened again", "healed"])
async def test_a_file_that_this_process_opens_again_stays_held(tmp_path: Path, how: str):
    """SQLite's locks are the process's: whoever closes the file by hand ends all of them."""
    path, commit = tmp_path / "x.db", FailsOnce()
    database = Database(path, commit=commit)
    await database.open((TABLE,))
    await database.read(lambda c: c.execute("SELECT * FROM t").fetchall())
    if how == "healed":
        commit.fails = True
        with pytest.raises(StoreUnavailable):
            await database.write(lambda c: c.execute("INSERT INTO t (y) VALUES ('lost')") and None)
        await database.heal()
    else:
        beside = Database(path)
        await beside.open((TABLE,))
        await beside.close()
    await database.write(lambda c: c.execute("INSERT INTO t (y) VALUES ('kept')") and None)
    another_looks(path)
    assert (tmp_path / "x.db-wal").exists(), "another process took it for its own"
    await database.close()
    with read_only(path) as left:
        assert left.execute("SELECT y FROM t").fetchall() == [("kept",)]
    left.close()
