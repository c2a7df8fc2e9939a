"""How servers stand by what nodes say, wherever they say it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bascule.control.registry.nodes import Heard, NodeReports
from bascule.control.registry.service import RegistryService, Settings, open_registry
from bascule.control.registry.sqlite_store import SqliteStore
from bascule.control.registry.standing import (
    FORGOTTEN_SECONDS,
    LOST_SECONDS,
    MOST_NODES,
    SILENT_SECONDS,
    Standing,
)
from bascule.control.registry.status import NodeReport
from bascule.db.errors import StoreUnavailable
from bascule.model.status import ServerStatus
from bascule.testing.clock import FakeClock
from tests.control.registry.build import BY, server
from tests.control.registry.memory_reports import MemoryReports
from tests.control.registry.memory_store import MemoryStore


def said(node: str, at: float = 0.0, **states: str) -> NodeReport:
    servers = (ServerStatus(server_id=one, state=state) for one, state in states.items())
    return NodeReport(node=node, servers=tuple(servers), at=at)


class Scene:
    """Two replicas that share what nodes say."""

    def __init__(self, kept: NodeReports, clock: FakeClock) -> None:
        self.kept, self.clock = kept, clock
        self.here, self.there = Standing(kept, clock=clock), Standing(kept, clock=clock)

    async def report(self, node: str, **states: str) -> None:
        await self.here.report(said(node, self.clock.now(), **states))


@pytest.fixture
def scene(clock: FakeClock) -> Scene:
    return Scene(MemoryReports(), clock)


async def states(standing: Standing, *servers: str) -> list[str]:
    found = await standing.statuses(servers)
    return [found[one].state for one in servers]


@pytest.mark.requirement("registry:status-apart")
async def test_the_status_of_a_server_is_what_its_nodes_say(
    service: RegistryService, clock: FakeClock
):
    await service.put("server", "a", server("a"), BY)
    await service.put("server", "b", server("b"), BY)
    up = ServerStatus(
        server_id="a",
        state="connected",
        tool_count=3,
        latency_ms=1.0,
        average_latency_ms=3.0,
        reconnects=2,
    )
    down = ServerStatus(server_id="a", state="down", last_error="no such command")
    now = service.standing
    await now.report(NodeReport(node="one", servers=(up,), revision=2, at=clock.now()))
    assert (await service.statuses())["a"].state == "connected"
    await now.report(NodeReport(node="two", servers=(down,), revision=2, at=clock.now()))
    status = await service.statuses()
    assert (status["a"].state, status["a"].last_error) == ("down", "no such command")
    assert (status["a"].tool_count, status["a"].latency_ms) == (3, 1.0)
    assert (status["a"].average_latency_ms, status["a"].reconnects) == (3.0, 2)
    assert {node: one.health for node, one in status["a"].nodes.items()} == {
        "one": "Connected",
        "two": "Down",
    }
    assert (status["a"].health, status["b"].health) == ("Down", "Down")
    assert (status["b"].state, status["b"].nodes) == ("unknown", {})
    assert now.status("a") == status["a"]
    assert service.view.revision == 2
    await now.forget_node("two")
    assert (await service.statuses())["a"].state == "connected"
    assert [node.node for node in now.nodes()] == ["one"]


async def test_what_a_node_told_another_replica_is_heard_of(scene: Scene):
    await scene.report("n", a="connected", b="down")
    assert await states(scene.there, "a", "b") == ["unknown", "unknown"]
    await scene.there.refresh()
    assert await states(scene.there, "a", "b") == ["connected", "down"]
    await scene.report("n", a="parked")
    await scene.there.refresh()
    assert await states(scene.there, "a", "b") == ["parked", "unknown"]
    await scene.here.forget_node("n")
    await scene.there.refresh()
    assert await states(scene.there, "a") == ["unknown"]
    assert scene.there.nodes() == ()


async def test_a_silent_node_has_no_say_until_it_speaks_again(scene: Scene):
    await scene.report("lost", a="down", b="connected")
    scene.clock.jump(SILENT_SECONDS - 1)
    await scene.report("alive", a="connected")
    assert await states(scene.here, "a", "b") == ["down", "connected"]
    scene.clock.jump(2)
    assert await states(scene.here, "a", "b") == ["connected", "unknown"]
    assert scene.here.status("a").node_count == 1
    silent = {one.node: scene.here.silence_of(one) for one in scene.here.nodes()}
    assert silent == {"alive": None, "lost": "silent"}
    await scene.report("lost", a="down", b="connected")
    assert await states(scene.here, "a", "b") == ["down", "connected"]


@pytest.mark.requirement("registry:node-lost")
async def test_a_node_is_lost_soon_after_nobody_holds_its_stream(scene: Scene):
    await scene.report("n", a="down")
    await scene.report("without", a="connected")
    await scene.here.note(["n"])
    for _ in range(4):
        scene.clock.jump(LOST_SECONDS - 1)
        await scene.here.note(["n"])
        await scene.there.refresh()
    assert await states(scene.there, "a") == ["down"]
    assert seen(scene.there) == {"n": (None, 56.0), "without": (None, 0.0)}
    scene.clock.jump(LOST_SECONDS + 1)
    assert await states(scene.there, "a") == ["connected"]
    assert seen(scene.there) == seen(scene.here) == {"n": ("lost", 56.0), "without": (None, 0.0)}
    await scene.report("n", a="down")  # and has no stream now
    assert seen(scene.here)["n"] == (None, 72.0)
    scene.clock.jump(SILENT_SECONDS + 1)
    assert seen(scene.here)["n"] == ("silent", 72.0)


def seen(standing: Standing) -> dict[str, tuple[str | None, float]]:
    """Return how nodes are called, and when they were heard of since the beginning."""
    began = FakeClock().now()
    return {one.node: (standing.silence_of(one), one.at - began) for one in standing.nodes()}


@pytest.mark.requirement("registry:node-lost")
async def test_a_node_that_follows_again_is_not_silent_whatever_it_said_when(scene: Scene):
    await scene.report("n", a="connected")
    scene.clock.jump(SILENT_SECONDS + 1)
    assert scene.here.states() == {"silent": 1}
    scene.here.see("n")
    assert scene.here.states() == {"ok": 1}
    assert await states(scene.here, "a") == ["connected"]


@pytest.mark.requirement("registry:node-lost")
async def test_nodes_are_counted_by_state(scene: Scene):
    for node in ("one", "two"):
        await scene.report(node)
    await scene.here.note(["two"])
    assert scene.here.states() == {"ok": 2}
    scene.clock.jump(LOST_SECONDS + 1)
    assert scene.here.states() == {"ok": 1, "lost": 1}


async def test_whoever_listens_is_told_when_a_node_falls_silent(scene: Scene):
    told: list[int] = []
    scene.here.listen(lambda: told.append(1))
    await scene.report("n", a="connected")
    await scene.here.refresh()
    before = len(told)
    await scene.here.refresh()
    assert len(told) == before
    scene.clock.jump(SILENT_SECONDS + 1)
    await scene.here.refresh()
    assert len(told) == before + 1


async def test_a_node_that_is_silent_for_a_day_is_forgotten(scene: Scene):
    await scene.report("lost", a="down")
    await scene.there.refresh()
    scene.clock.jump(FORGOTTEN_SECONDS + 1)
    await scene.report("alive", a="connected")
    await scene.there.refresh()
    assert [one.node for one in scene.there.nodes()] == ["alive"]
    await scene.here.forget_silent()
    later = Standing(scene.kept, clock=scene.clock)
    await later.refresh()
    assert [one.node for one in later.nodes()] == ["alive"]


async def test_nodes_are_forgotten_by_the_upkeep(clock: FakeClock):
    kept = MemoryReports()
    rarely = Settings(poll_seconds=7_200, bookmark_seconds=7_200, compact_seconds=7_200)
    store = MemoryStore(clock=clock)
    async with open_registry(store, clock=clock, settings=rarely, reports=kept) as service:
        await service.standing.report(said("lost", clock.now(), a="down"))
        await clock.advance(FORGOTTEN_SECONDS + 7_200)
        assert (await kept.heard(0)).nodes == {}


async def test_of_many_nodes_a_list_shows_those_that_see_it_worst(scene: Scene):
    for number in range(60):
        await scene.report(f"n{number:03}", a="down" if number % 30 == 29 else "connected")
    [status] = (await scene.here.statuses(["a"])).values()
    assert (status.node_count, len(status.nodes)) == (60, MOST_NODES)
    assert [n for n, one in status.nodes.items() if one.state == "down"] == ["n029", "n059"]
    assert list(status.nodes) == sorted(status.nodes)
    assert len(scene.here.status("a").nodes) == 60


class Counting(MemoryReports):
    """Reports that count how often they are read, and what is read of them."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[int] = []

    async def heard(self, since: int) -> Heard:
        found = await super().heard(since)
        self.read.append(len(found.words))
        return found


@pytest.mark.requirement("registry:many-records")
async def test_a_question_reads_nothing_and_a_refresh_what_changed(clock: FakeClock):
    kept = Counting()
    scene = Scene(kept, clock)
    for number in range(20):
        await scene.report(f"n{number}", **{f"s{one}": "connected" for one in range(10)})
    await scene.there.refresh()
    await scene.report(
        "n7", **{f"s{one}": "down" if one == 3 else "connected" for one in range(10)}
    )
    for _ in range(5):
        await states(scene.there, *(f"s{one}" for one in range(10)))
    await scene.there.refresh()
    assert kept.read == [200, 1]
    assert await states(scene.there, "s3", "s4") == ["down", "connected"]


async def test_many_words_are_combined_by_the_refresh_and_not_by_who_asks(scene: Scene):
    servers = [f"s{one}" for one in range(60)]
    for number in range(100):
        await scene.report(f"n{number}", **dict.fromkeys(servers, "connected"))
    assert set(await states(scene.here, *servers)) == {"connected"}
    await scene.report("n0", **dict.fromkeys(servers, "down"))
    assert set(await states(scene.here, *servers)) == {"connected"}
    await scene.here.refresh()
    assert set(await states(scene.here, *servers)) == {"down"}


class Away(MemoryReports):
    """Reports in a store that can be away."""

    away = False

    async def report(self, report: NodeReport) -> None:
        if self.away:
            raise StoreUnavailable("away")
        await super().report(report)

    async def heard(self, since: int) -> Heard:
        if self.away:
            raise StoreUnavailable("away")
        return await super().heard(since)


async def test_what_is_known_is_shown_while_the_store_is_away(clock: FakeClock):
    kept = Away()
    scene = Scene(kept, clock)
    await scene.report("n", a="connected", b="connected")
    kept.away = True
    with pytest.raises(StoreUnavailable):
        await scene.here.refresh()
    with pytest.raises(StoreUnavailable):
        await scene.report("n", a="down", b="connected")
    assert await states(scene.here, "a", "b") == ["down", "connected"]
    kept.away = False
    await scene.report("n", a="parked")
    await scene.there.refresh()
    assert await states(scene.there, "a", "b") == ["parked", "unknown"]


class Held(MemoryReports):
    """Reports whose readers get an answer that is older than what is kept meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def heard(self, since: int) -> Heard:
        found = await super().heard(since)
        self.asked.set()
        await self.go.wait()
        return found


async def test_a_reading_that_began_earlier_undoes_nothing(clock: FakeClock):
    kept = Held()
    scene = Scene(kept, clock)
    await scene.report("n", a="down")
    reading = asyncio.create_task(scene.here.refresh())
    await kept.asked.wait()
    await scene.report("n", a="connected")
    kept.go.set()
    await reading
    assert await states(scene.here, "a") == ["connected"]


async def test_what_nodes_said_is_there_after_a_restart(tmp_path: Path, clock: FakeClock):
    path = tmp_path / "registry.db"
    store = await SqliteStore(path, clock=clock, synchronous="OFF").open()
    async with open_registry(store, clock=clock, reports=store.reports) as service:
        await service.standing.report(said("n", clock.now(), a="parked"))
    store = await SqliteStore(path, clock=clock, synchronous="OFF").open()
    async with open_registry(store, clock=clock, reports=store.reports) as service:
        assert await states(service.standing, "a") == ["parked"]


async def test_a_server_that_one_node_has_not_asked_for_yet_is_connected(scene: Scene):
    await scene.report("n1", a="connected", b="connected", c="disconnected")
    await scene.report("n2", a="disconnected", b="down", c="disconnected")
    assert await states(scene.here, "a", "b", "c") == ["connected", "down", "disconnected"]
