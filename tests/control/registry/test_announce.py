"""A store is announced as the successor of another: nodes that follow that one take it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from bascule.app.local_node import LocalSource
from bascule.audit.events import Act, StoreAnnounced
from bascule.audit.ledger import LedgerUnavailable
from bascule.control.registry.errors import StoreChanged
from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.registry.store import Store
from bascule.model.snapshot import Snapshot
from bascule.node.assembly import Bridge
from bascule.node.sync.follower import Follower
from bascule.node.sync.judging import by_command
from bascule.testing.clock import FakeClock
from tests.control.registry.build import BY, server, write
from tests.waits import advanced_until

OLD = "0123456789abcdef"


async def test_it_names_the_other_store_and_moves_no_revision(
    service: RegistryService, store: Store
):
    await service.put("server", "fs", server("fs"), BY)
    before = await service.head()
    assert service.snapshot().predecessor == ""
    found = await service.announce(OLD, BY)
    assert found.predecessor == OLD
    assert (found.position, found.floor) == (before.position, before.floor)
    assert service.snapshot().predecessor == OLD
    assert (await store.view()).predecessor == OLD
    await service.put("server", "other", server("other"), BY)
    assert service.snapshot().predecessor == OLD
    await service.announce("f" * 16, BY)
    assert service.snapshot().predecessor == "f" * 16


@pytest.mark.requirement("sync:other-copy")
async def test_a_store_that_replaces_another_copy_of_itself_is_one_of_its_own(
    service: RegistryService, store: Store
):
    await service.put("server", "fs", server("fs"), BY)
    before = await service.head()
    watch = await service.watch(before.position)
    found = await service.announce(before.store_id, BY)
    assert found.store_id != before.store_id
    assert (found.predecessor, found.revision, found.mark) == (
        before.store_id,
        before.revision,
        before.mark,
    )
    with pytest.raises(StoreChanged):
        await anext(watch)
    await service.put("server", "other", server("other"), BY)
    assert (await store.view()).store_id == service.view.store_id == found.store_id


async def test_it_is_noted_before_it_is_done_or_not_done(service: RegistryService):
    noted: list[Act] = []

    async def note(act: Act) -> None:
        assert (await service.head()).predecessor == ""
        noted.append(act)

    async def refuse(_: Act) -> None:
        raise LedgerUnavailable("the disk is full")

    service.note = refuse
    with pytest.raises(LedgerUnavailable):
        await service.announce(OLD, BY)
    service.note = note
    await service.announce(OLD, BY)
    [act] = noted
    assert isinstance(act, StoreAnnounced)
    assert (act.by, act.store_id, act.succeeds) == (BY.actor, service.view.store_id, OLD)


async def test_other_replicas_say_it_too(pair: tuple[Store, Store]):
    ours, theirs = [RegistryService(store, await store.view()) for store in pair]
    await ours.announce(OLD, BY)
    await theirs.catch_up()
    assert theirs.snapshot().predecessor == OLD


@asynccontextmanager
async def following(
    service: RegistryService, has: Snapshot, clock: FakeClock
) -> AsyncGenerator[tuple[Follower, Bridge], None]:
    """Yield a node that follows a registry, and had something else before."""
    async with Bridge.open(has) as bridge:
        source = LocalSource(service, clock)
        follower = Follower(source, bridge, clock=clock, remedy=by_command)
        work = asyncio.create_task(follower.run())
        try:
            yield follower, bridge
        finally:
            work.cancel()
            await asyncio.wait([work])


@pytest.mark.requirement("sync:store-restored")
async def test_a_node_of_the_other_store_takes_this_one_once_that_is_announced(
    store: Store, clock: FakeClock
):
    await store.write([write("fs")], BY)
    had = Snapshot(store_id=OLD, revision=40, mark="m40")
    async with (
        open_registry(store, clock=clock) as service,
        following(service, had, clock) as (follower, bridge),
    ):
        await advanced_until(clock, lambda: follower.problem is not None)
        assert f"bascule registry announce --succeeds {OLD}" in (follower.problem or "")
        assert (bridge.snapshot, follower.state) == (had, "degraded")
        await service.announce(OLD, BY)
        await advanced_until(clock, lambda: follower.state == "ok", seconds=1.0)
        assert bridge.snapshot.position == service.view.position


@pytest.mark.requirement("sync:other-copy")
async def test_nodes_that_saw_a_newer_copy_take_this_one_once_that_is_announced(
    store: Store, clock: FakeClock
):
    await store.write([write("fs")], BY)
    own = (await store.head()).store_id
    had = Snapshot(store_id=own, revision=40, mark="ab")
    async with (
        open_registry(store, clock=clock) as service,
        following(service, had, clock) as (follower, bridge),
    ):
        await advanced_until(clock, lambda: follower.problem is not None)
        assert f"bascule registry announce --succeeds {own}" in (follower.problem or "")
        assert (bridge.snapshot, follower.state) == (had, "degraded")
        await service.announce(own, BY)
        await advanced_until(clock, lambda: follower.state == "ok", seconds=1.0)
        assert bridge.snapshot.position == service.view.position
        assert bridge.snapshot.store_id != own
