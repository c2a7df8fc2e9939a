"""The rhythm of a node that is a process of its own: its reports, and how its start waits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bascule.app.node_serve import rhythm_of
from bascule.app.node_start import Beginner
from bascule.app.settings import Settings
from bascule.client.http import Unreachable
from bascule.client.rpc import RpcAccess, RpcSource
from bascule.testing.clock import FakeClock
from tests.grpc_ends import grpc_ends as grpc_ends
from tests.node.test_sync import Scene
from tests.waits import advanced_until

#: Where nobody listens.
NOBODY = "127.0.0.1:1"


@pytest.mark.requirement("sync:status-rhythm")
async def test_a_node_says_the_same_again_after_five_minutes():
    scene = Scene(rhythm_of(Settings()))
    async with scene.running():
        for _ in range(29):  # a watch that lives says something every ten seconds
            await scene.clock.advance(10)
            scene.registry.say(1)
        assert len(scene.registry.reports) == 1
        scene.registry.write()
        await scene.clock.advance(1)
        assert [one.revision for one in scene.registry.reports] == [1, 2]
        for _ in range(31):
            await scene.clock.advance(10)
            scene.registry.say(2)
        assert [one.revision for one in scene.registry.reports] == [1, 2, 2]


@pytest.mark.requirement("sync:backoff")
async def test_a_start_tries_ever_more_slowly_until_its_time_is_up(grpc_ends: None, tmp_path: Path):
    clock, delays = FakeClock(), list[tuple[float, float]]()

    def jitter(low: float, high: float) -> float:
        delays.append((low, high))
        return high

    async with RpcSource(NOBODY, RpcAccess(token="t")) as source:
        beginner = Beginner(source, tmp_path, 60.0, clock, jitter)
        start = asyncio.create_task(beginner.start("east", "t"))
        await advanced_until(clock, start.done, seconds=0.5)
        with pytest.raises(Unreachable, match=NOBODY):
            await start
    assert delays[:4] == [(0.0, 0.2), (0.0, 0.4), (0.0, 0.8), (0.0, 1.6)]
    assert delays[-1] == (1.0, 4.0)
