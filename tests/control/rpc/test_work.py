"""Work on the streams of nodes, and what comes back of it, over a real port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from bascule.asgi.errors import Refused
from bascule.control.registry.store import Author
from bascule.control.work.channel import PARTED_SECONDS, WORK_SECONDS
from bascule.control.work.far_nodes import FarNode, FarNodes
from bascule.errors import ServerUnavailable
from bascule.model.assignment import ALL, Assignment
from bascule.model.role import Role
from bascule.model.server import ServerRecord
from bascule.wire.api.trials import ToolPreview, Trial, TrialStep
from bascule.wire.pb import node_pb2 as pb
from bascule.wire.pb import records_pb2
from bascule.wire.records import decode
from tests.control.registry.build import BY, server
from tests.control.rpc.counter import RpcCounter, Watched
from tests.control.rpc.test_nodes import followed, said
from tests.control.rpc.test_registry import written
from tests.waits import SOON_SECONDS, Heard, until

STATUS = grpc.StatusCode
TRIAL = pb.Trial(ok=True, duration_ms=1.0)
LIST = pb.TrialStep(step="list", ok=True, duration_ms=1.5, message="2 tools")


class Asker:
    """Asks the nodes that follow a counter, as the API does."""

    def __init__(self, counter: RpcCounter) -> None:
        self.nodes = FarNodes(counter.service, counter.works, counter.clock)
        self.steps = Heard[TrialStep]()
        self._asking: list[asyncio.Task[Any]] = []

    def test(self, node: FarNode | None = None) -> asyncio.Task[Trial]:
        return self._begun((node or self.nodes.any("fs")).test("fs", self.steps.hear))

    def preview(self) -> asyncio.Task[tuple[ToolPreview, ...]]:
        return self._begun(self.nodes.any("fs").preview("fs"))

    def try_out(self, **fields: Any) -> asyncio.Task[Trial]:
        record, _ = decode(ServerRecord, server("fs", **fields))
        return self._begun(self.nodes.any("fs").try_out(record, self.steps.hear))

    def _begun(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._asking.append(task)
        return task

    async def close(self) -> None:
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)


@pytest.fixture
async def asker(counter: RpcCounter) -> AsyncGenerator[Asker, None]:
    made = Asker(counter)
    yield made
    await made.close()


async def soon(task: asyncio.Task[Any]) -> Any:
    async with asyncio.timeout(SOON_SECONDS):
        return await task


async def work_on(stream: Watched) -> pb.Work:
    """Return the next work on a stream; a stream that is woken for it says a bookmark too."""
    while (message := await stream.next()).WhichOneof("said") == "bookmark":
        pass
    assert message.WhichOneof("said") == "work", message
    return message.work


async def finish(counter: RpcCounter, id: str, role: Role = "node", **answer: Any) -> bool:
    return (await counter.ask("Finish", role, id=id, **answer)).wanted


@asynccontextmanager
async def at_work(counter: RpcCounter, asker: Asker) -> AsyncGenerator[tuple[Any, ...], None]:
    """Have a node follow and be handed a trial; give its stream, the work and who waits for it."""
    stream = await followed(counter)
    trial = asker.test()
    yield stream, await work_on(stream), trial


@pytest.mark.requirement("registry:grpc:work")
async def test_a_node_is_handed_a_trial_and_its_steps_and_result_reach_who_asked(
    counter: RpcCounter, asker: Asker
):
    async with at_work(counter, asker) as (_, work, trial):
        assert work.test.server_id == "fs"
        assert 0 < work.timeout_ms <= WORK_SECONDS * 1000
        assert await finish(counter, work.id, step=LIST)
        [step] = await asker.steps.reach(1)
        assert step == TrialStep(step="list", ok=True, duration_ms=1.5, message="2 tools")
        assert not trial.done()
        done = pb.Trial(ok=True, duration_ms=2.5, tool_count=2, tools=["a", "b"], steps=[LIST])
        assert await finish(counter, work.id, trial=done)
        found = await soon(trial)
        assert (found.ok, found.tools, found.steps) == (True, ("a", "b"), (step,))
        assert not await finish(counter, work.id, trial=done)


async def test_what_a_node_says_of_tools_is_known_while_the_record_is_the_same(
    counter: RpcCounter, asker: Asker
):
    await written(counter, "fs")
    async with at_work(counter, asker) as (_, work, trial):
        listed = ['{"name": "a", "inputSchema": {"type": "object"}}', '{"name": "no schema"}']
        definitions = [records_pb2.Json(text=text) for text in listed]
        done = pb.Trial(ok=True, duration_ms=1.0)
        assert await finish(counter, work.id, trial=done, definitions=definitions)
        await soon(trial)
    [tool] = asker.nodes.tools.known()["fs"]
    assert tool.model_name == "mcp__fs__a"
    await written(counter, "fs", display_name="Files")
    assert asker.nodes.tools.known() == {}


async def test_a_node_tries_a_draft_with_its_literal_values(counter: RpcCounter, asker: Asker):
    stream = await followed(counter)
    trial = asker.try_out(stdio={"command": "x", "env": {"TOKEN": "s3cret"}})
    work = await work_on(stream)
    assert work.try_out.server.server_id == "fs"
    assert work.try_out.server.stdio.env["TOKEN"] == "s3cret"
    await finish(counter, work.id, trial=pb.Trial(ok=False, duration_ms=1.0, error="no"))
    assert (await soon(trial)).error == "no"


async def test_a_node_previews_tools_or_says_why_not(counter: RpcCounter, asker: Asker):
    stream = await followed(counter)
    preview = asker.preview()
    work = await work_on(stream)
    assert work.preview.server_id == "fs"
    tool = pb.ToolPreview(
        tool="a", name="mcp__fs__a", allowed=True, layer="server", reason="allowed"
    )
    previews = pb.ToolPreviews(server_id="fs", tools=[tool])
    await finish(counter, work.id, previews=previews)
    [found] = await soon(preview)
    assert (found.name, found.allowed, found.claims_read_only) == ("mcp__fs__a", True, None)
    preview = asker.preview()
    work = await work_on(stream)
    failure = pb.Failure(code="launch_denied", message="not allowed here")
    await finish(counter, work.id, failure=failure)
    with pytest.raises(ServerUnavailable, match="not allowed here") as refused:
        await soon(preview)
    assert refused.value.reason == "launch_denied"


@pytest.mark.requirement("registry:grpc:work")
async def test_a_node_is_told_when_who_asked_hangs_up(counter: RpcCounter, asker: Asker):
    async with at_work(counter, asker) as (stream, work, trial):
        trial.cancel()
        cancel = await work_on(stream)
        assert (cancel.id, cancel.WhichOneof("job")) == (work.id, "cancel")
        assert not await finish(counter, work.id, step=LIST)


@pytest.mark.requirement("registry:grpc:work")
async def test_a_trial_fails_when_its_node_leaves(counter: RpcCounter, asker: Asker):
    async with at_work(counter, asker) as (stream, work, trial):
        await finish(counter, work.id, step=LIST)
        await asker.steps.reach(1)
        stream.call.cancel()
        await until(lambda: not counter.works.lives("node"))
        await counter.clock.advance(PARTED_SECONDS + 2)
        found = await soon(trial)
        assert not found.ok
        assert "node 'node' left while it was at it" in found.error
        assert [step.step for step in found.steps] == ["list"]
        with pytest.raises(Refused, match="no node is connected"):
            asker.nodes.any("fs")


@pytest.mark.requirement("registry:grpc:work-kept")
@pytest.mark.parametrize("notices", [True, False], ids=["noticed", "unnoticed"])
async def test_a_trial_goes_on_when_the_stream_of_its_node_is_replaced(
    counter: RpcCounter, asker: Asker, notices: bool
):
    async with at_work(counter, asker) as (stream, work, trial):
        if notices:
            stream.call.cancel()
            await until(lambda: not counter.works.lives("node"))
        again = await followed(counter, works=[work.id])
        await counter.clock.advance(PARTED_SECONDS + 2)
        assert not trial.done()
        done = pb.Trial(ok=True, duration_ms=2.5, tool_count=0)
        assert await finish(counter, work.id, trial=done)
        assert (await soon(trial)).ok
        trial = asker.test()
        assert (await work_on(again)).id != work.id


@pytest.mark.requirement("registry:grpc:work-kept")
async def test_a_trial_fails_when_its_node_begins_anew(counter: RpcCounter, asker: Asker):
    async with at_work(counter, asker) as (stream, _, trial):
        stream.call.cancel()
        await until(lambda: not counter.works.lives("node"))
        await followed(counter, process="another")
        await counter.clock.advance(2)
        assert "left while it was at it, and came back without it" in (await soon(trial)).error


@pytest.mark.parametrize("works", [["x"] * 65, [""], ["x" * 65]])
async def test_works_that_no_node_is_at_are_refused(counter: RpcCounter, works: list[str]):
    with pytest.raises(grpc.aio.AioRpcError, match="works: at most 64 ids"):
        await counter.follow(works=works).next()


@pytest.mark.requirement("registry:nodes:assigned-part")
async def test_a_node_that_is_not_assigned_a_server_is_not_asked_about_it(
    counter: RpcCounter, asker: Asker
):
    async with at_work(counter, asker):
        given = Assignment(labels=("elsewhere",))
        await counter.service.assignments.assign("node", given, BY, at=0.0, note=None)
        with pytest.raises(Refused, match="no node that is connected is assigned server 'fs'"):
            asker.nodes.any("fs")


@pytest.mark.requirement("registry:grpc:work")
async def test_a_trial_fails_when_its_time_is_over(counter: RpcCounter, asker: Asker):
    async with at_work(counter, asker) as (_, work, trial):
        await counter.clock.advance(WORK_SECONDS + 2)
        found = await soon(trial)
        assert not found.ok
        assert found.error == "node 'node' did not answer within 50 s"
        assert not await finish(counter, work.id, step=LIST)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"id": ""}, "id: the id of a piece of work is needed"),
        ({"id": "x" * 65}, "id: the id of a piece of work is needed"),
        ({"id": "x"}, "answer: a step, a trial, previews or a failure is needed"),
        ({"id": "x", "trial": pb.Trial(duration_ms=1.0)}, "`ok`"),
        ({"id": "x", "step": pb.TrialStep(step="dance", ok=True, duration_ms=1.0)}, "dance"),
        ({"id": "x", "failure": pb.Failure(code="No Code", message="m")}, "code"),
        ({"id": "x", "trial": pb.Trial(ok=True, duration_ms=1, tools=["t"] * 10_001)}, "10000"),
        ({"id": "x", "trial": TRIAL, "definitions": [records_pb2.Json(text="{")]}, "definitions"),
        ({"id": "x", "trial": TRIAL, "definitions": [records_pb2.Json(text="[]")]}, "definitions"),
    ],
)
async def test_an_answer_that_is_none_is_refused_by_its_field(
    counter: RpcCounter, fields: dict[str, Any], words: str
):
    refused = await counter.refusal("Finish", "node", **fields)
    assert refused.status is STATUS.INVALID_ARGUMENT
    assert words in refused.words


async def test_an_id_that_nobody_knows_is_not_wanted(counter: RpcCounter):
    assert not await finish(counter, "0" * 32, step=LIST)
    assert not await finish(counter, "\x00'; --", step=LIST)


@pytest.mark.requirement("registry:grpc:work")
async def test_the_work_of_a_node_is_answered_by_nobody_else(counter: RpcCounter, asker: Asker):
    async with at_work(counter, asker) as (_, work, trial):
        ours = counter.given["node"]
        counter.given["node"] = (await counter.tokens.mint("west", "node")).token
        answer = pb.Trial(ok=True, duration_ms=1.0)
        refused = await counter.refusal("Finish", "node", id=work.id, trial=answer)
        assert refused.status is STATUS.PERMISSION_DENIED
        assert refused.words == "id: this piece of work was given to another node"
        for role in ("admin", "viewer", "client"):
            denied = await counter.refusal("Finish", role, id=work.id, trial=answer)
            assert denied.status is STATUS.PERMISSION_DENIED
        assert not trial.done()
        counter.given["node"] = ours
        assert await finish(counter, work.id, trial=answer)
        assert (await soon(trial)).ok


async def test_the_words_of_a_node_are_made_fit_to_be_shown(counter: RpcCounter, asker: Asker):
    async with at_work(counter, asker) as (_, work, trial):
        rude = "a\x1b[2Jb\u202ec"
        step = pb.TrialStep(step="list", ok=False, duration_ms=1.0, message=rude)
        done = pb.Trial(
            ok=False,
            duration_ms=1.0,
            error=rude,
            tools=[rude],
            protocol=rude,
            stderr=[rude],
            steps=[step],
        )
        await finish(counter, work.id, trial=done)
        found = await soon(trial)
        texts = [found.error, *found.tools, found.protocol, *found.stderr, found.steps[0].message]
        assert all("\x1b" not in text and "\u202e" not in text for text in texts)
        assert all(text.startswith("a") and text.endswith("c") for text in texts)


async def test_only_the_stream_of_the_node_that_is_asked_is_woken(
    counter: RpcCounter, asker: Asker
):
    stream = await followed(counter)
    ours = counter.given["node"]
    counter.given["node"] = (await counter.tokens.mint("west", "node")).token
    west = await followed(counter)
    counter.given["node"] = ours
    asker.test(asker.nodes.named("node", "fs"))
    await work_on(stream)
    await written(counter, "b")
    await said(west, "change")


async def test_what_a_node_is_to_try_is_known_to_it_before(counter: RpcCounter, asker: Asker):
    stream = await followed(counter)
    await written(counter, "fs")
    asker.test()
    await said(stream, "change")
    assert (await work_on(stream)).test.server_id == "fs"


async def test_a_node_of_a_name_is_asked_or_it_is_said_why_not(counter: RpcCounter, asker: Asker):
    with pytest.raises(Refused, match="no node is connected"):
        asker.nodes.any("fs")
    with pytest.raises(Refused, match="node: there is no node 'west'") as unknown:
        asker.nodes.named("west", "fs")
    assert unknown.value.code == "not_found"
    await counter.ask("Report", "node", state="ok")
    with pytest.raises(Refused, match="node: 'node' is not connected now") as away:
        asker.nodes.named("node", "fs")
    assert away.value.code == "no_node"
    await followed(counter)
    assert asker.nodes.named("node", "fs")


async def test_the_node_that_serves_a_server_is_asked_before_others(
    counter: RpcCounter, asker: Asker
):
    await followed(counter)
    ours = counter.given["node"]
    counter.given["node"] = (await counter.tokens.mint("west", "node")).token
    west = await followed(counter)
    words = pb.ServerStatus(server_id="fs", state="connected", reconnects=0)
    await counter.ask("Report", "node", state="ok", servers=[words])
    counter.given["node"] = ours
    for _ in range(3):
        trial = asker.test()
        work = await work_on(west)
        trial.cancel()
        assert (await work_on(west)).id == work.id


@pytest.mark.requirement("admin:servers:far-node")
async def test_a_node_is_given_no_record_that_it_is_not_assigned(counter: RpcCounter, asker: Asker):
    await written(counter, "fs")
    await followed(counter)
    nothing = Assignment(tasks=())
    await counter.service.assignments.assign("node", nothing, Author("a"), at=0.0, note=None)
    with pytest.raises(Refused, match="is assigned server 'fs'"):
        asker.nodes.any("fs")
    with pytest.raises(Refused, match="node: 'node' is not assigned server 'fs'"):
        asker.nodes.named("node", "fs")
    with pytest.raises(Refused, match="is assigned server 'draft'"):
        asker.nodes.any("draft")
    assert asker.nodes.named("node", "draft")
    await counter.service.assignments.assign("node", ALL, Author("a"), at=0.0, note=None)
    assert asker.nodes.any("draft")
    assert asker.nodes.named("node", "fs")
