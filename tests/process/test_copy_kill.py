"""A copy of a registry that is killed is refused or not there; begun again, it is whole."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from abc import ABC, abstractmethod
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import pytest

from bascule.app.lost_registry import RegistryLost
from bascule.app.postgres_tables import FORMS, USED
from bascule.app.settings import Settings
from bascule.app.stores import open_stores
from tests.app.moving import database_seen, directory_seen, fill
from tests.postgres.databases import database
from tests.process.nursery import NEVER, nursery, worked
from tests.scale import SOAK

#: How many moments of a copy are tried in the ordinary run, besides renames.
TRIED, LAST = 6, 3
Seen = dict[str, Any]


class Place(ABC):
    """A place that a registry is copied to again and again."""

    def __init__(self, folder: Path, origin: Path) -> None:
        self.folder = folder
        self.origin = origin

    @property
    @abstractmethod
    def words(self) -> tuple[str, ...]:
        """Return the command that copies to here."""

    @abstractmethod
    async def seen(self, token: str) -> Seen | None:
        """Return what is found here; None when that is nothing, or what nobody serves."""


class Directory(Place):
    """A data directory."""

    @property
    def words(self) -> tuple[str, ...]:
        return "copy", str(self.origin), str(self.folder / "data")

    async def seen(self, token: str) -> Seen | None:
        data = self.folder / "data"
        if (data / "registry.db").exists():
            return await directory_seen(data, token)
        if not (data / "copying").exists():
            assert not list(data.glob("*.db")), "half a copy, which would be served"
            return None
        with pytest.raises(RegistryLost, match="was interrupted: begin it again"):
            async with open_stores(Settings(data_dir=str(data)), None, lambda _: None):
                pass
        return None


class Backup(Place):
    """A backup, which says the digest of every table."""

    @property
    def words(self) -> tuple[str, ...]:
        return "backup", str(self.folder / "backup"), "--data-dir", str(self.origin)

    async def seen(self, token: str) -> Seen | None:
        path = self.folder / "backup"
        if not path.exists():
            return None
        with closing(sqlite3.connect(path)) as backup:
            return dict(backup.execute("SELECT name, digest FROM contents"))


class Database(Place):
    """A PostgreSQL."""

    dsn = ""

    @property
    def words(self) -> tuple[str, ...]:
        return "copy", str(self.origin), self.dsn

    async def seen(self, token: str) -> Seen | None:
        connection = await asyncpg.connect(self.dsn)
        try:
            made = await connection.fetchval("SELECT to_regclass('bascule_forms')")
            forms = await connection.fetch("SELECT part FROM bascule_forms") if made else ()
            if len(forms) < len(FORMS):
                return None  # nobody has come as far as the rows
            used = [await connection.fetchval(query) for query in USED.values()]
        finally:
            await connection.close()
        return await database_seen(self.dsn, self.origin, token) if any(used) else None


PLACES: Mapping[str, type[Place]] = {
    "directory": Directory,
    "backup": Backup,
    "postgres": Database,
}


class Ended(NamedTuple):
    """How a command ended that was not killed."""

    code: int
    moments: int
    renames: list[int]


async def ran(process: Process, moment: int, words: tuple[str, ...]) -> Ended | None:
    """Run a command up to a moment; return how it ended, None if it was killed."""
    said = await worked(process, json.dumps([moment, "registry", *words]))
    ends = [line.removeprefix("ended ") for line in said if line.startswith("ended ")]
    return Ended(*json.loads(ends[0])) if ends else None


async def whole(process: Process, words: tuple[str, ...]) -> Ended:
    """Run a command to its end."""
    ended = await ran(process, NEVER, words)
    assert ended is not None
    return ended


def tried(found: Ended) -> list[int]:
    """Return the moments that are tried: all, or the renames, the last ones and some others."""
    moments = range(1, found.moments + 1)
    if SOAK:
        return list(moments)
    return sorted({*found.renames, *moments[-LAST:], *random.Random(20).sample(moments, TRIED)})


@pytest.mark.timeout(1_800)
@pytest.mark.requirement("registry:copy:all-or-nothing")
@pytest.mark.parametrize("kind", PLACES)
async def test_a_copy_that_is_killed_at_any_moment_is_not_served_and_is_begun_again(
    kind: str, tmp_path: Path
):
    origin = tmp_path / "origin"
    token = await fill(origin)
    to = PLACES[kind](tmp_path / "to", origin)
    async with nursery("doomed_command") as process:
        async with emptied(to):
            first = await whole(process, to.words)
            wanted = await to.seen(token)
        assert (first.code, wanted is not None) == (0, True)
        killed = 0
        for moment in tried(first):
            async with emptied(to):
                killed += await ran(process, moment, to.words) is None
                left = await to.seen(token)
                assert left in (None, wanted), "half a copy is served"
                again = await whole(process, to.words)
                assert again.code == (0 if left is None else 1)
                assert await to.seen(token) == wanted
        assert killed >= TRIED


@asynccontextmanager
async def emptied(to: Place) -> AsyncGenerator[None]:
    """Have nothing at a place when it begins."""
    shutil.rmtree(to.folder, ignore_errors=True)
    to.folder.mkdir()
    if not isinstance(to, Database):
        yield
        return
    async with database() as to.dsn:
        yield
