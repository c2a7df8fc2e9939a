"""A registry is the same in another place: records, history, tokens, secrets and the ledger."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from bascule.app.archive import Archive
from bascule.app.copy_keys import CopyKeys
from bascule.app.copy_tables import Part
from bascule.app.copying import Copied, Copying, NotCopied, Source, Target
from bascule.app.data_dir import served_alone
from bascule.app.file_places import DataDirectory
from bascule.app.lost_registry import RegistryLost
from bascule.app.postgres_place import PostgresPlace
from bascule.app.settings import Settings
from bascule.app.stores import open_stores
from bascule.asgi.serve import CannotServe
from bascule.audit.retention import Limits, cut
from bascule.audit.verification import verify
from bascule.clock import SYSTEM_CLOCK
from bascule.control.registry.sqlite_store import SqliteStore
from tests.app.moving import database_seen, directory_seen, fill
from tests.audit.calls import made
from tests.audit.questions import approved, kept, opened_ledger, request, shared_ledger, state
from tests.postgres.databases import database

WITHOUT_SECRETS: frozenset[Part] = frozenset(("secrets",))


class Interrupted(Exception):
    """Whoever copies goes away."""


@pytest.fixture
async def origin(tmp_path: Path) -> Path:
    return tmp_path / "origin"


@pytest.fixture
async def token(origin: Path) -> str:
    """Fill the origin; return a token that is good there."""
    return await fill(origin)


async def copy(source: Source, target: Target, keys: Path, **how: Any) -> Copied:
    return await Copying(source, target, check=CopyKeys(keys).check, **how).run()


async def head_of(data: Path) -> tuple[str, str]:
    store = await SqliteStore(data / "registry.db").open()
    try:
        head = await store.head()
    finally:
        await store.close()
    return head.store_id, head.predecessor


def databases_in(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.glob("*.db")}


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"lock"}


# --- everything arrives


@pytest.mark.requirement("registry:copy")
async def test_a_data_directory_is_copied_with_all_that_is_in_it(
    origin: Path, token: str, tmp_path: Path
):
    seen = await directory_seen(origin, token)
    before = databases_in(origin)
    target = tmp_path / "copy"
    found = await copy(DataDirectory(origin), DataDirectory(target, keys=origin), origin)
    assert await directory_seen(target, token) == seen
    assert databases_in(origin) == before
    store_id, _ = await head_of(origin)
    assert (
        await head_of(target) == (found.store_id, store_id) == (found.store_id, found.predecessor)
    )
    assert found.store_id != store_id
    assert verify(target / "ledger.db").ok
    assert seen["who"].role == "admin"
    assert len(seen["events"]) > 5
    assert (len(seen["changes"]), len(seen["proposals"]), len(seen["pairs"])) == (3, 1, 2)


@pytest.mark.requirement("registry:copy:postgres")
async def test_a_registry_goes_to_postgres_and_back(origin: Path, token: str, tmp_path: Path):
    seen = await directory_seen(origin, token)
    back = tmp_path / "back"
    async with database() as dsn:
        there = PostgresPlace(dsn, keys=origin)
        moved = await copy(DataDirectory(origin), there, origin)
        shared = await database_seen(dsn, origin, token)
        assert shared == {key: seen[key] for key in shared}
        target = DataDirectory(back, keys=origin)
        returned = await copy(PostgresPlace(dsn), target, origin)
    assert await directory_seen(back, token) == seen
    assert (returned.predecessor, moved.predecessor) == (moved.store_id, (await head_of(origin))[0])
    assert verify(back / "ledger.db").anchors == verify(origin / "ledger.db").anchors > 0


@pytest.mark.requirement("registry:backup")
async def test_a_backup_of_either_is_the_same_and_restores_to_both(
    origin: Path, token: str, tmp_path: Path
):
    seen = await directory_seen(origin, token)
    backup, again = tmp_path / "kept", tmp_path / "again"
    async with database() as dsn, database() as other:
        await Copying(DataDirectory(origin), Archive(backup)).run()
        await copy(Archive(backup), PostgresPlace(dsn, keys=origin), origin)
        first = await Copying(PostgresPlace(dsn), Archive(again)).run()
        assert first.predecessor == (await head_of(origin))[0]
        await copy(Archive(again), PostgresPlace(other, keys=origin), origin)
        shared = await database_seen(other, origin, token)
        assert shared == {key: seen[key] for key in shared}
    assert (backup.stat().st_mode & 0o777) == 0o600
    restored = tmp_path / "restored"
    await copy(Archive(backup), DataDirectory(restored, keys=origin), origin)
    assert await directory_seen(restored, token) == seen
    assert (await head_of(restored))[1] == (await head_of(origin))[0]


async def test_a_copy_is_served_and_goes_on(origin: Path, token: str, tmp_path: Path):
    target = tmp_path / "copy"
    await copy(DataDirectory(origin), DataDirectory(target, keys=origin), origin)
    async with open_stores(Settings(data_dir=str(target)), None, lambda _: None) as stores:
        assert await stores.tokens.verify(token) is not None
        assert stores.secrets is not None
        await stores.secrets.set("more", "value", by="ada")
    found = verify(target / "ledger.db")
    assert found.ok
    assert found.rows > verify(origin / "ledger.db").rows


async def test_the_registry_file_alone_is_copied_without_the_rest(
    origin: Path, token: str, tmp_path: Path
):
    seen = await directory_seen(origin, token)
    target = tmp_path / "copy"
    alone = DataDirectory(origin, parts=("registry",))
    found = await copy(alone, DataDirectory(target, keys=origin), origin)
    assert {table.name.partition(".")[0] for table in found.tables} == {"registry"}
    async with open_stores(Settings(data_dir=str(target)), None, lambda _: None) as stores:
        assert stores.service.view.objects == seen["views"][-1]
        assert await stores.tokens.verify(token) is None


# --- what is refused, with nothing left behind


@pytest.mark.requirement("registry:copy:all-or-nothing")
async def test_a_place_that_is_not_empty_is_refused(origin: Path, token: str, tmp_path: Path):
    del token
    target = DataDirectory(tmp_path / "copy", keys=origin)
    await copy(DataDirectory(origin), target, origin)
    before = databases_in(target.path)
    with pytest.raises(NotCopied, match=r"is not empty: it has ledger\.db"):
        await copy(DataDirectory(origin), target, origin)
    assert databases_in(target.path) == before
    with pytest.raises(NotCopied, match="exists"):
        await Copying(DataDirectory(origin), Archive(tmp_path)).run()
    async with database() as dsn:
        there = PostgresPlace(dsn, keys=origin)
        await copy(DataDirectory(origin), there, origin)
        with pytest.raises(NotCopied, match="is not empty: it has a registry"):
            await copy(DataDirectory(origin), there, origin)


async def test_a_source_that_is_served_or_was_killed_is_refused(
    origin: Path, token: str, tmp_path: Path
):
    del token
    target = DataDirectory(tmp_path / "copy", keys=origin)
    with served_alone(origin):
        with pytest.raises(CannotServe, match="served by another process"):
            await copy(DataDirectory(origin), target, origin)
        await Copying(DataDirectory(origin, served=True), Archive(tmp_path / "backup")).run()
    left = origin / "journal" / "0123456789abcdef.000001.journal"
    left.write_bytes(b"an event")
    with pytest.raises(NotCopied, match="that the ledger has not taken in"):
        await copy(DataDirectory(origin), target, origin)
    assert not target.path.exists()


@pytest.mark.requirement("registry:copy:all-or-nothing")
@pytest.mark.parametrize("kind", ["directory", "backup", "postgres"])
async def test_an_interrupted_copy_leaves_nothing_and_can_be_begun_again(
    origin: Path, token: str, tmp_path: Path, kind: str
):
    def interrupt(words: str) -> None:
        if words.startswith("verifying"):
            raise Interrupted

    async with place(kind, tmp_path, origin) as target:
        with pytest.raises(Interrupted):
            await Copying(DataDirectory(origin), target, told=interrupt).run()
        if isinstance(target, DataDirectory):
            assert names_in(target.path) == set()
        found = await Copying(DataDirectory(origin), target).run()
    assert found.revision == 7
    assert token


@asynccontextmanager
async def place(kind: str, folder: Path, keys: Path) -> AsyncGenerator[Target, None]:
    if kind == "postgres":
        async with database() as dsn:
            yield PostgresPlace(dsn, keys=keys)
    else:
        path = folder / kind
        yield Archive(path) if kind == "backup" else DataDirectory(path, keys=keys)


@pytest.mark.requirement("registry:copy:all-or-nothing")
async def test_a_copy_that_was_killed_is_not_served_and_is_begun_again(
    origin: Path, token: str, tmp_path: Path
):
    target = tmp_path / "copy"
    await copy(DataDirectory(origin), DataDirectory(target, keys=origin), origin)
    # As a process leaves it that is killed before the last file takes its place.
    (target / "copying").mkdir()
    (target / "registry.db").rename(target / "copying" / "registry.db")
    with pytest.raises(RegistryLost, match="was interrupted: begin it again"):
        async with open_stores(Settings(data_dir=str(target)), None, lambda _: None):
            pass
    await copy(DataDirectory(origin), DataDirectory(target, keys=origin), origin)
    assert await directory_seen(target, token) == await directory_seen(origin, token)
    assert not (target / "copying").exists()


def spoil(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as file, file:
        for statement in statements:
            file.execute(statement)


@pytest.mark.requirement("registry:copy")
@pytest.mark.parametrize(
    ("name", "statement", "words"),
    [
        ("ledger.db", "UPDATE events SET place = 99 WHERE number = 2", "does not verify"),
        ("ledger.db", "DELETE FROM events WHERE number = 3", "does not verify"),
        ("ledger.db", "UPDATE events SET body = x'00' WHERE number = 2", "is not an event"),
        ("secrets.db", "UPDATE secrets SET sealed = x'00'", "the secret gh was changed"),
        ("tokens.db", "UPDATE tokens SET role = 'admin', seal = x'00'", "is not the one of these"),
        ("registry.db", "PRAGMA user_version = 2", "has form 2 instead of"),
    ],
)
async def test_what_was_changed_is_not_copied(
    origin: Path, token: str, tmp_path: Path, name: str, statement: str, words: str
):
    del token
    spoil(origin / name, statement)
    target = tmp_path / "copy"
    with pytest.raises(NotCopied, match=words):
        await copy(DataDirectory(origin), DataDirectory(target, keys=origin), origin)
    assert not target.exists() or names_in(target) == set()


async def test_a_backup_that_was_damaged_is_not_restored(origin: Path, token: str, tmp_path: Path):
    del token
    backup = tmp_path / "kept"
    await Copying(DataDirectory(origin), Archive(backup)).run()
    spoil(backup, "UPDATE registry_objects SET owner = 'mallory'")
    with pytest.raises(NotCopied, match=r"is damaged: registry\.objects"):
        await copy(Archive(backup), DataDirectory(tmp_path / "copy", keys=origin), origin)
    with pytest.raises(NotCopied, match="is not a backup"):
        await copy(Archive(origin / "ledger.db"), DataDirectory(tmp_path / "copy"), origin)


@pytest.mark.requirement("registry:copy:keys")
async def test_a_copy_without_its_keys_is_refused(origin: Path, token: str, tmp_path: Path):
    del token
    backup, empty = tmp_path / "kept", tmp_path / "empty"
    await Copying(DataDirectory(origin), Archive(backup)).run()
    empty.mkdir()
    with pytest.raises(NotCopied, match=r"server\.key is missing"):
        await copy(Archive(backup), DataDirectory(empty), empty)
    (empty / "server.key").write_bytes(bytes(32))
    (empty / "server.key").chmod(0o600)
    with pytest.raises(NotCopied, match="is not the one of these tokens"):
        await copy(Archive(backup), DataDirectory(empty), empty)
    shutil.copy(origin / "server.key", empty)
    with pytest.raises(NotCopied, match="--without-secrets"):
        await copy(Archive(backup), DataDirectory(empty), empty)
    found = await copy(Archive(backup), DataDirectory(empty), empty, without=WITHOUT_SECRETS)
    assert "secrets.secrets" not in {table.name for table in found.tables}


# --- the ledger


def events_in(data: Path) -> list[bytes]:
    with closing(sqlite3.connect(data / "ledger.db")) as ledger:
        return [body for (body,) in ledger.execute("SELECT body FROM events ORDER BY number")]


async def cut_front(data: Path) -> None:
    """Cut off the ledger's front what is there by now, as after some days."""
    with closing(sqlite3.connect(data / "ledger.db")) as ledger, ledger:
        assert cut(ledger, Limits(max_days=1), SYSTEM_CLOCK.now() + 2 * 86_400, "retention")
    async with opened_ledger(data) as ledger:
        await ledger.note(made(0))


async def replicas_write(dsn: str, folder: Path) -> list[bytes]:
    """Have two replicas write to the ledger by turns; return all events, in the order of rows."""
    async with shared_ledger(dsn, folder / "a") as one, shared_ledger(dsn, folder / "b") as two:
        for number, ledger in enumerate((one, two, one, two), start=1):
            await ledger.note(made(number))
            await ledger.taken_in()
    connection = await asyncpg.connect(dsn)
    try:
        assert await connection.fetchval("SELECT count(*) FROM ledger_chains") == 3
        rows = await connection.fetch("SELECT body FROM ledger_events ORDER BY number")
    finally:
        await connection.close()
    return [row[0] for row in rows]


@pytest.mark.requirement("registry:copy:chains")
@pytest.mark.parametrize("front", ["whole", "cut"])
async def test_the_chains_of_several_replicas_are_joined_to_one_that_verifies(
    origin: Path, token: str, tmp_path: Path, front: str
):
    assert token
    if front == "cut":
        await cut_front(origin)
    before = verify(origin / "ledger.db")
    back, kept_file = tmp_path / "back", tmp_path / "kept"
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with database() as dsn, database() as other:
        there = PostgresPlace(dsn, keys=origin)
        await copy(DataDirectory(origin), there, origin)
        events = await replicas_write(dsn, tmp_path)
        await Copying(PostgresPlace(dsn), Archive(kept_file)).run()
        await copy(PostgresPlace(dsn), DataDirectory(back, keys=origin), origin)
        await copy(Archive(kept_file), PostgresPlace(other, keys=origin), origin)
        went_on = await replicas_write(other, tmp_path)  # in the chains that they had
        assert (went_on[: len(events)], len(went_on)) == (events, len(events) + 4)
    assert events_in(back) == events
    found = verify(back / "ledger.db")
    assert (found.ok, found.rows, found.anchors) == (True, before.rows + 4, 0)
    assert found.first == before.first
    async with opened_ledger(back) as ledger:
        await ledger.note(made(9))
    assert verify(back / "ledger.db").ok


@pytest.mark.requirement("registry:copy:approvals")
async def test_what_waits_for_approval_is_void_in_a_copy(origin: Path, token: str, tmp_path: Path):
    assert token
    async with kept(origin) as approvals:
        open_one = await approved(approvals, request())
    target, replica = tmp_path / "copy", tmp_path / "replica"
    replica.mkdir()
    async with database() as dsn:
        there = PostgresPlace(dsn, keys=origin)
        await copy(DataDirectory(origin), there, origin)
        async with kept(replica, dsn=dsn) as approvals:
            assert await state(approvals, open_one.id) == "void"
    await copy(DataDirectory(origin), DataDirectory(target, keys=origin), origin)
    async with kept(target) as approvals:
        assert await state(approvals, open_one.id) == "void"
    async with kept(origin) as approvals:
        assert await state(approvals, open_one.id) == "approved"
