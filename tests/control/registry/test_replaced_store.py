"""A store is replaced under the process that serves it: watches end, and say what happened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from bascule.control.registry.errors import StoreChanged
from bascule.control.registry.service import RegistryService, Settings, open_registry
from bascule.control.registry.store import Bookmark, Event, Retention, Store
from bascule.errors import InvalidRecord
from bascule.model.snapshot import Position
from bascule.testing.clock import FakeClock
from tests.control.registry.build import BY, server, take, write
from tests.control.registry.places import Place
from tests.waits import advanced_until

#: Nobody looks at the store but whoever asks.
UNAWARE = Settings(poll_seconds=1e6)


async def rename(store: Store, count: int, word: str = "") -> None:
    for _ in range(count):
        name = f"{word} after {(await store.head()).revision}"
        await store.write([write("fs", display_name=name)], BY)


async def emptied(place: Place) -> Store:
    """Return the same place with nothing in it, after the store was at revision 6."""
    await rename(place.store, 6)
    return await place.empty()


async def older_copy(place: Place) -> Store:
    await rename(place.store, 3)
    copied = await place.copy()
    await rename(place.store, 3)
    return copied


async def copy_written_past(place: Place) -> Store:
    copied = await older_copy(place)
    await rename(copied, 5, "elsewhere")
    return copied


async def another_store(place: Place) -> Store:
    await rename(place.store, 6)
    another = await place.empty()
    await rename(another, 9, "another")
    return another


CASES: dict[str, Callable[[Place], Awaitable[Store]]] = {
    "emptied": emptied,
    "older_copy": older_copy,
    "other_copy": copy_written_past,
    "another_store": another_store,
}


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest) -> str:
    return request.param


async def replaced(service: RegistryService, place: Place, other: Store) -> None:
    await place.put(other)
    await service.catch_up()


@pytest.mark.requirement("registry:store-replaced")
async def test_every_watch_ends_and_names_what_happened(place: Place, clock: FakeClock, case: str):
    other = await CASES[case](place)
    async with open_registry(place.store, clock=clock, settings=Settings(ring=2)) as service:
        assert service.view.revision == 6
        idle = await service.watch(6)
        slow = await service.watch(service.view.position)
        await replaced(service, place, other)
        for events in (idle, slow):
            with pytest.raises(StoreChanged) as changed:
                await take(events, 1)
            assert changed.value.case == changed.value.details["case"] == case
            assert changed.value.details["given_revision"] == 6
        assert service.view == await other.view()
        assert service.snapshot() == service.view.snapshot()


async def to_the_end(events: AsyncGenerator[Event, None]) -> None:
    async for event in events:
        assert isinstance(event, Bookmark), "nothing was written to this history"


@pytest.mark.requirement("registry:store-replaced")
async def test_a_registry_notices_by_itself(place: Place, clock: FakeClock, case: str):
    other = await CASES[case](place)
    async with open_registry(place.store, clock=clock) as service:
        watching = asyncio.create_task(to_the_end(await service.watch(6)))
        await place.put(other)
        await advanced_until(clock, watching.done, seconds=2)
        with pytest.raises(StoreChanged):
            watching.result()


async def test_a_watch_that_reads_the_log_is_not_led_into_another_history(
    place: Place, clock: FakeClock
):
    """It is served from the store, which changes before the hub has noticed."""
    other = await copy_written_past(place)
    async with open_registry(
        place.store, clock=clock, settings=Settings(poll_seconds=1e6)
    ) as service:
        events = await service.watch(4)
        assert [event.revision for event in await take(events, 1)] == [5]
        await events.aclose()
        late = await service.watch(4)
        await place.put(other)
        with pytest.raises(StoreChanged):
            await take(late, 1)


@pytest.mark.requirement("registry:position")
async def test_a_watch_from_another_history_is_refused(place: Place, clock: FakeClock, case: str):
    other = await CASES[case](place)
    async with open_registry(place.store, clock=clock) as service:
        seen = [replaced.position for replaced in [await place.store.view(r) for r in (2, 5, 6)]]
        assert [await service.check(one) for one in seen] == seen
        await place.put(other)
        shared = 1 if "copy" in case else 0  # both copies have what came before they parted
        for one in seen[:shared]:
            assert await service.watch(one)
        for one in seen[shared:]:
            with pytest.raises(StoreChanged) as changed:
                await service.watch(one)
            assert changed.value.case == case
        for revision in range(service.view.revision + 1):
            assert await service.watch(revision), "without a store and a mark nothing is compared"


@pytest.mark.parametrize("case", ["other_copy", "another_store"])
async def test_a_watch_from_the_newer_history_is_served_by_a_hub_that_has_not_noticed(
    place: Place, clock: FakeClock, case: str
):
    other = await CASES[case](place)
    async with open_registry(
        place.store, clock=clock, settings=Settings(poll_seconds=1e6)
    ) as service:
        await place.put(other)
        events = await service.watch((await other.head()).position)
        assert service.view == await other.view()
        await events.aclose()


async def test_a_position_that_is_no_longer_kept_is_not_compared(place: Place, clock: FakeClock):
    await rename(place.store, 6)
    async with open_registry(place.store, clock=clock, settings=Settings(ring=1)) as service:
        await place.store.compact(Retention(changes=2))
        found = await service.check(Position(service.view.store_id, 2, "0123456789abcdef"))
        assert found == Position(service.view.store_id, 2, "")


async def test_a_store_that_went_on_elsewhere_is_the_same_store(place: Place, clock: FakeClock):
    """The place is served from a copy that went on: a failover without loss."""
    await rename(place.store, 3)
    async with open_registry(place.store, clock=clock) as service:
        events = await service.watch(service.view.position)
        copied = await place.copy()
        await rename(copied, 2)
        await replaced(service, place, copied)
        assert [event.revision for event in await take(events, 2)] == [4, 5]


async def test_what_was_compacted_elsewhere_ends_no_watch_that_has_seen_it(
    place: Place, clock: FakeClock
):
    await rename(place.store, 3)
    async with open_registry(place.store, clock=clock) as service:
        events = await service.watch(service.view.position)
        copied = await place.copy()
        await rename(copied, 2)
        await copied.compact(Retention(changes=2))
        await replaced(service, place, copied)
        assert [event.revision for event in await take(events, 2)] == [4, 5]


@pytest.mark.requirement("registry:store-replaced")
async def test_a_write_that_was_planned_on_another_history_is_planned_again(
    place: Place, clock: FakeClock
):
    """The copy is at the very revision that the hub knows; only the mark tells them apart."""
    copied = await older_copy(place)
    await rename(copied, 2, "elsewhere")
    await copied.write([write("only_there", tool_namespace="mcp.x")], BY)
    async with open_registry(place.store, clock=clock, settings=UNAWARE) as service:
        assert (await copied.head()).revision == service.view.revision
        events = await service.watch(service.view.position)
        await place.put(copied)
        with pytest.raises(InvalidRecord, match="namespace of server 'only_there'"):
            await service.put("server", "mine", server("mine", tool_namespace="mcp.x"), BY)
        await service.put("server", "mine", server("mine"), BY)
        assert service.view == await place.store.view()
        with pytest.raises(StoreChanged):
            await take(events, 1)
