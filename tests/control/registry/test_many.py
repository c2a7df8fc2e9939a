"""Many records: the work grows with what changed, and the event loop goes on meanwhile.

Work is counted (comparisons, files read, transactions, rows), never timed.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bascule.clock import SystemClock
from bascule.control.registry.loader import Loader
from bascule.control.registry.plan import Draft, Namespaces
from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.registry.sqlite_store import SqliteStore
from bascule.control.registry.store import Author, Change, View, Write
from bascule.model.server import ServerRecord
from bascule.model.session import SessionRequest
from bascule.model.snapshot import Position, Snapshot
from bascule.policy.compose import compose
from tests.control.registry.build import BY, server
from tests.control.registry.memory_store import MemoryStore

MANY = 600


class Counted(str):
    """A server's id that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__ne__(self, other)

    __hash__ = str.__hash__


class CountingStore(MemoryStore):
    """A store that counts the transactions it is asked for."""

    writes = 0

    async def write(
        self, writes: Sequence[Write], by: Author, *, base: Position | None = None
    ) -> Change | None:
        self.writes += 1
        return await super().write(writes, by, base=base)


def records(count: int) -> list[ServerRecord]:
    Counted.compared = 0
    return [
        ServerRecord(server_id=Counted(f"s{n}"), transport="stdio", allowed_tools=("*",))
        for n in range(count)
    ]


@pytest.mark.requirement("registry:many-records")
def test_a_namespace_is_looked_up_and_not_searched_for():
    many = records(MANY)
    claims = Namespaces(many)
    assert not [problem for one in many if (problem := claims.problem(one)) is not None]
    assert Counted.compared <= 2 * MANY


@pytest.mark.requirement("registry:many-records")
def test_a_session_of_many_servers_is_composed_without_searching_for_each():
    many = records(MANY)
    registry = Snapshot(servers={one.server_id: one for one in many})
    Counted.compared = 0
    effective = compose(registry, None, SessionRequest(server_ids=tuple(registry.servers)))
    assert len(effective.servers) == MANY
    assert Counted.compared <= 10 * MANY


def folder_of(path: Path, count: int) -> Path:
    path.mkdir()
    for n in range(count):
        file = path / f"s{n}.toml"
        file.write_text(_text(n, "true"), encoding="utf-8")
        os.utime(file, (1_700_000_000, 1_700_000_000))
    return path


def _text(number: int, command: str) -> str:
    return (
        f'server_id = "s{number}"\ntransport = "stdio"\nallowed_tools = ["*"]\n'
        f'[stdio]\ncommand = "{command}"\n'
    )


def _settle(loader: Loader) -> None:
    """Let the files look old: one that was written just now is read again, to be sure."""
    for source in loader._sources:
        source.memory._clock = _Later()


class _Later(SystemClock):
    """The machine's time, an hour on."""

    def now(self) -> float:
        return super().now() + 3600


@pytest.mark.requirement("loading:reload:unchanged")
async def test_a_rescan_that_finds_nothing_changed_reads_no_file_and_asks_nothing_of_the_store(
    tmp_path: Path,
):
    store = CountingStore()
    async with open_registry(store) as service:
        loader = Loader(service, folder_of(tmp_path / "records", 20))
        _settle(loader)
        memory = loader._sources[0].memory
        first = await loader.load()
        assert (first.revision, memory.reads, store.writes) == (1, 20, 1)
        again = await loader.load()
        assert (again.revision, again.change, again.problems) == (1, None, ())
        assert (memory.reads, store.writes) == (20, 1)


@pytest.mark.requirement("loading:reload:unchanged")
async def test_a_rescan_reads_the_one_file_that_changed_and_writes_its_record_alone(
    tmp_path: Path,
):
    store = CountingStore()
    async with open_registry(store) as service:
        folder = folder_of(tmp_path / "records", 20)
        loader = Loader(service, folder)
        _settle(loader)
        await loader.load()
        (folder / "s7.toml").write_text(_text(7, "false"), encoding="utf-8")
        written = await loader.load()
        assert loader._sources[0].memory.reads == 21
        assert written.change is not None
        assert [entry.id for entry in written.change.entries] == ["s7"]
        (folder / "s8.toml").unlink()
        gone = (await loader.load()).change
        assert gone is not None
        assert [(entry.id, entry.stored) for entry in gone.entries] == [("s8", None)]
        assert loader._sources[0].memory.reads == 21


async def test_a_file_that_was_written_just_now_is_read_again(tmp_path: Path):
    """Two writes of one length may share a tick of the file system's clock."""
    async with open_registry(MemoryStore()) as service:
        folder = tmp_path / "records"
        folder.mkdir()
        (folder / "s1.toml").write_text(_text(1, "true"), encoding="utf-8")
        loader = Loader(service, folder)
        await loader.load()
        await loader.load()
        assert loader._sources[0].memory.reads == 2


async def test_what_files_say_is_said_again_by_a_rescan_that_finds_nothing_changed(tmp_path: Path):
    async with open_registry(MemoryStore()) as service:
        folder = folder_of(tmp_path / "records", 2)
        (folder / "broken.toml").write_text("server_id = ", encoding="utf-8")
        loader = Loader(service, folder)
        _settle(loader)
        first, again = await loader.load(), await loader.load()
        assert len(first.problems) == 1
        assert (again.problems, again.warnings) == (first.problems, first.warnings)


async def test_a_rescan_puts_back_what_was_deleted_from_the_registry_behind_its_back(
    tmp_path: Path,
):
    async with open_registry(MemoryStore()) as service:
        loader = Loader(service, folder_of(tmp_path / "records", 3))
        _settle(loader)
        await loader.load()
        await service.transact(
            lambda view: Draft((Write(kind="server", id="s1", record=None),)), BY, as_owner=True
        )
        assert (await loader.load()).change is not None
        assert set(service.snapshot().servers) == {"s0", "s1", "s2"}


async def test_after_a_restart_the_same_files_are_compared_once_and_nothing_is_written(
    tmp_path: Path,
):
    folder = folder_of(tmp_path / "records", 20)
    path = tmp_path / "registry.db"
    async with open_registry(await SqliteStore(path, synchronous="OFF").open()) as service:
        await Loader(service, folder).load()
    async with open_registry(await SqliteStore(path, synchronous="OFF").open()) as service:
        loader = Loader(service, folder)
        assert (await loader.load()).change is None
        assert len(loader._same) == 20


@pytest.mark.requirement("registry:many-records")
async def test_a_large_import_leaves_the_event_loop_to_others(service: RegistryService):
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.to_thread(lambda: None)
            turns += 1

    counting = asyncio.create_task(count())
    many: list[Any] = [("server", server(f"s{n}")) for n in range(2_000)]
    previewed = await service.import_records(many, "preview", BY)
    counting.cancel()
    assert previewed.change is None
    assert turns > 3


async def test_a_small_plan_is_made_where_it_is_asked_for_and_a_large_one_beside(
    service: RegistryService,
):
    threads: list[int] = []

    def plan(view: View) -> Draft:
        threads.append(threading.get_ident())
        return Draft()

    here = threading.get_ident()
    await service.transact(plan, BY)
    await service.transact(plan, BY, size=1_000)
    assert threads[0] == here != threads[1]
