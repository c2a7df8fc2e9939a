"""Many writers and many watchers at once: nothing lost, nothing twice, nothing out of order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest

from bascule.control.registry.errors import Compacted, Conflict
from bascule.control.registry.service import RegistryService, Settings, open_registry
from bascule.control.registry.store import Change, Event, Retention, Store, View
from bascule.model.server import ServerRecord
from bascule.testing.clock import FakeClock
from tests.control.registry.build import BY, server
from tests.control.registry.conftest import stores
from tests.scale import SOAK, scaled
from tests.waits import DEADLINE_SECONDS

WRITERS = 8
WATCHERS = 20
KEYS = 3
REPLICAS = 4 if SOAK else 2


async def count_up(services: list[RegistryService], number: int, times: int) -> None:
    """Add one to some counter, so many times: a lost update would be missing from the sum."""
    rng = random.Random(number)
    for _ in range(times):
        key = f"s{rng.randrange(KEYS)}"
        while True:
            service = rng.choice(services)
            found = service.view.get("server", key)
            record = None if found is None else found.record
            assert record is None or isinstance(record, ServerRecord)
            count = 0 if record is None else int(record.display_name)
            expected = 0 if found is None else found.revision
            data = server(key, display_name=str(count + 1))
            await turn()  # let another come between
            try:
                await service.put("server", key, data, BY, expected_revision=expected)
                break
            except Conflict:
                await service.catch_up()


async def turn() -> None:
    """Let everybody else take a turn."""
    woken = asyncio.Event()
    asyncio.get_running_loop().call_soon(woken.set)
    await woken.wait()


class Follower:
    """A cache that follows the registry, hanging up, stalling and going on as it pleases."""

    def __init__(self, number: int) -> None:
        self._rng = random.Random(1000 + number)
        self.view = View("", 0, {})
        self.seen: list[int] = []
        self.relists = 0

    async def follow(self, services: list[RegistryService], last: asyncio.Future[int]) -> None:
        while not (last.done() and self.view.revision >= last.result()):
            service = self._rng.choice(services)
            if self.view.store_id == "":
                self.view = service.view
            await self._some(service, last)

    async def _some(self, service: RegistryService, last: asyncio.Future[int]) -> None:
        try:
            async with aclosing(await service.watch(self.view.revision)) as events:
                await self._take(events, self._rng.randrange(1, 40), last)
        except Compacted:
            self.relists += 1
            assert service.view.revision > self.view.revision
            self.view = service.view

    async def _take(
        self, events: AsyncGenerator[Event, None], most: int, last: asyncio.Future[int]
    ) -> None:
        for _ in range(most):
            if last.done() and self.view.revision >= last.result():
                return
            event = await anext(events)
            if isinstance(event, Change):
                assert event.revision == self.view.revision + 1, "a gap, or the same again"
                self.view = self.view.after(event)
                self.seen.append(event.revision)
            for _ in range(self._rng.choice((0, 0, 0, 50))):  # stall
                await turn()


async def storm(services: list[RegistryService], times: int) -> list[Follower]:
    followers = [Follower(number) for number in range(WATCHERS)]
    last: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    ticking = asyncio.create_task(tick(services))
    async with asyncio.timeout(DEADLINE_SECONDS), asyncio.TaskGroup() as watching:
        for follower in followers:
            watching.create_task(follower.follow(services, last))
        async with asyncio.TaskGroup() as writing:
            for number in range(WRITERS):
                writing.create_task(count_up(services, number, times))
        for service in services:
            await service.catch_up()
        last.set_result(services[0].view.revision)
    ticking.cancel()
    await asyncio.wait([ticking])
    return followers


async def tick(services: list[RegistryService]) -> None:
    """Notice other processes' writes and wake idle watchers, as the upkeep does, but faster."""
    while True:
        for service in services:
            await service.catch_up()
            service._hub.tick()
        await turn()


def total(view: View) -> int:
    records = [stored.record for stored in view.of_kind("server")]
    return sum(int(record.display_name) for record in records if isinstance(record, ServerRecord))


@pytest.mark.requirement("registry:revision:gap-free", "registry:watch:resume")
async def test_nothing_is_lost_doubled_or_out_of_order(store: Store, clock: FakeClock):
    times = scaled(400) // WRITERS
    settings = Settings(ring=32, retention=Retention(changes=10_000))
    async with open_registry(store, clock=clock, settings=settings) as service:
        followers = await storm([service], times)
        assert service.view.revision == total(service.view) == times * WRITERS
        revisions = list(range(1, service.view.revision + 1))
        assert [c.revision for c in reversed(await store.history(limit=10_000))] == revisions
        for follower in followers:
            assert (follower.relists, follower.seen) == (0, revisions)
            assert follower.view == service.view == await store.view()


@pytest.mark.requirement("registry:watch:slow-consumer")
async def test_those_who_fall_behind_the_floor_list_anew_and_agree(store: Store, clock: FakeClock):
    times = scaled(400) // WRITERS
    settings = Settings(ring=2, retention=Retention(changes=2))
    async with open_registry(store, clock=clock, settings=settings) as service:
        stopped = await service.watch(0)
        compacting = asyncio.create_task(compact_all_the_time(service))
        followers = await storm([service], times)
        compacting.cancel()
        await asyncio.wait([compacting])
        assert service.view.revision == total(service.view) == times * WRITERS
        assert all(follower.view == service.view for follower in followers)
        await service.compact()
        with pytest.raises(Compacted):
            await anext(stopped)


async def compact_all_the_time(service: RegistryService) -> None:
    while True:
        await service.compact()
        await turn()


@pytest.mark.requirement("registry:revision:gap-free", "registry:postgres")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_several_processes_on_one_store_lose_nothing_either(kind: str, tmp_path: Path):
    times = scaled(400) // WRITERS
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(stores(kind, tmp_path, REPLICAS))
        services = [await stack.enter_async_context(open_registry(one)) for one in opened]
        followers = await storm(services, times)
        one = services[0]
        assert all(service.view == one.view for service in services)
        assert one.view.revision == total(one.view) == times * WRITERS
        for follower in followers:
            assert follower.seen == list(range(1, one.view.revision + 1))
            assert follower.view == one.view
