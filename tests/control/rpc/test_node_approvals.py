"""What nodes may ask and claim at the control plane, over a real port and every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from bascule.audit.approval_settings import ApprovalSettings
from bascule.audit.approval_steps import ApprovalRefused
from bascule.audit.approvals import AnyRows, Approvals, MemoryStore
from bascule.auth.identity import ALLOWED
from bascule.client.http import ApiError
from bascule.control.rpc import node_approvals
from bascule.errors import BudgetExceeded, OutcomeUnknown
from bascule.model.approval import Approval, Denied, Waiting
from bascule.model.assignment import Assignment
from bascule.wire.pb import node_pb2 as pb
from tests.audit.questions import kept, other_calls
from tests.control.registry.build import BY
from tests.control.rpc.far_desk import ASKS, FarDesk, far_desk, intent_of
from tests.postgres.databases import database
from tests.waits import SOON_SECONDS, until

T = TypeVar("T")
SETTINGS = ApprovalSettings(max_pending=2)


@pytest.fixture(params=["memory", "ledger", "postgres"])
async def everywhere(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncGenerator[FarDesk, None]:
    """A desk over each store that keeps approvals."""
    if request.param == "memory":
        async with far_desk(Approvals(MemoryStore(), SETTINGS)) as desk:
            yield desk
    elif request.param == "ledger":
        async with kept(tmp_path, SETTINGS) as approvals, far_desk(approvals) as desk:
            yield desk
    else:
        async with (
            database() as dsn,
            kept(tmp_path, SETTINGS, dsn=dsn) as approvals,
            far_desk(approvals) as desk,
        ):
            yield desk


@pytest.fixture
async def desk() -> AsyncGenerator[FarDesk, None]:
    async with far_desk(Approvals(MemoryStore(), SETTINGS)) as opened:
        yield opened


# --- once


@pytest.mark.requirement("approval:nodes")
async def test_an_approval_is_claimed_once_and_again_only_for_a_lost_answer(everywhere: FarDesk):
    desk, about = everywhere, everywhere.request()
    moved: list[tuple[str, str | None]] = []
    desk.approvals.subscribe(lambda one: moved.append((one.state, one.node)))
    given = await desk.approved(about)
    id = given.approval_id or ""
    await desk.calls.claim(id, about.call, intent_of(about.call, id))
    await desk.calls.claim(id, about.call, intent_of(about.call, id))
    assert moved == [("pending", "node"), ("approved", "node"), ("claimed", "node")]
    with pytest.raises(ApprovalRefused, match="was used already"):
        await desk.calls.claim(id, about.call, intent_of(about.call, id, "c2"))
    with pytest.raises(OutcomeUnknown, match="used already"):
        await desk.calls.ask(replace(about, approval_id=id), 0)
    assert (await desk.found(id)).claimed_by == "c1"
    assert await desk.waiting(about) != id


@pytest.mark.requirement("approval:nodes")
@pytest.mark.parametrize("name", ["arguments_digest", "definition_digest", "policy_digest"])
async def test_another_call_never_uses_an_approval(everywhere: FarDesk, name: str):
    desk, about = everywhere, everywhere.request()
    given = await desk.approved(about)
    id, other = given.approval_id or "", other_calls(about.call)[name]
    with pytest.raises(ApprovalRefused, match="is void: since it was asked, there is another"):
        await desk.calls.claim(id, other, intent_of(other, id))
    with pytest.raises(ApprovalRefused, match="is void"):
        await desk.calls.claim(id, about.call, intent_of(about.call, id))


async def test_a_repeated_claim_for_another_call_is_refused(desk: FarDesk):
    about = desk.request()
    id = (await desk.approved(about)).approval_id or ""
    await desk.calls.claim(id, about.call, intent_of(about.call, id))
    other = replace(about.call, arguments_digest="another")
    with pytest.raises(ApprovalRefused, match="was used already"):
        await desk.calls.claim(id, other, intent_of(other, id))


# --- whom a node speaks for


@pytest.mark.requirement("approval:nodes:asker")
@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"token_id": "tok-other"}, "call.token_id: is of no client of this node"),
        ({"token_id": None}, "call.token_id: is of no client of this node"),
        ({"caller": "boss"}, "call.caller: is not the name of the token"),
        ({"task_id": "other"}, "call.task_id: is not the task of the token"),
        ({"task_id": None}, "call.task_id: is not the task of the token"),
        ({"person": "alice"}, "call.person: is not one that the token speaks for"),
    ],
)
async def test_a_node_asks_for_its_clients_alone(desk: FarDesk, said: dict[str, Any], words: str):
    with pytest.raises(ApiError, match=words) as refused:
        await desk.calls.ask(desk.request(**said), 0)
    assert refused.value.code == "forbidden"
    about = desk.request()
    id = (await desk.approved(about)).approval_id or ""
    other = replace(about.call, **said)
    with pytest.raises(ApiError, match=words):
        await desk.calls.claim(id, other, intent_of(other, id))
    assert (await desk.found(id)).state == "approved"


@pytest.mark.requirement("approval:nodes:asker")
@pytest.mark.parametrize(
    ("assigned", "words"),
    [
        (Assignment(tasks=("other",)), r"call\.server_id: is no server of this node"),
        (Assignment(tasks=("beside",)), r"call\.token_id: is of no client of this node"),
        (Assignment(labels=("dmz",)), r"call\.server_id: is no server of this node"),
    ],
)
async def test_a_node_asks_about_what_it_is_assigned_alone(
    desk: FarDesk, assigned: Assignment, words: str
):
    policy = {"enabled": True, "default_server_ids": ["fs"]}
    await desk.put("task", "beside", task_id="beside", mcp=policy)
    await desk.put("task", "other", task_id="other", mcp={"enabled": True})
    about = desk.request()
    id = (await desk.approved(about)).approval_id or ""
    at, assignments = desk.counter.clock.now(), desk.counter.service.assignments
    await assignments.assign("node", assigned, BY, at=at, note=None)
    with pytest.raises(ApiError, match=words):
        await desk.calls.ask(about, 0)
    with pytest.raises(ApiError, match=words):
        await desk.calls.claim(id, about.call, intent_of(about.call, id))
    assert await desk.calls.approval(id) is None
    await assignments.assign("node", Assignment(tasks=("t",)), BY, at=at, note=None)
    await desk.calls.claim(id, about.call, intent_of(about.call, id))


async def test_a_node_uses_no_approval_of_another_client(desk: FarDesk):
    about = desk.request()
    id = (await desk.approved(about)).approval_id or ""
    minted = await desk.counter.tokens.mint("other", "client", task_id="t")
    other = replace(about.call, token_id=minted.record.id, caller="other")
    with pytest.raises(ApprovalRefused, match="there is no approval"):
        await desk.calls.claim(id, other, intent_of(other, id))
    mine = desk.request(token_id=minted.record.id, caller="other", approval_id=id)
    assert await desk.calls.ask(mine, 0) == Denied("there is no such approval")
    assert (await desk.found(id)).state == "approved"


async def test_a_token_that_acts_for_people_names_one(desk: FarDesk):
    await desk.put("user", "alice", user_id="alice")
    minted = await desk.counter.tokens.mint("proxy", "client", task_id="t", acts_for_users=True)
    said: dict[str, Any] = {"token_id": minted.record.id, "caller": "proxy"}
    id = await desk.waiting(desk.request(person="alice", **said))
    assert (await desk.found(id)).call.person == "alice"
    with pytest.raises(ApiError, match=r"call\.person"):
        await desk.calls.ask(desk.request(**said), 0)
    answer = await desk.calls.ask(desk.request(person="nobody", **said), 0)
    assert isinstance(answer, Denied)
    assert "there is no user 'nobody'" in answer.reason


async def test_a_token_that_was_revoked_asks_and_claims_nothing_more(desk: FarDesk):
    about = desk.request()
    id = (await desk.approved(about)).approval_id or ""
    await desk.counter.tokens.revoke(desk.client)
    with pytest.raises(ApiError, match="not any more"):
        await desk.calls.claim(id, about.call, intent_of(about.call, id))
    with pytest.raises(ApiError, match="not any more"):
        await desk.calls.ask(about, 0)


async def test_a_token_that_has_expired_asks_nothing_more(desk: FarDesk):
    minted = await desk.counter.tokens.mint("brief", "client", task_id="t", ttl_seconds=10)
    said: dict[str, Any] = {"token_id": minted.record.id, "caller": "brief"}
    await desk.waiting(desk.request(**said))
    await desk.counter.clock.advance(11)
    with pytest.raises(ApiError, match="not any more"):
        await desk.calls.ask(desk.request(**said), 0)


async def test_who_made_a_token_is_what_the_control_plane_knows(desk: FarDesk):
    id = await desk.waiting(desk.request(maker="somebody else"))
    found = await desk.found(id)
    assert (found.maker, found.node) == ("ada", "node")


@pytest.mark.parametrize("role", [role for role in ALLOWED if role != "node"])
async def test_only_nodes_ask(desk: FarDesk, role: Any):
    for method in ("Ask", "Claim", "GetApproval", "Withdraw"):
        refused = await desk.counter.refusal(method, role)
        assert refused.status.name == "PERMISSION_DENIED"


async def test_the_own_node_of_a_control_plane_is_not_spoken_for(desk: FarDesk):
    desk.counter.service.standing.own.add("node")
    with pytest.raises(ApiError, match="own node"):
        await desk.calls.ask(desk.request(), 0)


# --- what the records of now say


@pytest.mark.requirement("approval:nodes:decide-again")
async def test_rules_that_changed_before_the_node_heard_of_it_void_an_approval(
    everywhere: FarDesk,
):
    desk, about = everywhere, everywhere.request()
    id = (await desk.approved(about)).approval_id or ""
    await desk.put("platform", "platform", **ASKS, default_approval="always")
    with pytest.raises(ApprovalRefused, match="there is another record or rule"):
        await desk.calls.claim(id, about.call, intent_of(about.call, id))
    assert (await desk.found(id)).state == "void"


@pytest.mark.requirement("approval:nodes:decide-again")
async def test_what_the_records_deny_by_now_is_neither_asked_nor_claimed(desk: FarDesk):
    about = desk.request()
    id = (await desk.approved(about)).approval_id or ""
    await desk.put("platform", "platform", **ASKS, tool_denylist=["write"])
    with pytest.raises(ApprovalRefused, match="platform denies it now: platform_denied"):
        await desk.calls.claim(id, about.call, intent_of(about.call, id))
    answer = await desk.calls.ask(desk.request("else"), 0)
    assert isinstance(answer, Denied)
    rule = {"tools": ["fs/write"], "effect": "deny", "when": "args.text == 'hello'"}
    await desk.put("platform", "platform", rules=[rule, *ASKS["rules"]])
    with pytest.raises(ApprovalRefused, match=r"a rule denies it now: platform\.rules\[0\]"):
        await desk.calls.claim(id, about.call, intent_of(about.call, id))
    assert isinstance(await desk.calls.ask(desk.request("else"), 0), Waiting)
    await desk.counter.service.delete("task", "t", BY)
    answer = await desk.calls.ask(about, 0)
    assert answer == Denied("there is no task 't' any more")


# --- what a node says


async def test_what_is_shown_is_of_the_tool_that_is_called(desk: FarDesk):
    strange: list[tuple[dict[str, Any], str]] = [
        ({"definition": {"name": "write", "description": "harmless"}}, "request.definition"),
        ({"definition": {"name": "read"}}, "request.definition"),
        ({"payload": b"[1]"}, "request.payload"),
        ({"payload": b"{"}, "request.payload"),
        ({"payload": b"\xff"}, "request.payload"),
        ({"rule": "x" * 5_000}, "request.rule"),
    ]
    for said, field in strange:
        with pytest.raises(ApiError, match=field) as refused:
            await desk.calls.ask(desk.request(**said), 0)
        assert refused.value.code == "invalid_request", said


async def test_the_intent_of_a_claim_is_of_its_call(desk: FarDesk):
    about = desk.request()
    id = (await desk.approved(about)).approval_id or ""
    other = intent_of(replace(about.call, tool_name="delete"), id)
    with pytest.raises(ApiError, match="intent: must be of the call"):
        await desk.calls.claim(id, about.call, other)
    with pytest.raises(ApiError, match="intent: must be of the call"):
        await desk.calls.claim(id, about.call, intent_of(about.call, "apr-other"))
    refused = await desk.counter.refusal(
        "Claim", "node", approval_id=id, call=pb.ExactCall(server_id="fs"), intent=b"{}"
    )
    assert refused.status.name == "INVALID_ARGUMENT"
    assert (await desk.found(id)).state == "approved"


async def test_too_many_questions_of_a_token_are_told_as_such(desk: FarDesk):
    for number in range(2):
        await desk.waiting(desk.request(f"text {number}"))
    with pytest.raises(BudgetExceeded, match="wait already") as refused:
        await desk.calls.ask(desk.request("one more"), 0)
    assert refused.value.retry_after == 60


# --- waiting


async def test_a_wait_is_bounded_and_the_question_stays(
    desk: FarDesk, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(node_approvals, "MAX_WAIT_SECONDS", 0.05)
    answer = await desk.calls.ask(desk.request(), SOON_SECONDS)
    assert isinstance(answer, Waiting)
    found = await desk.calls.approval(answer.approval_id, SOON_SECONDS)
    assert found == await desk.found(answer.approval_id)


async def test_a_decision_is_told_to_who_waits(desk: FarDesk):
    about = desk.request()
    asking = asyncio.create_task(desk.calls.ask(about, 20))
    await until(desk.approvals.pending)
    [question] = await desk.approvals.pending()
    looking = asyncio.create_task(desk.calls.approval(question.id, 20))
    await desk.decide(question.id, "deny")
    answer, found = await asking, await looking
    assert answer == Denied("the approval was denied", question.id)
    assert found == await desk.found(question.id)
    assert found is not None
    assert found.decided is not None
    assert found.decided.person == "eve"


class Counted(Approvals):
    """Counts who waits for a decision, and who did."""

    waits = ended = 0

    async def settled(self, id: str, seconds: float | None) -> Approval:
        self.waits += 1
        try:
            return await super().settled(id, seconds)
        finally:
            self.ended += 1


async def test_a_connection_that_is_lost_while_it_waits_takes_no_question_back():
    approvals = Counted(MemoryStore())
    async with far_desk(approvals) as desk:
        about = desk.request()
        id = await desk.waiting(about)
        asking = asyncio.create_task(desk.calls.ask(replace(about, approval_id=id), 20))
        looking = asyncio.create_task(desk.calls.approval(id, 20))
        await until(lambda: approvals.waits == 2)
        for task in (asking, looking):
            task.cancel()
        await until(lambda: approvals.ended == 2)
        await approvals.close()
        assert (await desk.found(id)).state == "pending"


class SlowStore(MemoryStore):
    """Makes no step before it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0
        self.open = asyncio.Event()
        self.open.set()

    async def step(self, work: Callable[[AnyRows], T]) -> T:
        self.begun += 1
        await self.open.wait()
        return await super().step(work)


async def test_a_connection_that_is_lost_while_it_asks_takes_no_question_back():
    store = SlowStore()
    approvals = Approvals(store)
    async with far_desk(approvals) as desk:
        about = desk.request()
        id = await desk.waiting(about)
        before = store.begun
        store.open.clear()
        asking = asyncio.create_task(desk.calls.ask(replace(about, approval_id=id), 20))
        await until(lambda: store.begun > before)
        await desk.source.close()
        asking.cancel()
        await asyncio.wait({asking})
        other = asyncio.create_task(desk.calls.ask(desk.request("else"), 0))
        await until(lambda: store.begun > before + 1)
        store.open.set()
        assert isinstance(await other, Waiting)
        await approvals.close()
        assert (await desk.found(id)).state == "pending"


async def test_a_question_is_taken_back_once_nobody_wants_its_answer(desk: FarDesk):
    about = desk.request()
    id = await desk.waiting(about)
    assert await desk.waiting(about) == id, "its answer was lost, and it asks again"
    other = await desk.waiting(replace(about, request_id="another call"))
    assert other == id
    await desk.calls.withdraw(id)
    await desk.approvals.close()
    assert (await desk.found(id)).state == "pending"
    await desk.calls.withdraw(id)
    await desk.approvals.close()
    assert (await desk.found(id)).state == "withdrawn"


async def test_a_node_hears_of_questions_of_its_clients_alone(desk: FarDesk):
    id = await desk.waiting(desk.request())
    assert await desk.calls.approval("apr-other") is None
    await desk.counter.tokens.revoke(desk.client)
    assert await desk.calls.approval(id) is None
    await desk.calls.withdraw(id)
    await desk.approvals.close()
    assert (await desk.found(id)).state == "pending"
