"""A registry, its watch and a real node's follower against a small model, in any order of events.

The way between them is cut, stalls and is mended; the registry restarts and forgets its past; the
node takes its time. The node may be late. It must never hold what never was, never go back, and
always arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bascule.app.local_node import NODE_NAME, LocalSource
from bascule.control.registry.errors import NotFound
from bascule.control.registry.service import RegistryService, Settings
from bascule.control.registry.store import Retention
from bascule.errors import BasculeError
from bascule.model.kinds import Kind
from bascule.model.snapshot import Snapshot, SnapshotChange
from bascule.model.status import ServerStatus
from bascule.node.changes import Changes
from bascule.node.sync.follower import Follower, SyncSettings
from bascule.node.sync.ports import Report
from bascule.testing.clock import FakeClock
from tests.control.registry.build import BY, server
from tests.control.registry.memory_store import MemoryStore
from tests.scale import scaled

T = TypeVar("T")
KEYS: list[tuple[Kind, str]] = [("server", "a"), ("server", "b"), ("task", "a")]
HOUSEKEEPING = Settings(ring=2, retention=Retention(changes=2))
keys = st.sampled_from(KEYS)
words = st.sampled_from(["", "x", "y"])


def plain(key: tuple[Kind, str], word: str) -> dict[str, Any]:
    if key[0] == "server":
        return server(key[1], display_name=word)
    return {"task_id": key[1], "name": word}


def said(snapshot: Snapshot) -> dict[tuple[Kind, str], str]:
    servers = {("server", key): record.display_name for key, record in snapshot.servers.items()}
    tasks = {("task", key): record.name for key, record in snapshot.tasks.items()}
    return {**servers, **tasks}  # pyright: ignore[reportReturnType] - the kinds are literals


class Cut(BasculeError):
    """The way to the registry is cut."""


class Way:
    """A ``RegistrySource`` over a real one, which can be cut, stalled and led elsewhere."""

    def __init__(self, service: RegistryService, clock: FakeClock) -> None:
        self.cut = False
        self.flowing = asyncio.Event()
        self.flowing.set()
        self._clock = clock
        self._source = LocalSource(service, clock)

    def lead_to(self, service: RegistryService) -> None:
        self._source = LocalSource(service, self._clock)

    async def snapshot(self, known: Snapshot | None = None) -> Snapshot:
        await self._pass()
        return await self._source.snapshot(known)

    async def watch(self, since: Snapshot) -> AsyncGenerator[SnapshotChange, None]:
        await self._pass()
        return self._through(await self._source.watch(since))

    async def report(self, report: Report) -> None:
        await self._pass()
        await self._source.report(report)

    async def _through(
        self, stream: AsyncGenerator[SnapshotChange, None]
    ) -> AsyncGenerator[SnapshotChange, None]:
        async with aclosing(stream) as changes:
            async for change in changes:
                await self._pass()
                yield change

    async def _pass(self) -> None:
        await self.flowing.wait()
        if self.cut:
            raise Cut("nobody answers")


class Node(Changes):
    """A ``FollowingNode`` that remembers all it was given."""

    def __init__(self, snapshot: Snapshot, clock: FakeClock) -> None:
        super().__init__()
        self.snapshot = snapshot
        self.taken = [snapshot]
        self._clock = clock

    async def apply(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.taken.append(snapshot)
        await self._clock.sleep(5)  # connections move

    def statuses(self) -> tuple[ServerStatus, ...]:
        return ()


class FollowingMachine(RuleBasedStateMachine):
    """The model: what the records said at every revision."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self.past: list[dict[tuple[Kind, str], str]] = [{}]
        self.run(self.begin())

    async def begin(self) -> None:
        await self.serve()
        self.way = Way(self.service, self.clock)
        self.node = Node(self.service.snapshot(), self.clock)
        self.follower = Follower(
            self.way,
            self.node,
            clock=self.clock,
            settings=SyncSettings(pause_seconds=5.0),
            jitter=lambda low, high: (low + high) / 2,
        )
        self.following = asyncio.create_task(self.follower.run())

    async def serve(self) -> None:
        self.service = RegistryService(
            self.store, await self.store.view(), clock=self.clock, settings=HOUSEKEEPING
        )
        self.upkeep = asyncio.create_task(self.service.keep_up())

    async def stop_serving(self) -> None:
        self.service.close()
        self.upkeep.cancel()
        await asyncio.wait([self.upkeep])

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(10):
                return await work

        return self.runner.run(bounded())

    def teardown(self) -> None:
        async def end() -> None:
            self.following.cancel()
            await asyncio.wait([self.following])
            await self.stop_serving()

        self.run(end())
        self.runner.close()

    def moved(self, key: tuple[Kind, str], word: str | None) -> None:
        now = dict(self.past[-1])
        if word is None:
            now.pop(key, None)
        else:
            now[key] = word
        if now != self.past[-1]:
            self.past.append(now)

    # --- at the registry

    @rule(key=keys, word=words)
    def put(self, key: tuple[Kind, str], word: str) -> None:
        self.run(self.service.put(*key, plain(key, word), BY))
        self.moved(key, word)

    @rule(key=keys)
    def delete(self, key: tuple[Kind, str]) -> None:
        try:
            self.run(self.service.delete(*key, BY))
        except NotFound:
            assert key not in self.past[-1]
        self.moved(key, None)

    @rule()
    def compact(self) -> None:
        self.run(self.service.compact())

    @rule()
    def restart(self) -> None:
        async def again() -> None:
            await self.stop_serving()
            await self.serve()
            self.way.lead_to(self.service)

        self.run(again())

    # --- on the way

    @rule()
    def cut(self) -> None:
        self.way.cut = True

    @rule()
    def mend(self) -> None:
        self.way.cut = False

    @rule()
    def stall(self) -> None:
        self.way.flowing.clear()

    @rule()
    def flow(self) -> None:
        self.way.flowing.set()

    @rule(seconds=st.sampled_from([0.0, 0.2, 1.0, 12.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.run(self.clock.advance(seconds))

    # --- what must hold

    @rule()
    def a_node_that_can_be_reached_arrives(self) -> None:
        self.mend()
        self.flow()
        self.run(self.clock.advance(90))
        assert said(self.node.snapshot) == self.past[-1]
        assert self.follower.revision == len(self.past) - 1
        assert self.follower.state == "ok"
        [report] = self.service.standing.nodes()
        assert (report.node, report.revision) == (NODE_NAME, len(self.past) - 1)

    @invariant()
    def a_node_holds_nothing_that_never_was_and_never_goes_back(self) -> None:
        assert not self.following.done()
        revisions = [snapshot.revision for snapshot in self.node.taken]
        assert revisions == sorted(set(revisions))
        for snapshot in self.node.taken:
            assert said(snapshot) == self.past[snapshot.revision]


TestFollowing = pytest.mark.requirement("registry:single-truth")(FollowingMachine.TestCase)
TestFollowing.settings = settings(max_examples=scaled(300), stateful_step_count=30)
