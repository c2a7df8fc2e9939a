"""How a node waits and claims: answers that are lost, a control plane that is away, an end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

import pytest

from bascule.app import far_approvals
from bascule.app.far_approvals import FarApprovals
from bascule.audit.approval_rows import ApprovalFilter
from bascule.audit.approval_steps import ApprovalRefused
from bascule.audit.approvals import Approvals, MemoryStore
from bascule.audit.events import LeavingCall
from bascule.audit.ledger import LedgerUnavailable
from bascule.client.http import Unreachable
from bascule.client.rpc_approvals import ApprovalCalls, Asks
from bascule.model.approval import Approved, Denied, Waiting
from tests.audit.questions import Claiming
from tests.control.rpc.far_desk import FarDesk, far_desk
from tests.grpc_ends import grpc_ends as grpc_ends
from tests.waits import SOON_SECONDS, Heard, until


class Line:
    """A way to the control plane that can be cut, and lose answers after they were given."""

    def __init__(self, source: Asks) -> None:
        self._source = source
        self.is_cut = False
        self.lost = 0
        self.asked: list[str] = []
        #: Answers come while it is set.
        self.open = asyncio.Event()
        self.open.set()

    async def ask(self, method: str, request: bytes, seconds: float = SOON_SECONDS) -> bytes:
        self.asked.append(method.rpartition("/")[2])
        if self.is_cut:
            raise Unreachable("127.0.0.1:1: the registry cannot be reached")
        answer = await self._source.ask(method, request, seconds)
        await self.open.wait()
        if self.lost:
            self.lost -= 1
            raise Unreachable("127.0.0.1:1: the connection was given up")
        return answer


@pytest.fixture
async def desk(grpc_ends: None) -> AsyncGenerator[FarDesk, None]:
    async with far_desk(Approvals(MemoryStore())) as opened:
        yield opened


@pytest.fixture
def line(desk: FarDesk) -> Line:
    return Line(desk.source)


@pytest.fixture
async def far(line: Line, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[FarApprovals, None]:
    monkeypatch.setattr(far_approvals, "_PAUSE_SECONDS", 0.01)
    async with FarApprovals(ApprovalCalls(line)) as opened:
        yield opened


async def claimed(far: FarApprovals, given: Approved) -> None:
    leaving = Claiming("c1", given.approval_id, given.call)
    assert not await far.claim(given, given.call, leaving), "its intent is to be written here"


@pytest.mark.requirement("approval:nodes:lost-answer")
async def test_a_claim_whose_answer_is_lost_is_made_once(
    desk: FarDesk, line: Line, far: FarApprovals
):
    moved: list[str] = []
    desk.approvals.subscribe(lambda one: moved.append(one.state))
    given = await desk.approved(desk.request())
    line.lost = 2
    await claimed(far, given)
    assert line.asked == ["Claim"] * 3
    assert moved == ["pending", "approved", "claimed"]
    other = Claiming("c2", given.approval_id, given.call)
    with pytest.raises(ApprovalRefused, match="was used already"):
        await far.claim(given, given.call, other)


async def test_a_question_whose_answer_is_lost_is_asked_once(
    desk: FarDesk, line: Line, far: FarApprovals
):
    line.lost = 2
    answer = await far.ask(desk.request(), 0)
    assert isinstance(answer, Waiting)
    assert len(await desk.approvals.pending()) == 1
    far.leave(answer.approval_id)
    await until(lambda: _is(desk, answer.approval_id, "withdrawn"))


async def _is(desk: FarDesk, id: str, state: str) -> bool:
    return (await desk.found(id)).state == state


@pytest.mark.requirement("approval:nodes:away")
async def test_nothing_is_asked_or_claimed_while_the_control_plane_is_away(
    desk: FarDesk,
    line: Line,
    far: FarApprovals,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    for name in ("PATIENCE_SECONDS", "CLAIM_SECONDS"):
        monkeypatch.setattr(far_approvals, name, 0.05)
    given = await desk.approved(desk.request())
    line.is_cut = True
    with caplog.at_level(logging.WARNING, "bascule.approvals"):
        for work in (
            far.ask(desk.request("else"), None),
            claimed(far, given),
            far.current(given.approval_id or ""),
        ):
            with pytest.raises(LedgerUnavailable, match="which does not answer now") as refused:
                await work
            assert "127.0.0.1" not in str(refused.value)
    assert len(caplog.messages) == 1, "that is said once"
    assert "127.0.0.1" in caplog.messages[0]
    assert await _is(desk, given.approval_id or "", "approved")
    line.is_cut = False
    await claimed(far, given)


@pytest.mark.requirement("approval:nodes:away")
async def test_who_waits_goes_on_waiting_while_the_control_plane_is_away(
    desk: FarDesk, line: Line, far: FarApprovals
):
    told = Heard[Waiting]()
    waiting = asyncio.create_task(far.ask(desk.request(), None, told.hear))
    [question] = await told.reach(1)
    await until(lambda: line.asked == ["Ask", "Ask"])
    line.lost, line.is_cut = 1, True
    await desk.decide(question.approval_id)
    await until(lambda: len(line.asked) >= 5)
    assert not waiting.done()
    line.is_cut = False
    async with asyncio.timeout(SOON_SECONDS):
        assert await waiting == Approved(desk.request().call, question.approval_id)


async def test_a_call_that_cannot_be_written_down_here_claims_nothing(desk: FarDesk):
    def refuse(leaving: LeavingCall) -> None:
        raise LedgerUnavailable("the disk is full")

    given = await desk.approved(desk.request())
    async with FarApprovals(desk.calls, refuse) as far:
        with pytest.raises(LedgerUnavailable, match="the disk is full"):
            await claimed(far, given)
    assert await _is(desk, given.approval_id or "", "approved")


async def test_who_hangs_up_while_a_question_is_asked_takes_it_back(
    desk: FarDesk, line: Line, far: FarApprovals
):
    line.open.clear()
    asking = asyncio.create_task(far.ask(desk.request(), 0))
    await until(desk.approvals.pending)
    asking.cancel()
    await asyncio.wait({asking})
    assert asking.cancelled()
    line.open.set()

    async def is_over() -> bool:
        found = await desk.approvals.listing(ApprovalFilter())
        return [one.state for one in found] == ["withdrawn"]

    await until(is_over)


async def test_who_hangs_up_while_waiting_takes_the_question_back(
    desk: FarDesk, line: Line, far: FarApprovals
):
    told = Heard[Waiting]()
    waiting = asyncio.create_task(far.ask(desk.request(), None, told.hear))
    [question] = await told.reach(1)
    waiting.cancel()
    await until(lambda: _is(desk, question.approval_id, "withdrawn"))


async def test_a_process_that_ends_lets_go_of_who_waits_and_leaves_the_question(
    desk: FarDesk, far: FarApprovals
):
    told = Heard[Waiting]()
    waiting = asyncio.create_task(far.ask(desk.request(), None, told.hear))
    [question] = await told.reach(1)
    looking = asyncio.create_task(far.settled(question.approval_id, None))
    far.stop()
    async with asyncio.timeout(SOON_SECONDS):
        assert await waiting == question
        assert (await looking).state == "pending"
    far.leave(question.approval_id)
    await far.close()
    assert await _is(desk, question.approval_id, "pending")


async def test_a_wait_ends_when_it_was_long_enough(desk: FarDesk, far: FarApprovals):
    answer = await far.ask(desk.request(), 0.05)
    assert isinstance(answer, Waiting)
    found = await far.settled(answer.approval_id, 0.05)
    assert found == await desk.found(answer.approval_id)
    with pytest.raises(ApprovalRefused, match="there is no approval"):
        await far.settled("apr-none", 0.05)
    assert await far.current("apr-none") is None


async def test_a_refusal_of_the_control_plane_is_told_without_its_address(
    desk: FarDesk, far: FarApprovals, caplog: pytest.LogCaptureFixture
):
    given = await desk.approved(desk.request())
    answer = await far.ask(desk.request(caller="boss"), None)
    assert answer == Denied("the control plane refuses this node's question (forbidden)")
    assert "call.caller: is not the name of the token" in caplog.text
    await desk.counter.tokens.revoke(desk.client)
    with pytest.raises(ApprovalRefused, match=r"refuses this node's question \(forbidden\)"):
        await claimed(far, given)


async def test_a_question_that_nobody_could_read_is_not_asked(
    desk: FarDesk, line: Line, far: FarApprovals
):
    long = b'{"text":"' + bytes(b"a" * 3_500_000) + b'"}'
    answer = await far.ask(desk.request(payload=long), None)
    assert isinstance(answer, Denied)
    assert "is too long for anybody to read" in answer.reason
    assert line.asked == []
