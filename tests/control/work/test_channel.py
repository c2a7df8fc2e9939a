"""Both ends of the work for nodes, on a clock that is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest

from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.registry.standing import LOST_SECONDS
from bascule.control.work.channel import PARTED_SECONDS, WORK_SECONDS, WorkChannel
from bascule.control.work.far_nodes import FarNode
from bascule.control.work.hands import Cancelled, Hand
from bascule.control.work.jobs import Answer, ServerTrial, Tried, job_of
from bascule.control.work.questions import TAKE_SECONDS, NotTaken
from bascule.control.work.rows import LocalRows, TooMuchWork, Work
from bascule.db.errors import StoreUnavailable
from bascule.testing.clock import FakeClock
from bascule.wire.api.trials import Trial, TrialStep
from tests.control.registry.memory_store import MemoryStore
from tests.waits import SOON_SECONDS

DONE = Tried(Trial(ok=True, duration_ms=1.0))


class Rows(LocalRows):
    """Rows that may be away."""

    away = False
    shared = False

    async def waiting(self) -> set[str]:
        if self.away:
            raise StoreUnavailable("away")
        return {*await super().waiting()}


class Site:
    """A channel of one replica, and short ways to use it."""

    def __init__(self, service: RegistryService, clock: FakeClock) -> None:
        self.service = service
        self.clock = clock
        self.rows = Rows(clock, 2, 2)
        self.channel = WorkChannel(self.rows, service, clock)

    @asynccontextmanager
    async def replica(self) -> AsyncGenerator[WorkChannel, None]:
        """Open another replica, which notes that a node follows it."""
        self.rows.shared = True
        await self.service.standing.note(["east"])
        async with WorkChannel(self.rows, self.service, self.clock) as other:
            yield other

    def ask(self, node: str = "east") -> asyncio.Task[Answer]:
        return asyncio.create_task(
            self.channel.ask(node, ServerTrial("fs"), lambda _: None), name=node
        )

    def try_at(self, *names: str) -> asyncio.Task[Trial]:
        def told(_: TrialStep) -> None:
            pass

        return asyncio.create_task(FarNode(self.channel, names, self.clock).test("fs", told))


@pytest.fixture
async def site() -> AsyncGenerator[Site, None]:
    clock = FakeClock()
    async with open_registry(MemoryStore(clock=clock), clock=clock) as service:
        made = Site(service, clock)
        async with made.channel:
            yield made


def nothing() -> None:
    """Nobody is called."""


async def soon(task: asyncio.Task[object]) -> object:
    async with asyncio.timeout(SOON_SECONDS):
        return await task


async def given(site: Site, hand: Hand) -> Sequence[Work | Cancelled]:
    await site.clock.advance(0)
    return hand.orders()


async def test_a_node_is_handed_nothing_before_it_is_ready(site: Site):
    with site.channel.handing("east", nothing) as hand:
        asking = site.ask()
        assert await given(site, hand) == []
        hand.begin()
        [work] = await given(site, hand)
        assert isinstance(work, Work)
        assert job_of(work.job) == ServerTrial("fs")
        assert await site.channel.answer(work.id, "east", DONE) == "kept"
        assert await soon(asking) == DONE
        assert await given(site, hand) == []


async def test_work_that_no_node_takes_is_asked_of_the_next(site: Site):
    with site.channel.handing("west", nothing) as hand:
        hand.begin()
        trial = site.try_at("east", "west")
        assert await given(site, hand) == []
        await site.clock.advance(TAKE_SECONDS + 2)
        [work] = await given(site, hand)
        assert isinstance(work, Work)
        await site.channel.answer(work.id, "west", DONE)
        assert await soon(trial) == DONE.trial


async def test_work_that_nobody_takes_is_not_begun_later(site: Site):
    asking = site.ask()
    await site.clock.advance(TAKE_SECONDS + 2)
    with pytest.raises(NotTaken, match="node 'east' does not take work"):
        await soon(asking)
    with site.channel.handing("east", nothing) as hand:
        hand.begin()
        assert await given(site, hand) == []


async def test_deadlines_hold_while_rows_are_away(site: Site):
    with site.channel.handing("east", nothing) as hand:
        hand.begin()
        asking = site.ask()
        [_] = await given(site, hand)
        site.rows.away = True
        await site.clock.advance(WORK_SECONDS + 2)
        answer = await soon(asking)
        assert "did not answer within 50 s" in str(answer)


async def test_what_ends_leaves_no_row(site: Site):
    with site.channel.handing("east", nothing) as hand:
        hand.begin()
        asking, other = site.ask(), site.ask()
        works = await given(site, hand)
        with pytest.raises(TooMuchWork):
            await soon(site.ask())
        asking.cancel()
        other.cancel()
        cancelled = await given(site, hand)
        assert {one.id for one in cancelled} == {one.id for one in works}
        assert all(isinstance(one, Cancelled) for one in cancelled)
        third = site.ask()
        [_] = await given(site, hand)
        third.cancel()


@pytest.mark.requirement("registry:grpc:work-kept")
async def test_work_goes_on_when_its_stream_is_replaced(site: Site):
    with site.channel.handing("east", nothing) as hand:
        hand.begin()
        asking = site.ask()
        [work] = await given(site, hand)
    await site.clock.advance(PARTED_SECONDS - 2)
    with site.channel.handing("east", nothing, [work.id]) as hand:
        await site.clock.advance(PARTED_SECONDS + 2)
        hand.begin()
        assert await given(site, hand) == [], "it is handed out once"
        assert await site.channel.answer(work.id, "east", DONE) == "kept"
        assert await soon(asking) == DONE


@pytest.mark.requirement("registry:grpc:work-kept")
async def test_work_goes_on_at_another_replica_when_its_own_ends(site: Site):
    async with site.replica() as other:
        asking = site.ask()
        with other.handing("east", nothing) as hand:
            hand.begin()
            await site.clock.advance(2)  # a look
            [work] = hand.orders()
    with site.channel.handing("east", nothing, [work.id]):
        await site.clock.advance(4)
        assert not asking.done()
        assert await site.channel.answer(work.id, "east", DONE) == "kept"
        assert await soon(asking) == DONE


@pytest.mark.requirement("registry:grpc:work-kept")
async def test_what_a_node_comes_back_without_has_failed(site: Site):
    with site.channel.handing("east", nothing) as hand:
        hand.begin()
        asking = {site.ask(), site.ask()}
        kept, _ = await given(site, hand)
        with site.channel.handing("east", nothing, [kept.id]):
            await site.clock.advance(2)  # a look
            [ended], [going] = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            assert "left while it was at it, and came back without it" in str(await ended)
            await site.channel.answer(kept.id, "east", DONE)
            assert await soon(going) == DONE


@pytest.mark.requirement("registry:grpc:work-kept")
async def test_a_node_hears_on_its_new_stream_that_nobody_waits(site: Site):
    with site.channel.handing("east", nothing) as hand:
        hand.begin()
        asking = site.ask()
        [work] = await given(site, hand)
    asking.cancel()
    await site.clock.advance(2)
    with site.channel.handing("east", nothing, [work.id, "unknown"]) as hand:
        await site.clock.advance(2)
        assert {*hand.orders()} == {Cancelled(work.id), Cancelled("unknown")}


@pytest.mark.requirement("registry:grpc:work")
async def test_a_node_that_does_not_come_back_has_left(site: Site):
    with site.channel.handing("east", nothing) as hand:
        hand.begin()
        asking = site.ask()
        await given(site, hand)
    await site.clock.advance(PARTED_SECONDS - 2)
    assert not asking.done()
    await site.clock.advance(4)
    assert "node 'east' left while it was at it: it is no longer" in str(await soon(asking))


async def test_whoever_waits_hears_that_a_replica_was_killed_with_its_node(site: Site):
    async with site.replica() as other:
        asking = site.ask()
        with other.handing("east", nothing) as hand:
            hand.begin()
            await site.clock.advance(2)
            [_] = hand.orders()
            assert site.channel.living() == {"east"}
            await site.clock.advance(LOST_SECONDS)  # nobody notes the node any more
            assert "it is no longer connected" in str(await soon(asking))
            assert site.channel.living() == set()
