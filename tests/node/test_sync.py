"""Following a registry: what a node takes, when, and what it does when it cannot."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bascule import Server
from bascule.errors import BasculeError
from bascule.model.server import ServerRecord
from bascule.model.snapshot import Records, Snapshot, SnapshotChange
from bascule.model.status import Change, ConnectionStatus, ServerStatus
from bascule.node.assembly import Bridge
from bascule.node.changes import Changes
from bascule.node.sync.follower import Follower, SyncSettings
from bascule.node.sync.ports import Report
from bascule.testing import ScriptedServer
from bascule.testing.clock import FakeClock

RHYTHM = SyncSettings(
    poll_seconds=24,
    poll_limit_seconds=36,
    ttl_seconds=120,
    silence_seconds=1_000_000,
    backoff_seconds=0.9,
    backoff_limit_seconds=7,
    pause_seconds=0.5,
)


POLL = (30.0, 120.0)
#: The usual backoff, and nothing else that waits or asks meanwhile.
WATCHING = SyncSettings(poll_seconds=1e9, poll_limit_seconds=1e9, pause_seconds=1e9)


class Lost(BasculeError):
    """The registry cannot be asked."""


class Registry:
    """A ``RegistrySource`` in memory that can be lost, silent or behind."""

    def __init__(self) -> None:
        self.now = Snapshot(store_id="a", revision=1)
        self.down = False
        #: Whether an answer waits for something, as one that is long under way.
        self.held: asyncio.Event | None = None
        #: Whether it has no time to answer.
        self.late = False
        #: Whether reports are refused, and how many were.
        self.refuses, self.refused = False, 0
        self.lists = 0
        self.watched: list[tuple[str, int]] = []
        self.reports: list[Report] = []
        self._streams: list[asyncio.Queue[SnapshotChange | None]] = []

    async def snapshot(self, known: Snapshot | None = None) -> Snapshot:
        self._refuse_down()
        self.lists += 1
        if self.late:
            raise TimeoutError
        found = self.now
        if self.held is not None:
            await self.held.wait()
        return found

    async def watch(self, since: Snapshot) -> AsyncGenerator[SnapshotChange, None]:
        self._refuse_down()
        self.watched.append((since.store_id, since.revision))
        queue: asyncio.Queue[SnapshotChange | None] = asyncio.Queue()
        self._streams.append(queue)
        return self._events(queue)

    async def report(self, report: Report) -> None:
        self._refuse_down()
        if self.refuses:
            self.refused += 1
            raise Lost("422")
        self.reports.append(report)

    async def _events(
        self, queue: asyncio.Queue[SnapshotChange | None]
    ) -> AsyncGenerator[SnapshotChange, None]:
        while (change := await queue.get()) is not None:
            yield change
        raise Lost("the stream broke")

    def _refuse_down(self) -> None:
        if self.down:
            raise Lost("connection refused")

    def write(
        self,
        *,
        store_id: str = "a",
        revision: int | None = None,
        predecessor: str = "",
        tell: bool = True,
    ) -> None:
        self.now = Snapshot(
            store_id=store_id,
            revision=revision or self.now.revision + 1,
            predecessor=predecessor,
        )
        if tell:
            self.say(self.now.revision)

    def change(self, *records: ServerRecord) -> None:
        """Write servers, and tell all of it."""
        written: Records = {("server", record.server_id): record for record in records}
        change = SnapshotChange(self.now.store_id, self.now.revision + 1, written)
        self.now = self.now.after(change)
        self.tell(change)

    def say(self, revision: int) -> None:
        """Tell that there is a revision, and nothing of what it did."""
        self.tell(SnapshotChange(self.now.store_id, revision))

    def tell(self, change: SnapshotChange) -> None:
        for queue in self._streams:
            queue.put_nowait(change)

    def break_off(self) -> None:
        for queue in self._streams:
            queue.put_nowait(None)


class Node(Changes):
    """A ``FollowingNode`` that remembers what it was given; ``slow`` holds connections back."""

    def __init__(self) -> None:
        super().__init__()
        self.snapshot = Snapshot(store_id="a", revision=1)
        self.given: list[int] = []
        self.states: list[ServerStatus] = []
        self.slow: asyncio.Event | None = None

    async def apply(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.given.append(snapshot.revision)
        if self.slow is not None:
            await self.slow.wait()

    def statuses(self) -> list[ServerStatus]:
        return self.states

    def stands(self, *states: ServerStatus) -> None:
        """Stand like this from now on, and tell of it."""
        self.states = list(states)
        self.announce(Change(kind="state", server_id="notes"))


class Scene:
    def __init__(self, rhythm: SyncSettings = RHYTHM) -> None:
        self.clock = FakeClock()
        self.registry = Registry()
        self.node = Node()
        self.delays: list[tuple[float, float]] = []
        self.follower = Follower(
            self.registry, self.node, clock=self.clock, settings=rhythm, jitter=self.jitter
        )

    def jitter(self, low: float, high: float) -> float:
        self.delays.append((low, high))
        return high

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        task = asyncio.create_task(self.follower.run())
        try:
            async with asyncio.timeout(10):
                await self.clock.settle()
                yield
        finally:
            task.cancel()
            await asyncio.wait([task])


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    async with scene.running():
        yield scene


@pytest.mark.requirement("sync:list-then-watch")
async def test_a_node_lists_at_start_and_watches_from_that_revision():
    scene = Scene()
    scene.registry.write(revision=7)
    async with scene.running():
        assert scene.node.given == [7]
        assert scene.registry.watched == [("a", 7)]


@pytest.mark.requirement("sync:event-refresh")
async def test_a_change_is_in_force_with_its_event(scene: Scene):
    scene.registry.write()
    await scene.clock.settle()
    assert scene.node.snapshot.revision == scene.follower.revision == 2


async def test_a_node_catches_up_with_what_nobody_has_told_it(scene: Scene):
    scene.registry.write(tell=False)
    assert scene.node.snapshot.revision == 1
    await scene.follower.catch_up()
    assert scene.node.snapshot.revision == 2


NOTES = Server.stdio("notes", "notes")


@pytest.mark.requirement("sync:event-refresh")
async def test_a_change_that_follows_is_applied_without_a_question(scene: Scene):
    lists = scene.registry.lists
    scene.registry.change(NOTES)
    scene.registry.change(Server.stdio("time", "time"))
    await scene.clock.settle()
    assert scene.node.given == [2, 3]
    assert scene.node.snapshot == scene.registry.now
    assert scene.registry.lists == lists


@pytest.mark.requirement("sync:resync")
@pytest.mark.parametrize("store_id", ["a", "b"])
async def test_a_change_that_does_not_follow_leads_to_one_question(scene: Scene, store_id: str):
    lists = scene.registry.lists
    revision, predecessor = (6, "") if store_id == "a" else (1, "a")
    scene.registry.write(store_id=store_id, revision=revision, predecessor=predecessor, tell=False)
    scene.registry.change(NOTES)
    await scene.clock.settle()
    assert scene.node.snapshot == scene.registry.now
    assert len(scene.node.given) == 1
    assert scene.registry.lists == lists + 1


async def test_a_change_that_is_known_already_is_not_applied_again(scene: Scene):
    scene.registry.change(NOTES)
    scene.registry.tell(SnapshotChange("a", 2, {("server", "notes"): None}))
    await scene.clock.settle()
    assert scene.node.given == [2]
    assert "notes" in scene.node.snapshot.servers


@pytest.mark.requirement("sync:unchanged")
async def test_an_unchanged_revision_is_not_applied_again(scene: Scene):
    scene.registry.say(1)
    await scene.clock.advance(100)
    assert scene.registry.lists > 2
    assert scene.node.given == []


@pytest.mark.requirement("sync:poll")
async def test_a_poll_finds_what_the_watch_missed(scene: Scene):
    scene.registry.write(tell=False)
    await scene.clock.advance(35)
    assert scene.node.given == []
    await scene.clock.advance(1)
    assert scene.node.given == [2]
    assert (24.0, 36.0) in scene.delays


@pytest.mark.requirement("sync:poll:confirmed")
async def test_a_registry_that_says_where_it_is_need_not_be_asked(scene: Scene):
    for _ in range(30):
        await scene.clock.advance(10)
        scene.registry.say(1)
    await scene.clock.settle()
    assert scene.registry.lists == 1
    scene.registry.now = replace(scene.registry.now, revision=3)
    scene.registry.say(3)  # of which the watch has told nothing
    await scene.clock.settle()
    assert (scene.registry.lists, scene.node.snapshot.revision) == (2, 3)
    await scene.clock.advance(2 * 36)
    assert scene.registry.lists == 3, "and says nothing any more"


@pytest.mark.requirement("sync:backoff", "sync:keep-old")
async def test_a_lost_registry_is_asked_again_ever_more_slowly_and_the_old_snapshot_serves(
    scene: Scene,
):
    scene.delays.clear()
    scene.registry.down = True
    scene.registry.break_off()
    await scene.clock.advance(60)
    assert scene.follower.state == "degraded"
    assert scene.follower.problem == "connection refused"
    assert scene.node.snapshot.revision == 1
    of_reports = {RHYTHM.pause_seconds * 2**count for count in range(10)} | {RHYTHM.report_seconds}
    tops = [high for low, high in scene.delays if low == 0 and high not in of_reports]
    assert tops[:4] == [1.8, 3.6, 7, 7]
    scene.registry.down = False
    scene.registry.write()
    await scene.clock.advance(8)
    assert (scene.follower.state, scene.node.snapshot.revision) == ("ok", 2)


@pytest.mark.requirement("sync:backoff")
async def test_after_ten_failures_nothing_is_tried_more_than_once_a_second():
    scene = Scene(SyncSettings())
    scene.registry.down = True
    async with scene.running():
        await scene.clock.advance(600)
        floors = [low for low, high in scene.delays if (low, high) != POLL]
        assert floors.count(0.0) <= 2 * 10, "of the watch, and of the reports"
        assert set(floors) == {0.0, 1.0}


@pytest.mark.requirement("sync:backoff")
async def test_a_registry_that_refuses_is_found_soon_and_one_that_is_overrun_is_left_alone():
    def longest(scene: Scene) -> float:
        return max(high for low, high in scene.delays if low == 1.0)

    refusing, overrun = Scene(WATCHING), Scene(WATCHING)
    refusing.registry.down = overrun.registry.late = True
    for scene in refusing, overrun:
        async with scene.running():
            await scene.clock.advance(300)
    assert (longest(refusing), longest(overrun)) == (4.0, 30.0)
    assert refusing.follower.problem == "connection refused"
    assert overrun.follower.problem == "the registry did not answer in time"


@pytest.mark.requirement("sync:backoff")
async def test_a_watch_that_breaks_at_its_first_word_is_a_failure_each_time():
    scene = Scene(SyncSettings())
    async with scene.running():
        for opened in range(1, 13):
            scene.registry.say(1)
            scene.registry.break_off()
            await scene.clock.settle()
            await scene.clock.advance(scene.delays[-1][1])
            assert len(scene.registry.watched) == opened + 1
        backoffs = [delay for delay in scene.delays if delay != POLL]
        assert [high for _, high in backoffs[:4]] == [0.2, 0.4, 0.8, 1.6]
        assert backoffs[-1] == (1.0, 4.0)
        for _ in range(3):  # one that is good for a while ends that
            scene.registry.say(1)
            await scene.clock.advance(10)
        scene.registry.break_off()
        await scene.clock.settle()
        assert scene.delays[-1] == (0.0, 0.1)


@pytest.mark.requirement("sync:backoff")
async def test_a_watch_that_never_follows_leads_to_one_question_a_second():
    scene = Scene(SyncSettings())
    async with scene.running():
        before = scene.registry.lists
        for _ in range(60):
            scene.registry.say(2)  # which the list does not have
        await scene.clock.settle()
        assert scene.registry.lists - before == 10
        await scene.clock.advance(5)
        assert scene.registry.lists - before == 15


@pytest.mark.requirement("sync:resync")
async def test_after_a_broken_stream_the_node_lists_everything_and_watches_from_there(
    scene: Scene,
):
    scene.registry.write(revision=5, tell=False)
    scene.registry.break_off()
    await scene.clock.advance(2)
    assert scene.node.given == [5]
    assert scene.registry.watched == [("a", 1), ("a", 5)]


@pytest.mark.requirement("sync:store-restored")
async def test_a_store_that_replaces_the_present_one_is_taken_whatever_its_revision(scene: Scene):
    scene.registry.write(revision=9)
    await scene.clock.settle()
    scene.registry.write(store_id="b", revision=2, predecessor="a", tell=False)
    scene.registry.break_off()
    await scene.clock.advance(2)
    assert scene.node.given == [9, 2]
    assert scene.registry.watched[-1] == ("b", 2)


@pytest.mark.requirement("sync:implausible")
@pytest.mark.parametrize(
    "offered", [{"revision": 8}, {"store_id": "b", "revision": 20}], ids=["older", "another"]
)
async def test_what_is_implausible_is_not_taken_until_somebody_says_so(
    scene: Scene, offered: dict[str, Any]
):
    scene.registry.write(revision=9)
    await scene.clock.settle()
    scene.registry.write(**offered, tell=False)
    await scene.clock.advance(100)
    assert scene.node.given == [9]
    assert scene.follower.state == "degraded"
    assert "restart this node" in (scene.follower.problem or "")
    await scene.follower.accept()
    await scene.clock.settle()
    assert scene.node.given == [9, offered["revision"]]
    assert (scene.follower.state, scene.node.snapshot) == ("ok", scene.registry.now)
    await scene.clock.advance(10)
    scene.registry.change(NOTES)
    await scene.clock.settle()
    assert scene.node.snapshot == scene.registry.now


async def test_a_registry_that_is_right_again_is_followed_again(scene: Scene):
    scene.registry.write(revision=9)
    await scene.clock.settle()
    good = scene.registry.now
    scene.registry.write(store_id="b", tell=False)
    await scene.clock.advance(40)
    assert scene.follower.state == "degraded"
    scene.registry.now = good
    scene.registry.write(tell=False)
    await scene.clock.advance(40)
    assert (scene.follower.state, scene.node.given) == ("ok", [9, 10])


async def test_an_answer_that_a_change_has_overtaken_is_neither_taken_nor_doubted(scene: Scene):
    scene.registry.write(revision=9)
    await scene.clock.settle()
    scene.registry.held = asyncio.Event()
    catching_up = asyncio.create_task(scene.follower.catch_up())
    await scene.clock.settle()
    scene.registry.change(NOTES)
    await scene.clock.settle()
    scene.registry.held.set()
    await catching_up
    assert (scene.follower.state, scene.node.given) == ("ok", [9, 10])


@pytest.mark.requirement("sync:silence")
async def test_a_watch_that_says_nothing_is_over_after_a_while():
    scene = Scene(replace(RHYTHM, silence_seconds=25, poll_seconds=1_000))
    async with scene.running():
        await scene.clock.advance(15)
        scene.registry.say(1)
        await scene.clock.advance(24.9)
        assert (len(scene.registry.watched), scene.follower.state) == (1, "ok")
        scene.registry.down = True
        await scene.clock.advance(0.2)
        assert scene.follower.problem == "the registry has said nothing for 25 s"
        await scene.clock.advance(2)
        assert scene.follower.problem == "connection refused"
        scene.registry.down = False
        await scene.clock.advance(8)
        assert (len(scene.registry.watched), scene.follower.state) == (2, "ok")


@pytest.mark.requirement("sync:silence")
async def test_a_silent_registry_is_noticed_with_the_usual_settings():
    scene = Scene(SyncSettings())
    scene.registry.write(revision=9)
    async with scene.running():
        scene.registry.held = asyncio.Event()
        await scene.clock.advance(26)
        assert scene.follower.state == "degraded"


@pytest.mark.requirement("sync:ttl")
async def test_a_snapshot_past_its_time_is_refreshed_before_it_is_called_current():
    scene = Scene()
    scene.registry.down = True
    await scene.clock.advance(121)
    assert scene.follower.state == "degraded"
    scene.registry.down = False
    async with scene.running():
        assert scene.registry.lists == 1
        assert scene.follower.state == "ok"


async def test_a_server_that_is_slow_to_end_delays_no_later_change(scene: Scene):
    scene.node.slow = asyncio.Event()
    scene.registry.write()
    await scene.clock.settle()
    scene.registry.write()
    await scene.clock.settle()
    assert scene.node.snapshot.revision == 3


async def test_reports_are_sent_when_something_changed_and_now_and_then(scene: Scene):
    assert [r.revision for r in scene.registry.reports] == [1]
    await scene.clock.advance(1)
    scene.node.stands(
        ConnectionStatus(server_id="notes", state="connected", latency_ms=1.0, failures=2),
        ConnectionStatus(server_id="notes", state="connecting"),
    )
    await scene.clock.settle()
    [status] = scene.registry.reports[-1].servers
    assert type(status) is ServerStatus
    assert (status.server_id, status.state, len(scene.registry.reports)) == (
        "notes",
        "connected",
        2,
    )
    scene.node.stands(ConnectionStatus(server_id="notes", state="connected", latency_ms=2.0))
    await scene.clock.advance(5)
    assert len(scene.registry.reports) == 2
    await scene.clock.advance(15)
    assert len(scene.registry.reports) == 3


async def test_a_report_says_why_the_node_is_degraded(scene: Scene):
    assert scene.registry.reports[-1].reason is None
    scene.registry.write(store_id="b", revision=9)
    await scene.clock.advance(RHYTHM.trouble_seconds + 8)
    [*_, last] = scene.registry.reports
    assert (last.state, "is another store" in str(last.reason)) == ("degraded", True)
    scene.registry.now = scene.node.snapshot
    await scene.clock.advance(8)
    assert (scene.registry.reports[-1].state, scene.registry.reports[-1].reason) == ("ok", None)


async def test_a_watch_that_is_lost_and_found_is_not_worth_a_report(scene: Scene):
    await scene.clock.advance(12)
    before = len(scene.registry.reports)
    scene.registry.break_off()
    await scene.clock.advance(1.9)
    assert len(scene.registry.watched) == 2
    assert len(scene.registry.reports) == before


async def test_a_report_that_failed_is_sent_again(scene: Scene):
    scene.registry.down = True
    scene.node.stands(ServerStatus(server_id="notes", state="down"))
    await scene.clock.advance(5)
    scene.registry.down = False
    await scene.clock.advance(RHYTHM.report_seconds)
    assert [s.state for s in scene.registry.reports[-1].servers] == ["down"]


async def test_a_report_that_is_not_taken_is_sent_ever_more_slowly(scene: Scene):
    scene.registry.refuses = True
    scene.node.stands(ServerStatus(server_id="notes", state="down"))
    await scene.clock.advance(60)
    assert 3 <= scene.registry.refused <= 10


# --- with a real bridge


def scripted(server_id: str, journal: Path, **fields: Any) -> ServerRecord:
    server = ScriptedServer(behaviours={"echo": "echo", "error": "error"}, journal=journal)
    command, args = server.command
    return Server.stdio(server_id, command, *args, **fields)


def starts(journal: Path) -> int:
    lines = journal.read_text(encoding="utf-8").splitlines()
    return sum(json.loads(line).get("method") == "server/discover" for line in lines)


def of(revision: int, *records: ServerRecord) -> Snapshot:
    servers = {record.server_id: record for record in records}
    return Snapshot(store_id="a", revision=revision, servers=servers)


async def force(bridge: Bridge, revision: int) -> None:
    news = asyncio.Event()
    leave = bridge.subscribe(lambda _: news.set())
    while bridge.snapshot.revision != revision:
        await news.wait()
        news.clear()
    leave()


@pytest.mark.requirement("sync:rebuild-on-change", "sync:atomic-swap")
async def test_a_session_goes_from_one_revision_to_the_next_and_only_what_moved_restarts(
    tmp_path: Path,
):
    stays, moves = tmp_path / "stays", tmp_path / "moves"
    registry = Registry()
    registry.now = of(1, scripted("stays", stays), scripted("moves", moves, allow=["echo"]))
    async with asyncio.timeout(20), Bridge.open(registry.now) as bridge:
        following = asyncio.create_task(Follower(registry, bridge).run())
        async with bridge.session(server_ids=["stays", "moves"]) as session:
            before = (await session.tools()).names
            registry.now = of(
                2,
                scripted("stays", stays, allow=["error"]),
                scripted("moves", moves, env={"MOVED": "1"}),
            )
            registry.say(2)
            await force(bridge, 2)
            after = await session.tools()
            denied = await session.call("stays/echo", {"text": "x"})
            allowed = await session.call("moves/echo", {"text": "x"})
        following.cancel()
        await asyncio.wait([following])
    assert set(before) == {"mcp__stays__echo", "mcp__stays__error", "mcp__moves__echo"}
    assert set(after.names) == {"mcp__stays__error", "mcp__moves__echo", "mcp__moves__error"}
    assert after.revision == denied.revision == allowed.revision == 2
    assert denied.error is not None
    assert denied.error.code == "mcp_policy_denied"
    assert allowed.ok
    assert (starts(stays), starts(moves)) == (1, 2)
