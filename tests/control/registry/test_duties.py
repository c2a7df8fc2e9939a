"""What only one replica does at a time, and whose files count where copies differ."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bascule.clock import Clock
from bascule.control.registry.copies import ALIVE_SECONDS, TURN_SECONDS, FileTurns
from bascule.control.registry.duties import Duties, FileCopy, LocalDuties
from bascule.control.registry.loader import Loader
from bascule.control.registry.postgres_duties import PostgresDuties
from bascule.control.registry.service import RegistryService, Settings, Written, open_registry
from bascule.control.registry.store import Retention
from bascule.db.errors import StoreUnavailable
from bascule.db.postgres import Postgres
from bascule.errors import InvalidRecord
from bascule.testing.clock import FakeClock
from tests.control.registry.build import BY, server
from tests.control.registry.memory_duties import MemoryDuties, Office
from tests.control.registry.memory_store import MemoryStore
from tests.postgres.databases import database

Make = Callable[[str], Duties]


@pytest.fixture(params=["memory", "postgres"])
async def make(request: pytest.FixtureRequest) -> AsyncGenerator[Make, None]:
    """Return what makes the duties of a replica by its name."""
    office = Office()
    if request.param == "memory":
        yield lambda name: MemoryDuties(office, name)
        return
    async with AsyncExitStack() as stack:
        dsn = await stack.enter_async_context(database())
        opened = [await Postgres(dsn).open() for _ in range(2)]
        for one in opened:
            stack.push_async_callback(one.close)
            await PostgresDuties(one, "first").open()
        yield lambda name: PostgresDuties(opened[name != "a"], name)


# --- one at a time


@pytest.mark.requirement("registry:duties")
async def test_a_duty_is_one_replicas_until_it_lets_go(make: Make):
    a, b = make("a"), make("b")
    async with a.mine("files") as mine, b.mine("files") as too, b.mine("compaction") as another:
        assert (mine, too, another) == (True, False, True)
    async with b.mine("files") as free:
        assert free


async def test_who_is_alone_has_every_duty():
    duties = LocalDuties()
    async with duties.mine("files") as first, duties.mine("files") as second:
        assert (first, second) == (True, True)


@pytest.mark.requirement("registry:duties")
async def test_a_duty_dies_with_the_connection_of_its_owner():
    async with database() as dsn:
        a, b = await Postgres(dsn).open(), await Postgres(dsn).open()
        async with PostgresDuties(a, "a").mine("files") as mine:
            assert mine
            await b.statement(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks"
                " WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database"
                " WHERE datname = current_database())"
            )
            async with PostgresDuties(b, "b").mine("files") as taken:
                assert taken
        await a.close()
        await b.close()


async def test_copies_are_kept_by_replica(make: Make):
    a, b = make("a"), make("b")
    assert await a.copies() == ()
    first = FileCopy(replica="a", digest="1", seen_at=1.0)
    second = FileCopy(replica="b", digest="2", seen_at=2.0, load=1)
    await a.keep_copy(first)
    await b.keep_copy(second)
    assert await a.copies() == await b.copies() == (first, second)
    third = FileCopy(replica="a", digest="3", seen_at=3.0, load=2)
    await a.keep_copy(third)
    assert await b.copies() == (third, second)


@pytest.mark.requirement("registry:duties")
async def test_what_another_replica_compacts_is_left_to_it(clock: FakeClock):
    office = Office()
    store = MemoryStore(clock=clock)
    settings = Settings(retention=Retention(changes=1))
    duties = MemoryDuties(office, "a")
    async with open_registry(store, clock=clock, settings=settings, duties=duties) as service:
        for number in range(5):
            await service.put("server", "fs", server("fs", display_name=str(number)), BY)
        async with MemoryDuties(office, "b").mine("compaction"):
            await clock.advance(settings.compact_seconds)
            assert (await service.head()).floor == 0
        await clock.advance(settings.compact_seconds)
        assert (await service.head()).floor == 4


# --- copies of files


def record(server_id: str) -> str:
    return f'server_id = "{server_id}"\ntransport = "stdio"\n[stdio]\ncommand = "true"\n'


class Replica:
    """A replica with a copy of the files."""

    def __init__(
        self, name: str, folder: Path, service: RegistryService, duties: Duties, clock: Clock
    ) -> None:
        folder.mkdir()
        self.name, self.folder = name, folder
        self.turns = FileTurns(Loader(service, folder), duties, clock)

    async def has(self, *servers: str) -> None:
        """Replace the copy."""
        await asyncio.to_thread(self._replace, servers)

    def _replace(self, servers: Sequence[str]) -> None:
        for path in self.folder.glob("*.toml"):
            path.unlink()
        for one in servers:
            (self.folder / f"{one}.toml").write_text(record(one), encoding="utf-8")

    async def look(self) -> Written:
        return await self.turns.load()


class Site:
    """Two replicas on one registry, each with a copy of the files."""

    def __init__(self, service: RegistryService, make: Make, folder: Path, clock: FakeClock):
        self.service, self.clock = service, clock
        self.a, self.b = (
            Replica(name, folder / name, service, make(name), clock) for name in ("a", "b")
        )

    @property
    def servers(self) -> set[str]:
        return set(self.service.snapshot().servers)

    async def both_look(self, seconds: float = 30.0) -> None:
        """Let time pass, and both look at their files."""
        self.clock.jump(seconds)
        await self.a.look()
        await self.b.look()


@pytest.fixture
async def site(make: Make, tmp_path: Path, clock: FakeClock) -> AsyncGenerator[Site, None]:
    async with open_registry(MemoryStore(clock=clock), clock=clock) as service:
        yield Site(service, make, tmp_path, clock)


@pytest.mark.requirement("loading:replicas")
async def test_of_equal_copies_one_is_loaded(site: Site):
    await site.a.has("fs")
    await site.b.has("fs")
    for _ in range(3):
        await site.both_look()
    assert (site.servers, site.service.view.revision) == ({"fs"}, 1)
    assert site.service.view.objects["server", "fs"].owner == f"{site.a.folder}/fs.toml"
    assert (site.a.turns.trouble, site.b.turns.trouble) == (None, None)


@pytest.mark.requirement("loading:replicas")
async def test_replicas_whose_copies_differ_do_not_undo_each_other(site: Site):
    await site.a.has("fs")
    await site.b.has("fs", "web")
    for _ in range(5):
        await site.both_look()
    assert (site.servers, site.service.view.revision) == ({"fs"}, 1)
    trouble = site.b.turns.trouble
    assert trouble is not None
    assert "'a'" in trouble
    assert "'b'" in trouble
    assert "make the copies equal" in trouble
    assert (await site.b.look()).problems == (trouble,)
    await site.a.has("fs", "web")
    await site.both_look()
    assert (site.servers, site.b.turns.trouble) == ({"fs", "web"}, None)


@pytest.mark.requirement("loading:replicas")
async def test_a_copy_that_changes_is_loaded_and_the_other_gives_way(site: Site):
    for one in (site.a, site.b):
        await one.has("fs")
    await site.both_look()
    await site.b.has("fs", "web")
    await site.both_look()
    assert (site.servers, site.service.view.revision) == ({"fs", "web"}, 2)
    await site.both_look()
    assert (site.servers, site.service.view.revision) == ({"fs", "web"}, 2)
    assert site.a.turns.trouble is not None
    await site.a.has("fs", "web")
    await site.both_look()
    assert (site.a.turns.trouble, site.service.view.revision) == (None, 2)


@pytest.mark.requirement("loading:replicas")
async def test_what_a_replica_that_is_gone_loaded_does_not_hold_the_others_back(site: Site):
    await site.a.has("fs")
    await site.b.has("web")
    await site.both_look()
    assert site.servers == {"fs"}
    site.clock.jump(ALIVE_SECONDS - 1)
    await site.b.look()
    assert site.servers == {"fs"}
    site.clock.jump(2)
    await site.b.look()
    assert site.servers >= {"web"}
    assert site.b.turns.trouble is None


async def test_what_a_replica_loaded_counts_while_its_files_cannot_be_read(site: Site):
    await site.a.has("fs")
    await site.b.has("web")
    await site.both_look()
    hidden = await asyncio.to_thread(site.a.folder.rename, site.a.folder.with_name("hidden"))
    for _ in range(5):
        site.clock.jump(30)
        with pytest.raises(InvalidRecord):
            await site.a.look()
        await site.b.look()
    assert site.servers == {"fs"}
    hidden.rename(site.a.folder)
    await site.a.look()
    assert site.servers == {"fs"}


async def test_a_replica_with_an_equal_copy_speaks_for_one_that_is_gone(
    site: Site, make: Make, tmp_path: Path
):
    await site.a.has("fs")
    await site.b.has("web")
    third = Replica("c", tmp_path / "c", site.service, make("c"), site.clock)
    await third.has("fs")
    await site.both_look()
    for _ in range(4):
        site.clock.jump(30)
        await third.look()
        await site.b.look()
    assert site.servers == {"fs"}
    assert site.b.turns.trouble is not None


async def test_a_replica_waits_for_another_that_loads_but_not_for_ever(
    tmp_path: Path, clock: FakeClock
):
    office = Office()
    async with open_registry(MemoryStore(clock=clock), clock=clock) as service:
        a = Replica("a", tmp_path / "a", service, MemoryDuties(office, "a"), clock)
        await a.has("fs")
        async with MemoryDuties(office, "b").mine("files"):
            looking = asyncio.create_task(a.look())
            await clock.advance(TURN_SECONDS - 1)
            assert not looking.done()
            await clock.advance(2)
            with pytest.raises(StoreUnavailable, match="another replica"):
                await looking
        await a.look()
        assert set(service.snapshot().servers) == {"fs"}


async def test_a_replica_that_names_no_files_has_no_copy(site: Site, make: Make, tmp_path: Path):
    demo = tmp_path / "demo"
    demo.mkdir()
    (demo / "demo.toml").write_text(record("demo"), encoding="utf-8")
    bare = FileTurns(Loader(site.service, defaults=demo), make("bare"), site.clock)
    await bare.load()
    assert site.servers == {"demo"}
    await site.a.has("fs")
    await site.a.look()
    await bare.load()
    assert (site.servers, bare.trouble) == ({"demo", "fs"}, None)


async def test_who_is_alone_loads_whenever_it_looks(tmp_path: Path, clock: FakeClock):
    async with open_registry(MemoryStore(clock=clock), clock=clock) as service:
        alone = Replica("a", tmp_path / "a", service, service.duties, clock)
        await alone.has("fs")
        await alone.look()
        await alone.has("web")
        clock.jump(10 * ALIVE_SECONDS)
        assert (await alone.look()).problems == ()
        assert set(service.snapshot().servers) == {"web"}
