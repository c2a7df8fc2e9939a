"""What is promised of approvals, a sentence at a time, over every store that can keep it."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from msgspec.structs import replace

from bascule.audit.approval_rows import ApprovalFilter
from bascule.audit.approval_settings import ApprovalSettings
from bascule.audit.approval_steps import CHANGED, ApprovalRefused
from bascule.audit.approvals import Approvals, MemoryStore
from bascule.db.sqlite import plain_commit
from bascule.errors import BudgetExceeded
from bascule.model.approval import (
    Answer,
    Approval,
    ApprovalRequest,
    Approved,
    Decider,
    Denied,
    Waiting,
)
from bascule.testing.clock import FakeClock
from tests.audit.questions import (
    Claiming,
    approved,
    asked,
    claim,
    kept,
    other_calls,
    request,
    says,
    state,
)
from tests.postgres.databases import database
from tests.waits import SOON_SECONDS, Heard

SETTINGS = ApprovalSettings(decide_seconds=100, claim_seconds=50, max_pending=3)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["memory", "ledger", "postgres"])
async def approvals(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> AsyncGenerator[Approvals, None]:
    if request.param == "memory":
        yield Approvals(MemoryStore(clock), SETTINGS, clock=clock)
    elif request.param == "ledger":
        async with kept(tmp_path, SETTINGS, clock=clock) as opened:
            yield opened
    else:
        async with database() as dsn, kept(tmp_path, SETTINGS, clock=clock, dsn=dsn) as opened:
            yield opened


async def waiting(
    approvals: Approvals, about: ApprovalRequest, many: int = 1
) -> list[asyncio.Task[Answer]]:
    """Let calls wait for an answer; return when each of them does."""
    told = Heard[Waiting]()
    calls = [asyncio.create_task(approvals.ask(about, None, told.hear)) for _ in range(many)]
    await told.reach(many)
    return calls


# --- who joins


@pytest.mark.requirement("approval:withdrawn")
async def test_a_process_that_ends_waits_no_longer_and_takes_nothing_back(approvals: Approvals):
    calls = await waiting(approvals, request(), 2)
    approvals.stop()
    async with asyncio.timeout(SOON_SECONDS):
        answers = await asyncio.gather(*calls)
    assert {type(answer) for answer in answers} == {Waiting}
    [question] = await approvals.listing(ApprovalFilter())
    assert question.state == "pending"


@pytest.mark.requirement("approval:withdrawn")
async def test_what_a_token_asked_that_has_ended_is_taken_back_at_the_next_sweep(
    approvals: Approvals,
):
    gone = await asked(approvals, request(token_id="tok-gone"))
    here = await asked(approvals, request(token_id="tok-here"))
    decided = await approved(approvals, request(token_id="tok-gone", arguments_digest="other"))

    async def living() -> set[str]:
        return {"tok-here"}

    approvals.living = living
    await approvals.sweep()
    ended = await approvals.get(gone.id)
    assert ended is not None
    assert (ended.state, ended.reason) == ("withdrawn", "the token that asked has ended")
    assert await state(approvals, here.id) == "pending"
    assert await state(approvals, decided.id) == "approved"


@pytest.mark.requirement("approval:joins")
async def test_the_same_call_of_the_same_person_joins_the_question(approvals: Approvals):
    question = await asked(approvals, request())
    again = await approvals.ask(request(request_id="r2"), 0)
    assert again == Waiting(question.id, question.expires_at)
    assert len(await approvals.listing(ApprovalFilter())) == 1


@pytest.mark.requirement("approval:joins")
@pytest.mark.parametrize("field", sorted(other_calls(request().call)))
async def test_another_call_or_asker_is_another_question(approvals: Approvals, field: str):
    question = await asked(approvals, request())
    names = {"server_id": "server", "tool_name": "tool"}
    other = await asked(approvals, request(**{names.get(field, field): "another"}))
    assert other.id != question.id


async def test_one_answer_is_for_everybody_who_waits_and_for_one_of_them_to_use(
    approvals: Approvals,
):
    calls = await waiting(approvals, request(), many=3)
    [question] = await approvals.listing(ApprovalFilter())
    await approvals.decide(question.id, says("approve", question))
    async with asyncio.timeout(SOON_SECONDS):
        answers = await asyncio.gather(*calls)
    assert answers == [Approved(question.call, question.id)] * 3
    claims = (claim(approvals, question, f"c{number}") for number in range(3))
    results = await asyncio.gather(*claims, return_exceptions=True)
    assert [result for result in results if result is True] == [True]
    assert sum(isinstance(result, ApprovalRefused) for result in results) == 2


# --- coming back


async def test_whoever_comes_back_by_its_id_finds_the_question_and_its_answer(
    approvals: Approvals,
):
    question = await asked(approvals, request())
    assert re.fullmatch(r"apr-[0-9a-f]{24}", question.id)
    again = request(request_id="r2", approval_id=question.id)
    assert await approvals.ask(again, 0) == Waiting(question.id, question.expires_at)
    await approvals.decide(question.id, says("approve", question))
    assert await approvals.ask(again, 0) == Approved(again.call, question.id)
    assert [one.id for one in await approvals.listing(ApprovalFilter())] == [question.id]


@pytest.mark.parametrize("field", ["caller", "person", "task_id", "token_id"])
async def test_to_another_asker_a_question_does_not_exist(approvals: Approvals, field: str):
    question = await asked(approvals, request())
    stranger = request(**{field: "other"}, approval_id=question.id)
    unknown = request(approval_id="apr-none")
    answers = [await approvals.ask(about, 0) for about in (stranger, unknown)]
    assert answers == [Denied("there is no such approval")] * 2
    assert await state(approvals, question.id) == "pending"


async def test_what_is_not_there_is_neither_decided_on_nor_claimed(approvals: Approvals):
    question = await asked(approvals, request())
    works = (
        approvals.decide("apr-none", says("approve", question)),
        claim(approvals, replace(question, id="apr-none")),
        approvals.settled("apr-none", 0),
    )
    for work in works:
        with pytest.raises(ApprovalRefused) as refused:
            await work
        found = refused.value.code, str(refused.value)
        assert found == ("not_found", "there is no approval 'apr-none'")


async def test_a_decision_on_something_else_than_what_is_asked_is_refused(approvals: Approvals):
    question = await asked(approvals, request())
    with pytest.raises(ApprovalRefused, match="digest") as refused:
        await approvals.decide(question.id, says("approve", replace(question, digest="other")))
    assert refused.value.code == "changed"
    assert await state(approvals, question.id) == "pending"


# --- hanging up


async def hung_up(approvals: Approvals, *calls: asyncio.Task[Answer]) -> None:
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    await approvals.close()


@pytest.mark.requirement("approval:withdrawn")
async def test_whoever_hangs_up_while_waiting_takes_the_question_back(approvals: Approvals):
    [call] = await waiting(approvals, request())
    [question] = await approvals.listing(ApprovalFilter())
    await hung_up(approvals, call)
    assert await state(approvals, question.id) == "withdrawn"


@pytest.mark.requirement("approval:withdrawn")
async def test_a_question_that_others_have_asked_too_stays(approvals: Approvals):
    first, second = await waiting(approvals, request(), many=2)
    [question] = await approvals.listing(ApprovalFilter())
    await hung_up(approvals, first)
    assert await state(approvals, question.id) == "pending"
    await hung_up(approvals, second)
    assert await state(approvals, question.id) == "withdrawn"


async def test_a_question_that_somebody_may_come_back_to_stays(approvals: Approvals):
    question = await asked(approvals, request())
    [call] = await waiting(approvals, request(request_id="r2"))
    await hung_up(approvals, call)
    assert await state(approvals, question.id) == "pending"


async def test_a_question_of_another_process_is_not_taken_back_by_one_that_joins(tmp_path: Path):
    async with kept(tmp_path) as here, kept(tmp_path) as there:
        question = await asked(there, request())
        [call] = await waiting(here, request(request_id="r2"))
        await hung_up(here, call)
        assert await state(there, question.id) == "pending"


async def test_whoever_hangs_up_while_the_question_is_written_leaves_none(tmp_path: Path):
    began, go = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    held = False

    def commit(connection: sqlite3.Connection, /) -> None:
        if held:
            loop.call_soon_threadsafe(began.set)
            asyncio.run_coroutine_threadsafe(go.wait(), loop).result(SOON_SECONDS)
        plain_commit(connection)

    async with kept(tmp_path, commit=commit) as approvals:
        held = True
        call = asyncio.create_task(approvals.ask(request(), None))
        async with asyncio.timeout(SOON_SECONDS):
            await began.wait()
            call.cancel()
            await asyncio.wait([call])
            held = False
            go.set()
            await approvals.close()
        assert [one.state for one in await approvals.listing(ApprovalFilter())] == ["withdrawn"]


# --- denials, limits, deadlines


@pytest.mark.requirement("approval:denial-answers")
async def test_a_denial_answers_the_same_call_until_the_deadline(
    approvals: Approvals, clock: FakeClock
):
    question = await asked(approvals, request())
    await approvals.decide(question.id, says("deny", question, reason="not today"))
    clock.jump(99)
    answer = await approvals.ask(request(request_id="r2"), None)
    assert answer == Denied("the approval was denied: not today", question.id)
    clock.jump(1)
    assert (await asked(approvals, request(request_id="r3"))).id != question.id


@pytest.mark.requirement("approval:held")
async def test_three_denials_of_a_tool_hold_it_whatever_its_arguments(
    approvals: Approvals, clock: FakeClock
):
    for text in "abc":
        question = await asked(approvals, request(text))
        await approvals.decide(question.id, says("deny", question))
    answer = await approvals.ask(request("d"), None)
    assert isinstance(answer, Denied)
    assert answer.approval_id is None
    assert "denied 3 times in 10 minutes" in answer.reason
    await asked(approvals, request("d", tool="delete"))
    await asked(approvals, request("d", person="bob"))
    clock.jump(600)
    await asked(approvals, request("d"))


@pytest.mark.requirement("approval:max-pending")
async def test_a_token_has_so_many_questions_and_no_more_until_one_is_decided(
    approvals: Approvals,
):
    questions = [await asked(approvals, request(text)) for text in "abc"]
    with pytest.raises(BudgetExceeded, match=r"approvals\.max_pending"):
        await approvals.ask(request("d"), None)
    await asked(approvals, request("d", token_id="tok-2"))
    await approvals.decide(questions[0].id, says("deny", questions[0]))
    await asked(approvals, request("d"))


@pytest.mark.requirement("approval:grant:expires")
async def test_a_yes_is_used_before_its_deadline_or_not_at_all(
    approvals: Approvals, clock: FakeClock
):
    early, late = [await approved(approvals, request(text)) for text in "ab"]
    clock.jump(49)
    assert await claim(approvals, early)
    clock.jump(1)
    with pytest.raises(ApprovalRefused) as refused:
        await claim(approvals, late)
    assert refused.value.code == "expired"


@pytest.mark.requirement("approval:clock-back")
async def test_what_was_refused_as_too_late_stays_so_when_the_clock_jumps_back(
    approvals: Approvals, clock: FakeClock
):
    question, given = await asked(approvals, request("a")), await approved(approvals, request("b"))
    clock.jump(100)
    with pytest.raises(ApprovalRefused) as refused:
        await approvals.decide(question.id, says("approve", question))
    assert refused.value.approval is not None
    assert refused.value.approval.state == "expired"
    clock.jump(-100)
    assert await state(approvals, question.id) == await state(approvals, given.id) == "expired"
    with pytest.raises(ApprovalRefused):
        await approvals.decide(question.id, says("approve", question))
    with pytest.raises(ApprovalRefused):
        await claim(approvals, given)


@pytest.mark.requirement("approval:clock-back")
async def test_time_goes_on_after_a_clock_that_was_far_ahead_is_set_right(
    approvals: Approvals, clock: FakeClock
):
    clock.jump(86_400)
    question = await asked(approvals, request())
    clock.jump(-86_400)
    await approvals.sweep()
    assert await state(approvals, question.id) == "pending"
    await clock.advance(SETTINGS.decide_seconds)
    await approvals.sweep()
    assert await state(approvals, question.id) == "expired"


async def test_a_sweep_ends_what_nobody_decided_on(approvals: Approvals, clock: FakeClock):
    question = await asked(approvals, request())
    clock.jump(100)
    await approvals.sweep()
    assert await state(approvals, question.id) == "expired"
    assert await approvals.shown(question.id) is None


# --- deciding and claiming


@pytest.mark.requirement("approval:decided-once")
async def test_the_first_decision_counts_and_the_second_is_told_the_first(approvals: Approvals):
    question = await asked(approvals, request())
    says_no = says("deny", question, Decider(name="other", token_id="tok-3"))
    both = (approvals.decide(question.id, one) for one in (says("approve", question), says_no))
    first, second = await asyncio.gather(*both, return_exceptions=True)
    assert isinstance(first, Approval)
    assert isinstance(second, ApprovalRefused)
    assert second.code == "wrong_state"
    assert second.approval == first


async def test_a_call_that_claims_twice_is_refused_the_second_time(approvals: Approvals):
    given = await approved(approvals, request())
    assert await claim(approvals, given, "c1")
    with pytest.raises(ApprovalRefused, match="was used already"):
        await claim(approvals, given, "c1")


@pytest.mark.parametrize("field", sorted(other_calls(request().call)))
async def test_an_approval_is_void_for_a_call_that_is_another_in_anything(
    approvals: Approvals, field: str
):
    given = await approved(approvals, request())
    other = other_calls(given.call)[field]
    with pytest.raises(ApprovalRefused) as refused:
        await approvals.claim(Approved(other, given.id), other, Claiming("c1", given.id, other))
    assert refused.value.code == "void"
    assert CHANGED.get(field, field) in str(refused.value)
    assert await state(approvals, given.id) == "void"
    with pytest.raises(ApprovalRefused):
        await claim(approvals, given)


async def test_every_step_is_told_once_those_that_time_makes_too(
    approvals: Approvals, clock: FakeClock
):
    told: list[str] = []
    approvals.subscribe(lambda one: told.append(one.state))
    await asked(approvals, request("a"))
    await approvals.ask(request("a", request_id="r2"), 0)
    clock.jump(100)
    given = await approved(approvals, request("b"))
    await claim(approvals, given)
    with pytest.raises(ApprovalRefused):
        await claim(approvals, given)
    assert told == ["pending", "expired", "pending", "approved", "claimed"]
