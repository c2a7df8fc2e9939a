"""Whether anybody wrote: every write shows, by whatever way, and no lock is lost by looking."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from bascule.auth.file_state import FileState
from bascule.auth.token_store import FILE_NAME, open_tokens

LONG_AGO = (1_700_000_000, 1_700_000_000)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_bytes(b"x")
        os.utime(path, LONG_AGO)
    return paths


def state_of(files: list[Path]) -> FileState:
    return FileState([str(path) for path in files])


def appended(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"y")


def overwritten(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"z")


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"x")
    os.utime(other, LONG_AGO)
    other.replace(path)


READS = """
import sqlite3, sys
sqlite3.connect(sys.argv[1], timeout=0).execute("SELECT x FROM t")
"""
CHANGES: list[Callable[[Path], None]] = [appended, overwritten, replaced, Path.unlink]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("place", [0, 1])
def test_every_change_of_any_of_the_files_is_another_state(
    files: list[Path], change: Callable[[Path], None], place: int
):
    state = state_of(files)
    before = state.stamp()
    assert before is not None
    assert state.stamp() == before
    change(files[place])
    assert state.stamp() != before
    state.close()


def test_a_change_is_not_sure_until_it_is_older_than_the_tick(files: list[Path]):
    state = state_of(files)
    before = state.stamp()
    appended(files[0])
    assert state.stamp() is None
    os.utime(files[0], (LONG_AGO[0] + 1, LONG_AGO[1] + 1))
    assert state.stamp() not in {None, before}
    state.close()


def test_a_file_that_another_was_put_in_the_place_of_is_looked_at_again(files: list[Path]):
    state = state_of(files)
    before = state.stamp()
    replaced(files[0])
    assert state.stamp() is None
    after = state.stamp()
    assert after not in {None, before}
    overwritten(files[0])
    assert state.stamp() != after
    state.close()


def test_files_that_are_not_there_have_no_state_and_no_descriptor_is_left(tmp_path: Path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    (tmp_path / "a").write_bytes(b"")
    state = state_of([tmp_path / "a", tmp_path / "missing"])
    assert state.stamp() is None
    state.close()
    state.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_looking_at_a_database_ends_none_of_its_locks(tmp_path: Path):
    """Closing an ordinary descriptor of a file ends all locks that its process has on it."""
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("CREATE TABLE t (x)")
        writer.execute("BEGIN EXCLUSIVE")
        state = state_of([path])
        state.stamp()
        state.close()
        assert b"locked" in _python(READS, str(path))


def _python(code: str, *words: str) -> bytes:
    ended = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, check=False, timeout=30
    )
    return ended.stderr


async def test_a_guarded_token_is_refused_once_the_file_was_replaced(tmp_path: Path):
    async with open_tokens(tmp_path) as server:
        minted = await server.mint("laptop", "operator")
        for name in (FILE_NAME, f"{FILE_NAME}-wal"):
            os.utime(tmp_path / name, LONG_AGO)
        assert await server.verify(minted.token) is not None
        assert server.recall(minted.token.encode()) is not None
        replaced(tmp_path / FILE_NAME)
        assert server.recall(minted.token.encode()) is None
