"""The file itself: it lasts, it is private, it is backed up, and it never says yes by mistake."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bascule.control.registry.service import open_registry
from bascule.control.registry.sqlite_store import MIGRATIONS, SqliteStore, restore
from bascule.control.registry.store import Change
from bascule.db.errors import StoreUnavailable
from bascule.db.sqlite import Commit, Database, plain_commit
from bascule.testing.clock import FakeClock
from tests.control.registry.build import BY, server, write
from tests.waits import SOON_SECONDS, advanced_until


@asynccontextmanager
async def opened(path: Path, commit: Commit = plain_commit) -> AsyncGenerator[SqliteStore, None]:
    store = await SqliteStore(path, synchronous="OFF", commit=commit).open()
    try:
        yield store
    finally:
        await store.close()


@pytest.mark.requirement("registry:revision:durable")
async def test_what_was_written_is_there_when_it_is_opened_again(tmp_path: Path):
    async with opened(tmp_path / "r.db") as store:
        await store.write([write("a"), write("b")], BY)
        await store.write([write("a", display_name="A", owner="a.toml")], BY)
        head, view = await store.head(), await store.view()
    async with opened(tmp_path / "r.db") as store:
        assert (await store.head(), await store.view()) == (head, view)
        assert len(await store.changes(0)) == 2


async def test_the_registry_is_written_with_full_synchronisation(tmp_path: Path):
    store = await SqliteStore(tmp_path / "r.db").open()
    try:
        [(level,), (mode,)] = await store._database.write(
            lambda c: [
                c.execute("PRAGMA synchronous").fetchone(),
                c.execute("PRAGMA journal_mode").fetchone(),
            ]
        )
        assert (level, mode) == (2, "wal")
    finally:
        await store.close()


def modes_in(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


async def test_the_file_is_private(tmp_path: Path):
    async with opened(tmp_path / "r.db") as store:
        await store.write([write("a")], BY)
        await store.backup(tmp_path / "copy.db")
        modes = modes_in(tmp_path)
    assert modes == dict.fromkeys(("r.db", "r.db-wal", "r.db-shm", "copy.db"), 0o600)


@pytest.mark.requirement("registry:store-id")
async def test_a_restored_store_is_another_store(tmp_path: Path):
    async with opened(tmp_path / "r.db") as store:
        await store.write([write("a")], BY)
        await store.backup(tmp_path / "copy.db")
        await store.write([write("b")], BY)
        before = await store.head()
    async with opened(tmp_path / "r.db") as store:
        assert (await store.head()).store_id == before.store_id
    restored = restore(tmp_path / "copy.db", tmp_path / "r.db")
    async with opened(tmp_path / "r.db") as store:
        after = await store.head()
        assert list((await store.view()).objects) == [("server", "a")]
    assert (after.store_id, after.revision) == (restored, 1)
    assert restored != before.store_id


async def test_two_stores_have_two_ids(tmp_path: Path):
    async with opened(tmp_path / "a.db") as one, opened(tmp_path / "b.db") as other:
        assert (await one.head()).store_id != (await other.head()).store_id


async def test_a_migration_makes_a_backup_first(tmp_path: Path):
    path = tmp_path / "r.db"
    async with opened(path) as store:
        await store.write([write("a")], BY)
    newer = Database(path)
    await newer.open([*MIGRATIONS, ["CREATE TABLE more (x TEXT) STRICT"]])
    await newer.close()
    async with opened(tmp_path / f"r.db.form-{len(MIGRATIONS)}") as kept:
        assert list((await kept.view()).objects) == [("server", "a")]
    with pytest.raises(StoreUnavailable, match="newer"):
        await SqliteStore(path).open()


async def test_a_migration_that_fails_leaves_the_older_form(tmp_path: Path):
    path = tmp_path / "r.db"
    async with opened(path) as store:
        await store.write([write("a")], BY)
    with pytest.raises(StoreUnavailable):
        await Database(path).open([*MIGRATIONS, ["CREATE TABLE more (x TEXT)", "nonsense"]])
    async with opened(path) as store:
        assert (await store.head()).revision == 1


async def test_another_programs_database_is_left_alone(tmp_path: Path):
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version = 7")
    other.close()
    with pytest.raises(StoreUnavailable, match="another program"):
        await SqliteStore(path).open()
    (tmp_path / "text.db").write_text(
        "not a database, but long enough to be taken for one" * 50, encoding="utf-8"
    )
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        await SqliteStore(tmp_path / "text.db").open()
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        await SqliteStore(tmp_path / "no" / "folder.db").open()


class FailingDisk:
    """Commits as long as it is well; then fails, before or after the commit took place."""

    def __init__(self, *, really: bool) -> None:
        self.broken = False
        self._really = really
        self.asked = 0

    def __call__(self, connection: sqlite3.Connection, /) -> None:
        self.asked += 1
        if not self.broken or self._really:
            plain_commit(connection)
        if self.broken:
            raise sqlite3.OperationalError("disk I/O error")


@pytest.mark.parametrize("really", [False, True])
async def test_a_failed_commit_is_not_acknowledged_and_ends_all_writing(
    tmp_path: Path, *, really: bool
):
    disk = FailingDisk(really=really)
    async with opened(tmp_path / "r.db", disk) as store:
        heard: list[Change] = []
        store.listen(heard.append)
        await store.write([write("a")], BY)
        disk.broken = True
        with pytest.raises(StoreUnavailable, match="disk I/O error"):
            await store.write([write("b")], BY)
        disk.broken = False
        asked = disk.asked
        with pytest.raises(StoreUnavailable, match="goes on by itself"):
            await store.write([write("c")], BY)
        assert disk.asked == asked, "a poisoned writer must not try again"
        assert "goes on by itself" in (store.refusal or "")
        assert [change.revision for change in heard] == [1]
        assert ("server", "a") in (await store.view()).objects
    async with opened(tmp_path / "r.db") as store:
        assert (await store.head()).revision == (2 if really else 1)
        assert await store.write([write("c")], BY)


async def test_a_disk_that_has_room_again_is_written_to_without_a_restart(tmp_path: Path):
    disk, clock = FailingDisk(really=False), FakeClock()
    store = await SqliteStore(tmp_path / "r.db", clock=clock, commit=disk).open()
    async with open_registry(store, clock=clock) as service:
        disk.broken = True
        with pytest.raises(StoreUnavailable):
            await service.put("server", "a", server("a"), BY)
        await advanced_until(clock, lambda: disk.asked > 1)
        assert service.refusal is not None, "there is no room yet"
        disk.broken = False
        await advanced_until(clock, lambda: service.refusal is None)
        await service.put("server", "a", server("a"), BY)


async def test_what_a_failed_commit_wrote_after_all_is_served(tmp_path: Path):
    disk, clock = FailingDisk(really=True), FakeClock()
    store = await SqliteStore(tmp_path / "r.db", clock=clock, commit=disk).open()
    async with open_registry(store, clock=clock) as service:
        disk.broken = True
        with pytest.raises(StoreUnavailable):
            await service.put("server", "a", server("a"), BY)
        disk.broken = False
        await advanced_until(clock, lambda: service.view.revision == 1)


async def test_a_store_that_refuses_writes_says_why_and_names_no_path(tmp_path: Path):
    disk = FailingDisk(really=False)
    async with opened(tmp_path / "r.db", disk) as store:
        assert store.refusal is None
        disk.broken = True
        with pytest.raises(StoreUnavailable):
            await store.write([write("b")], BY)
        assert store.refusal is not None
        assert "disk I/O error" in store.refusal
        assert str(tmp_path) not in store.refusal


async def test_the_service_still_reads_when_nothing_can_be_written(tmp_path: Path):
    disk = FailingDisk(really=False)
    store = await SqliteStore(tmp_path / "r.db", synchronous="OFF", commit=disk).open()
    async with open_registry(store) as service:
        await service.put("server", "a", server("a"), BY)
        disk.broken = True
        with pytest.raises(StoreUnavailable):
            await service.put("server", "b", server("b"), BY)
        assert service.view.revision == 1
        assert [stored.id for stored in service.view.of_kind("server")] == ["a"]
        assert (await service.history())[0].revision == 1


async def test_a_cancelled_writer_leaves_no_gap_for_watchers(tmp_path: Path):
    """The commit goes on without whoever asked for it, and is told all the same."""
    started, go_on = asyncio.Event(), FailingDisk(really=False)
    loop = asyncio.get_running_loop()

    def slow(connection: sqlite3.Connection, /) -> None:
        loop.call_soon_threadsafe(started.set)
        go_on(connection)

    store = await SqliteStore(tmp_path / "r.db", synchronous="OFF", commit=slow).open()
    async with open_registry(store) as service:
        events = await service.watch(0)
        writing = asyncio.create_task(service.put("server", "a", server("a"), BY))
        async with asyncio.timeout(SOON_SECONDS):
            await started.wait()
            writing.cancel()
            await asyncio.wait([writing])
            await service.put("server", "b", server("b"), BY)
            seen = [(await anext(events)).revision for _ in range(2)]
        assert seen == [1, 2]
        assert service.view.revision == 2


async def test_a_closed_store_says_so(tmp_path: Path):
    store = await SqliteStore(tmp_path / "r.db").open()
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.write([write("a")], BY)
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.view()
