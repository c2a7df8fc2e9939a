"""A node whose control plane is away for too long: it calls nothing by what was allowed then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from bascule.app.settings import Settings, load_settings
from bascule.model.snapshot import Snapshot
from bascule.node.sync.follower import Follower, SyncSettings
from bascule.testing.clock import FakeClock
from tests.node.fakes import FakeApprover, World, failed, succeeded
from tests.node.test_sync import Node, Registry
from tests.policy.build import server

HOUR = 3_600.0


class Split:
    """A bridge whose decisions are trusted as far as a follower has heard of its registry."""

    def __init__(self, max_stale: float | None = HOUR) -> None:
        self.clock = FakeClock()
        self.registry = Registry()
        settings = SyncSettings(
            max_stale=max_stale, silence_seconds=1e9, poll_seconds=1e9, poll_limit_seconds=1e9
        )
        self.follower = Follower(self.registry, Node(), clock=self.clock, settings=settings)
        self.world = World(clock=self.clock)
        self.world.core.distrust = self.follower.distrust

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        task = asyncio.create_task(self.follower.run())
        try:
            await self.clock.settle()
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


@pytest.fixture
async def split() -> Split:
    return Split()


@pytest.mark.requirement("sync:stale")
async def test_calls_fail_with_that_reason_once_nothing_was_heard_for_too_long(split: Split):
    session = split.world.session()
    async with split.running():
        split.registry.down = True
        split.registry.break_off()
        await split.clock.advance(HOUR - 1)
        assert split.follower.state == "degraded"
        succeeded(await session.call("mcp__fs__write", {"text": "a"}))
        await split.clock.advance(1)
        assert split.follower.state == "stale"
        sent = len(split.world.caller.sent)
        outcome = failed(await session.call("mcp__fs__write", {"text": "a"}), "mcp_unavailable")
        assert outcome.error.details == {"reason": "stale"}
        assert "for 1 h (node.max_stale)" in outcome.error.message
        assert outcome.error.retryable
        event = split.world.ledger.last
        assert (event.status, event.layer, event.reason) == ("failed", "node", "stale")
        assert (event.server_id, event.tool_name) == ("fs", "write")
        assert len(split.world.caller.sent) == sent
        other = split.world.session()
        failed(await other.call("mcp__fs__write", {"text": "a"}), "mcp_unavailable")


@pytest.mark.requirement("sync:stale")
async def test_calls_go_on_as_soon_as_the_control_plane_answers(split: Split):
    session = split.world.session()
    split.registry.down = True
    async with split.running():
        await split.clock.advance(HOUR)
        failed(await session.call("mcp__fs__write", {"text": "a"}), "mcp_unavailable")
        split.registry.down = False
        await split.clock.advance(120)
        assert split.follower.state == "ok"
        succeeded(await session.call("mcp__fs__write", {"text": "a"}))


async def test_a_node_that_hears_bookmarks_is_never_stale(split: Split):
    async with split.running():
        for _ in range(10):
            await split.clock.advance(HOUR / 5)
            split.registry.say(1)
            await split.clock.settle()
        assert split.follower.state == "ok"


async def test_what_a_node_loaded_counts_from_when_it_was_confirmed(split: Split):
    split.follower.confirmed_at = split.clock.now() - HOUR + 60
    assert split.follower.distrust() is None
    await split.clock.advance(60)
    assert split.follower.distrust() is not None


async def test_neither_a_date_that_is_set_nor_a_clock_that_stood_still_prolongs_it():
    for seconds in (HOUR, -HOUR):
        split = Split()
        split.clock.jump(seconds)
        assert split.follower.state == "stale"
    split = Split()
    await split.clock.advance(HOUR / 2)
    split.clock.jump(-HOUR / 2)
    assert split.follower.distrust() is None
    await split.clock.advance(HOUR / 2)
    assert split.follower.distrust() is not None, "by the time that passed"


async def test_a_call_that_waited_for_approval_until_then_does_not_leave():
    split = Split()
    approver = FakeApprover()
    approver.think()
    records = (server("fs", approval_policy={"default": "always"}),)
    split.world = World(*records, clock=split.clock, approver=approver)
    split.world.core.distrust = split.follower.distrust
    call = asyncio.create_task(split.world.session().call("mcp__fs__write", {"text": "a"}))
    await approver.asked.wait()
    split.clock.jump(HOUR)
    approver.decided.set()
    failed(await call, "mcp_unavailable")
    assert split.world.caller.sent == []


async def test_what_is_not_limited_is_never_stale():
    split = Split(max_stale=None)
    await split.clock.advance(5 * HOUR)
    assert split.follower.state == "degraded"
    succeeded(await split.world.session().call("mcp__fs__write", {"text": "a"}))


async def test_a_stale_node_reports_that_it_is_degraded(split: Split):
    split.clock.jump(HOUR)
    split.registry.now = Snapshot(store_id="other", revision=1)  # which is refused
    async with split.running():
        assert split.follower.state == "stale"
        assert [report.state for report in split.registry.reports] == ["degraded"]


def test_a_day_is_the_default():
    assert Settings().node.max_stale == 24 * HOUR
    given, _ = load_settings({"data_dir": "x"}, {"BASCULE_NODE_MAX_STALE": "60"})
    assert given.node.max_stale == 60
