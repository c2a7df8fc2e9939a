"""Marks: each revision has its own, so that two histories with the same numbers are told apart."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bascule.control.registry.sqlite_store import MIGRATIONS, SqliteStore, restore
from bascule.control.registry.store import Retention, Store
from bascule.db.sqlite import Database
from tests.control.registry.build import BY, write

#: The form of ``registry.db`` that had no marks yet.
UNMARKED = 2


async def rename(store: Store, count: int) -> None:
    for _ in range(count):
        name = f"after {(await store.head()).revision}"
        await store.write([write("fs", display_name=name)], BY)


@pytest.mark.requirement("registry:mark")
async def test_every_revision_has_a_mark_of_its_own(store: Store):
    await rename(store, 3)
    marks = [await store.mark_at(revision) for revision in range(4)]
    assert len(set(marks)) == 4
    assert all(mark and re.fullmatch("[0-9a-f]{16}", mark) for mark in marks)
    assert [change.mark for change in await store.changes(0)] == marks[1:]
    assert [change.mark for change in await store.history()] == marks[:0:-1]
    assert [(await store.view(revision)).mark for revision in range(4)] == marks
    assert (await store.head()).mark == (await store.view()).mark == marks[3]
    assert await store.mark_at(4) is None


async def test_a_write_answers_with_the_mark_that_is_kept(store: Store):
    change = await store.write([write("fs")], BY)
    assert change is not None
    assert change.mark == await store.mark_at(1)


@pytest.mark.requirement("registry:mark")
async def test_the_mark_of_the_floor_stays_known(store: Store):
    await rename(store, 5)
    marks = [await store.mark_at(revision) for revision in range(6)]
    assert await store.compact(Retention(changes=2)) == 3
    kept = [await store.mark_at(revision) for revision in range(6)]
    assert kept == [None, None, None, *marks[3:]]
    assert (await store.view(3)).mark == marks[3]
    assert await store.compact(Retention(changes=0)) == 5
    assert (await store.head()).mark == marks[5]


async def test_two_stores_have_other_marks_from_the_beginning(tmp_path: Path):
    marks: set[str] = set()
    for name in ("a.db", "b.db"):
        store = await SqliteStore(tmp_path / name, synchronous="OFF").open()
        marks.add((await store.head()).mark)
        await store.close()
    assert len(marks) == 2


@pytest.mark.requirement("registry:mark")
async def test_a_store_without_marks_is_given_them_once(tmp_path: Path):
    path = tmp_path / "r.db"
    older = Database(path)
    await older.open(MIGRATIONS[:UNMARKED])
    await older.write(
        lambda c: (
            [
                c.execute("INSERT INTO revisions VALUES (?, 1.0, 'ada', '')", (revision,))
                for revision in (2, 3)
            ]
            and c.execute("UPDATE meta SET revision = 3, floor = 1")
            and None
        )
    )
    await older.close()
    seen: list[list[str | None]] = []
    for _ in range(2):
        store = await SqliteStore(path, synchronous="OFF").open()
        seen.append([await store.mark_at(revision) for revision in range(4)])
        await store.close()
    assert seen[0] == seen[1]
    assert seen[0][0] is None
    assert len(set(seen[0][1:])) == 3
    assert "" not in seen[0]


async def made(path: Path, revisions: int = 1) -> str:
    """Make a store; return its id."""
    store = await SqliteStore(path, synchronous="OFF").open()
    await rename(store, revisions)
    store_id = (await store.head()).store_id
    await store.close()
    return store_id


async def predecessor(path: Path) -> str:
    store = await SqliteStore(path, synchronous="OFF").open()
    try:
        head, view = await store.head(), await store.view()
        assert head.predecessor == view.predecessor == view.snapshot().predecessor
        return head.predecessor
    finally:
        await store.close()


@pytest.mark.requirement("registry:store-id:predecessor")
async def test_a_restored_store_names_the_one_that_it_replaces(tmp_path: Path):
    backup, live = tmp_path / "copy.db", tmp_path / "r.db"
    copied, replaced = await made(backup), await made(live)
    assert await predecessor(live) == ""
    restored = restore(backup, live)
    assert await predecessor(live) == replaced
    restore(backup, live)
    assert await predecessor(live) == restored
    restore(backup, tmp_path / "elsewhere.db")
    assert await predecessor(tmp_path / "elsewhere.db") == copied


async def test_a_store_that_cannot_be_read_is_replaced_by_a_backup_of_it(tmp_path: Path):
    backup, live = tmp_path / "copy.db", tmp_path / "r.db"
    copied = await made(backup)
    live.write_bytes(b"no database" * 500)
    restore(backup, live)
    assert await predecessor(live) == copied


async def test_a_backup_of_an_older_form_is_restored(tmp_path: Path):
    backup, live = tmp_path / "copy.db", tmp_path / "r.db"
    older = Database(backup)
    await older.open(MIGRATIONS[:UNMARKED])
    await older.close()
    with closing(sqlite3.connect(backup)) as connection:
        [copied] = connection.execute("SELECT store_id FROM meta").fetchone()
    restore(backup, live)
    assert await predecessor(live) == copied
