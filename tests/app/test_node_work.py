"""What a node does for its control plane: in time, few at once, and no longer than it is wanted."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bascule.app.node_work import MOST, MOST_AT_ONCE, NodeWorker
from bascule.client.followed import WorkOrder
from bascule.client.http import ApiError, Unreachable
from bascule.clock import SYSTEM_CLOCK
from bascule.errors import BasculeError
from bascule.model.server import ServerRecord
from bascule.node.assembly import Bridge
from bascule.testing import ScriptedServer
from bascule.wire.pb import node_pb2 as pb
from bascule.wire.records import decode
from tests.flow.processes import traces
from tests.waits import Heard, until


class Plane:
    """A control plane that hears answers; ``wanted`` is what it says to each."""

    def __init__(self) -> None:
        self.heard = Heard[pb.FinishRequest]()
        self.wanted = True
        #: So many calls fail before one is heard, and how.
        self.deaf = 0
        self.failure: BasculeError = Unreachable("away")

    async def ask(self, method: str, request: bytes) -> bytes:
        assert method == "Finish"
        if self.deaf:
            self.deaf -= 1
            raise self.failure
        self.heard.hear(pb.FinishRequest.FromString(request))
        return pb.FinishResponse(wanted=self.wanted).SerializeToString()

    def kinds(self) -> list[str | None]:
        return [one.WhichOneof("answer") for one in self.heard]


class Site:
    """A worker with a real bridge."""

    def __init__(self, bridge: Bridge) -> None:
        self.plane = Plane()
        self.bridge = bridge
        self.worker = NodeWorker(self.plane, bridge, SYSTEM_CLOCK)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Bridge.open([record("fs", ScriptedServer().stdio)]) as bridge:
        made = Site(bridge)
        async with made.worker:
            yield made


def record(server_id: str, stdio: Any) -> ServerRecord:
    plain = {"server_id": server_id, "transport": "stdio", "stdio": stdio, "allowed_tools": ["*"]}
    return decode(ServerRecord, plain)[0]


@pytest.fixture
def mute(tmp_path: Path) -> tuple[ServerRecord, str]:
    """A record of a program that never says anything, and a word of its command line."""
    file = tmp_path / "mute.py"
    file.write_text("import time\ntime.sleep(600)\n", encoding="utf-8")
    return record("mute", {"command": sys.executable, "args": [str(file)]}), str(file)


def trial(id: str = "a", **fields: Any) -> WorkOrder:
    usual: dict[str, Any] = {"seconds": 60.0, "job": "test", "server_id": "fs"}
    return WorkOrder(id=id, **{**usual, **fields})


def draft(id: str, record: ServerRecord, seconds: float = 60.0) -> WorkOrder:
    return WorkOrder(id=id, seconds=seconds, job="try_out", record=record)


async def test_a_trial_is_told_step_by_step_with_its_tools_at_the_end(site: Site):
    site.worker.order(trial())
    *steps, last = await site.plane.heard.reach(5)
    assert [one.step.step for one in steps] == ["resolve", "start", "handshake", "list"]
    assert (last.trial.ok, last.trial.tool_count, len(last.definitions)) == (True, 1, 1)


async def test_a_preview_says_why_there_is_nothing_to_show(site: Site):
    site.worker.order(trial(job="preview"))
    [answer] = await site.plane.heard.reach(1)
    assert [one.tool for one in answer.previews.tools] == ["echo"]
    site.worker.order(trial("b", job="preview", server_id="nothing"))
    _, answer = await site.plane.heard.reach(2)
    assert answer.failure.code
    assert "nothing" in answer.failure.message


async def test_what_a_node_does_not_know_how_to_do_it_says(site: Site):
    site.worker.order(WorkOrder(id="a", seconds=60.0, problem="this node does not know how"))
    [answer] = await site.plane.heard.reach(1)
    assert answer.failure == pb.Failure(code="no_node", message="this node does not know how")


@pytest.mark.requirement("registry:grpc:work-kept")
@pytest.mark.parametrize(
    "failure",
    [
        Unreachable("away"),
        ApiError(0, "shutting_down", "this replica ends"),
        ApiError(0, "store_unavailable", "PostgreSQL is away"),
    ],
    ids=lambda one: one.code,
)
async def test_the_last_answer_is_given_again_when_it_got_lost(site: Site, failure: BasculeError):
    site.plane.failure = failure
    site.plane.deaf = 6  # of four steps, and two last answers
    site.worker.order(trial())
    [last] = await site.plane.heard.reach(1)
    assert last.trial.ok
    assert len(last.trial.steps) == 4


@pytest.mark.parametrize("ending", ["unwanted", "cancelled", "over"])
async def test_work_that_nobody_waits_for_is_left(
    site: Site, mute: tuple[ServerRecord, str], ending: str
):
    drafted, mark = mute
    if ending == "unwanted":
        site.plane.wanted = False
    site.worker.order(draft("a", drafted, seconds=1.0 if ending == "over" else 60.0))
    await site.plane.heard.reach(1)
    if ending == "cancelled":
        site.worker.order(WorkOrder(id="a", job="cancel"))
    await until(lambda: not traces(mark))
    assert "trial" not in site.plane.kinds() or ending == "over"


async def test_what_is_under_way_is_named_for_the_next_stream(
    site: Site, mute: tuple[ServerRecord, str]
):
    drafted, _ = mute
    assert site.worker.works() == []
    site.worker.order(draft("a", drafted))
    site.worker.order(draft("b", drafted))
    assert site.worker.works() == ["a", "b"]
    site.worker.order(WorkOrder(id="a", job="cancel"))
    await until(lambda: site.worker.works() == ["b"])


async def test_few_are_done_at_once_and_too_many_are_refused(
    site: Site, mute: tuple[ServerRecord, str]
):
    drafted, mark = mute
    for number in range(MOST + 1):
        site.worker.order(draft(f"{number}", drafted))
    await until(lambda: "failure" in site.plane.kinds())
    await until(lambda: bool(traces(mark)))
    assert len(traces(mark)) <= MOST_AT_ONCE
    [refused] = [one for one in site.plane.heard if one.WhichOneof("answer") == "failure"]
    assert refused.id == f"{MOST}"
    assert "as much to try as it takes" in refused.failure.message
    await site.worker.close()
    assert traces(mark) == []


async def test_an_order_that_comes_twice_is_done_once(site: Site):
    site.worker.order(trial())
    site.worker.order(trial())
    await site.plane.heard.reach(5)
    await site.worker.close()
    assert site.plane.kinds() == [*["step"] * 4, "trial"]
