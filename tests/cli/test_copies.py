"""``bascule registry copy``, ``backup`` and ``restore`` as somebody types them."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bascule.app.copy_tables import COUNT, sqlite_sql
from tests.app.moving import database_seen, directory_seen, fill
from tests.cli.served import Done, command, served
from tests.postgres.databases import database

PASSWORD = "postgresql://u:letmein@h/d"


async def run(*words: str, **env: str) -> Done:
    return await asyncio.to_thread(command, "registry", *words, **env)


@pytest.fixture
async def origin(tmp_path: Path) -> Path:
    return tmp_path / "origin"


@pytest.fixture
async def token(origin: Path) -> str:
    return await fill(origin)


@pytest.mark.requirement("cli:registry-copy")
async def test_a_registry_moves_to_postgres_and_back_as_printed(
    origin: Path, token: str, tmp_path: Path
):
    seen = await directory_seen(origin, token)
    async with database() as dsn:
        there = await run("copy", str(origin), dsn, "--json")
        assert there.code == 0, there.err
        shared = await database_seen(dsn, origin, token)
        assert shared == {key: seen[key] for key in shared}
        back = await run("copy", dsn, str(tmp_path / "back"), "--keys", str(origin))
        assert back.code == 0, back.err
        again = await run("copy", str(origin), dsn)
    assert (again.code, "is not empty: it has a registry" in again.err) == (1, True)
    before = there.json["store_id"]
    assert f"which names {before} as the one before it" in back.out
    rows = {table["name"]: table["rows"] for table in there.json["tables"]}
    assert rows["registry.revisions"] == len(seen["changes"])
    assert all(len(table["digest"]) == 64 for table in there.json["tables"])
    assert any("server.key" in note for note in there.json["notes"])
    assert await directory_seen(tmp_path / "back", token) == seen
    assert any("secrets.key" in note for note in there.json["notes"])
    assert "whose chain was verified" in back.out


@pytest.mark.requirement("cli:registry-backup")
def test_a_backup_is_made_while_it_is_served_and_restored_with_its_keys(tmp_path: Path):
    data, backup, restored = tmp_path / "data", tmp_path / "backup", tmp_path / "restored"
    with served(data, "--empty") as up:
        assert up("servers", "add", "mine", "--", "true").code == 0
        made = command("registry", "backup", str(backup), "--data-dir", str(data))
        assert (made.code, "server.key" in made.err) == (0, True)
        blocked = command("registry", "copy", str(data), str(tmp_path / "copy"))
        assert (blocked.code, "is served by another process" in blocked.err) == (1, True)
    missing = command("registry", "restore", str(backup), "--data-dir", str(restored))
    assert (missing.code, "server.key is missing" in missing.err) == (1, True)
    restored.mkdir(mode=0o700, exist_ok=True)
    shutil.copy(data / "server.key", restored)
    done = command("registry", "restore", str(backup), "--data-dir", str(restored), "--json")
    assert done.code == 0, done.err
    with served(restored, "--empty") as up:
        assert "mine" in up("servers", "list").out


@pytest.mark.requirement("cli:registry-backup")
async def test_a_backup_of_a_postgres_is_a_file_that_restores_to_either(
    origin: Path, token: str, tmp_path: Path
):
    seen = await directory_seen(origin, token)
    backup, where = tmp_path / "backup", ("--data-dir", str(origin))
    async with database() as dsn, database() as other:
        assert (await run("copy", str(origin), dsn)).code == 0
        assert (await run("backup", str(backup), *where, BASCULE_DSN=dsn)).code == 0
        done = await run("restore", str(backup), *where, BASCULE_DSN=other)
        assert done.code == 0, done.err
        shared = await database_seen(other, origin, token)
    assert shared == {key: seen[key] for key in shared}


def test_a_dsn_with_a_password_is_not_taken_from_the_command_line(tmp_path: Path):
    for words in ((PASSWORD, str(tmp_path / "to")), (str(tmp_path), PASSWORD)):
        done = command("registry", "copy", *words)
        assert done.code == 2
        assert "PGPASSFILE" in done.err
        assert "letmein" not in done.err
    assert command("registry", "copy", "postgresql://h:x/d", str(tmp_path / "to")).code == 2


def test_a_place_that_has_no_registry_is_told(tmp_path: Path):
    done = command("registry", "copy", str(tmp_path / "none"), str(tmp_path / "to"))
    assert (done.code, "has no registry" in done.err) == (1, True)
    assert not (tmp_path / "to").exists()
    (tmp_path / "file").write_bytes(b"no database")
    done = command("registry", "restore", str(tmp_path / "file"), "--data-dir", str(tmp_path))
    assert (done.code, "cannot be read" in done.err) == (1, True)


def test_a_ledger_without_a_row_yet_counts_from_nothing():
    """A backup may come before the first event has left the journal."""
    with closing(sqlite3.connect(":memory:")) as ledger:
        ledger.executescript("CREATE TABLE events (number); CREATE TABLE meta (key, value)")
        assert ledger.execute(sqlite_sql(COUNT).read).fetchall() == [(0, 0)]
