"""Two stores over one file or database: two processes, which know nothing of each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypeAlias

import pytest

from bascule.control.registry.errors import AlreadyExists, Compacted
from bascule.control.registry.service import RegistryService
from bascule.control.registry.store import Retention, Store
from bascule.errors import InvalidRecord
from tests.control.registry.build import BY, server, take, write

Pair: TypeAlias = tuple[Store, Store]


@asynccontextmanager
async def served(store: Store) -> AsyncGenerator[RegistryService, None]:
    """Serve a store without upkeep: what others write is noticed when a test says so."""
    service = RegistryService(store, await store.view())
    try:
        yield service
    finally:
        service.close()


async def test_what_another_process_writes_is_noticed(pair: Pair):
    async with served(pair[0]) as here, served(pair[1]) as there:
        events = await here.watch(0)
        await there.put("server", "a", server("a"), BY)
        await here.put("server", "b", server("b"), BY)
        await there.put("server", "c", server("c"), BY)
        await here.catch_up()
        assert [event.revision for event in await take(events, 3)] == [1, 2, 3]
        assert [stored.id for stored in here.view.of_kind("server")] == ["a", "b", "c"]
        later = await there.put("server", "d", server("d"), BY)
        assert (await here.watch(later.revision)) is not None


async def test_a_change_that_does_not_follow_waits_for_what_is_between(pair: Pair):
    ours, theirs = pair
    async with served(ours) as here:
        events = await here.watch(0)
        await theirs.write([write("a")], BY)
        await ours.write([write("b")], BY)
        assert here.view.revision == 0
        await here.catch_up()
        assert [event.revision for event in await take(events, 2)] == [1, 2]
        assert here.view == await theirs.view()


async def test_what_must_hold_between_records_holds_between_processes(pair: Pair):
    async with served(pair[0]) as here, served(pair[1]) as there:
        await there.put("server", "a", server("a", tool_namespace="mcp.x"), BY)
        assert here.view.revision == 0, "it has not heard of it yet"
        with pytest.raises(InvalidRecord, match="namespace of server 'a'"):
            await here.put("server", "b", server("b", tool_namespace="mcp.x"), BY)
        with pytest.raises(AlreadyExists):
            await here.create("server", server("a"), BY)
        assert (await here.patch("server", "a", {"tags": ["t"]}, BY)).revision == 2
        await there.catch_up()
        assert here.view == there.view


async def test_a_watcher_whose_hub_was_overtaken_by_compaction_is_told(pair: Pair):
    """Another process wrote and compacted: what lies between is nowhere to be had."""
    ours, theirs = pair
    async with served(ours) as here:
        events = await here.watch(0)
        for number in range(5):
            await theirs.write([write("a", display_name=str(number))], BY)
        await theirs.compact(Retention(changes=1))
        await here.catch_up()
        assert here.view == await theirs.view()
        with pytest.raises(Compacted):
            await anext(events)


@pytest.mark.requirement("registry:revision:gap-free")
async def test_stores_that_write_at_once_plan_again_until_all_is_written(pair: Pair):
    names = [f"s{number}" for number in range(24)]
    told = await asyncio.gather(
        *(pair[number % 2].write([write(name)], BY) for number, name in enumerate(names))
    )
    revisions = sorted(change.revision for change in told if change is not None)
    assert revisions == list(range(1, 25))
    assert [change.revision for change in await pair[0].changes(0)] == revisions
    assert {key for _, key in (await pair[1].view()).objects} == set(names)
