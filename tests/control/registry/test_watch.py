"""Watching: ordered, unique, complete, resumable, and never a silent gap."""

from __future__ import annotations

import asyncio

import pytest

from bascule.control.registry.errors import Compacted, FutureRevision, StoreChanged
from bascule.control.registry.service import RegistryService, Settings, open_registry
from bascule.control.registry.store import Bookmark, Change, Retention, Store
from bascule.model.snapshot import Position
from bascule.testing.clock import FakeClock
from tests.control.registry.build import BY, PLAIN, changes, idle, names, server, take
from tests.waits import SOON_SECONDS


async def rename(service: RegistryService, count: int) -> None:
    for _ in range(count):
        name = f"at {service.view.revision}"
        await service.put("server", "fs", server("fs", display_name=name), BY)


@pytest.mark.requirement("registry:watch:resume")
async def test_a_watch_gives_every_later_change_once_and_in_order(service: RegistryService):
    await rename(service, 5)
    events = await service.watch(2)
    assert [change.revision for change in await changes(events, 5)] == [3, 4, 5]
    await rename(service, 2)
    assert [event.revision for event in await take(events, 2)] == [6, 7]
    await events.aclose()
    resumed = await service.watch(6)
    assert [event.revision for event in await take(resumed, 1)] == [7]
    await rename(service, 1)
    assert [event.revision for event in await take(resumed, 1)] == [8]


@pytest.mark.requirement("registry:watch:kind", "registry:watch:light")
async def test_a_change_names_its_kinds_its_upserts_and_its_deletes(service: RegistryService):
    await service.import_records([("server", server("old")), PLAIN_TASK], "upsert", BY)
    await service.import_records([("server", server("new"))], "replace", BY)
    first, second = await changes(await service.watch(0), 2)
    assert names(first) == [("server", "old", True), ("task", "review", True)]
    assert [stored.id for stored in second.upserts("server")] == ["new"]
    assert (second.revision, second.deletes("server")) == (2, ("old",))
    assert second.upserts("task") == ()


PLAIN_TASK = ("task", PLAIN["task"][1])


async def test_a_watch_of_some_kinds_hears_of_those_alone_and_keeps_up(service: RegistryService):
    events = await service.watch(0, kinds=["task"])
    await rename(service, 2)
    await service.import_records([("server", server("x")), PLAIN_TASK], "upsert", BY)
    [event] = await take(events, 1)
    assert (event.revision, names(event)) == (3, [("task", "review", True)])
    await rename(service, 2)
    assert await idle(events, service) == Bookmark(5, service.view.mark)


@pytest.mark.requirement("registry:watch:bookmarks")
async def test_an_idle_watch_carries_bookmarks(store: Store, clock: FakeClock):
    async with open_registry(store, clock=clock) as service:
        await rename(service, 1)
        events = await service.watch(1)
        waiting = asyncio.ensure_future(anext(events))
        await clock.advance(9)
        assert not waiting.done()
        await clock.advance(1)
        async with asyncio.timeout(SOON_SECONDS):
            assert await waiting == Bookmark(1, service.view.mark)
        # A watch that has just spoken needs none.
        await rename(service, 1)
        [event] = await take(events, 1)
        assert isinstance(event, Change)


@pytest.mark.requirement("registry:watch:since-too-old")
async def test_a_watch_from_below_the_floor_is_told_at_once(store: Store, clock: FakeClock):
    settings = Settings(retention=Retention(changes=2), ring=2)
    async with open_registry(store, clock=clock, settings=settings) as service:
        await rename(service, 6)
        assert await service.compact() == 4
        for since in (0, 3):
            with pytest.raises(Compacted) as compacted:
                await service.watch(since)
            assert (compacted.value.revision, compacted.value.floor) == (since, 4)
        assert [c.revision for c in await changes(await service.watch(4), 6)] == [5, 6]


async def test_a_watch_from_the_future_or_of_another_store_is_refused(service: RegistryService):
    await rename(service, 1)
    with pytest.raises(FutureRevision):
        await service.watch(2)
    with pytest.raises(StoreChanged):
        await service.watch(Position("another", 1))
    assert await service.watch(Position(service.view.store_id, 1))


async def test_a_restart_hands_on_the_revision_and_the_watch(store: Store, clock: FakeClock):
    """The ring is empty after a restart; the log is not."""
    async with open_registry(store, clock=clock) as before:
        await rename(before, 3)
        after = RegistryService(store, await store.view(), clock=clock)
        assert after.view == before.view
        events = await after.watch(1)
        assert [change.revision for change in await changes(events, 3)] == [2, 3]


@pytest.mark.requirement("registry:watch:slow-consumer")
async def test_a_slow_watcher_loses_nothing_and_delays_nobody(store: Store, clock: FakeClock):
    async with open_registry(store, clock=clock, settings=Settings(ring=4)) as service:
        slow, quick = await service.watch(0), await service.watch(0)
        for number in range(1, 41):
            await rename(service, 1)
            assert [event.revision for event in await take(quick, 1)] == [number]
        assert [change.revision for change in await changes(slow, 40)] == list(range(1, 41))


async def test_a_watcher_that_is_too_slow_is_told_and_never_skips(store: Store, clock: FakeClock):
    settings = Settings(ring=4, retention=Retention(changes=4))
    async with open_registry(store, clock=clock, settings=settings) as service:
        slow = await service.watch(0)
        await rename(service, 2)
        assert [event.revision for event in await take(slow, 2)] == [1, 2]
        await rename(service, 20)
        await service.compact()
        with pytest.raises(Compacted) as compacted:
            await take(slow, 1)
        assert compacted.value.floor == 18


async def test_watches_end_with_the_registry(store: Store, clock: FakeClock):
    async with open_registry(store, clock=clock) as service:
        waiting = asyncio.ensure_future(anext(await service.watch(0), None))
        await asyncio.wait([waiting], timeout=0)
    async with asyncio.timeout(SOON_SECONDS):
        assert await waiting is None


async def test_compaction_runs_by_itself(store: Store, clock: FakeClock):
    settings = Settings(retention=Retention(changes=1), compact_seconds=60)
    async with open_registry(store, clock=clock, settings=settings) as service:
        await rename(service, 5)
        await clock.advance(60)
        async with asyncio.timeout(SOON_SECONDS):
            while (await service.head()).floor != 4:
                await clock.settle()
