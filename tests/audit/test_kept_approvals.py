"""What is promised of approvals, a sentence at a time, over both stores where both can keep it."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path

import msgspec
import pytest

from bascule.audit.approval_rows import ApprovalFilter
from bascule.audit.approval_settings import ApprovalSettings
from bascule.audit.approval_steps import CHANGED, ApprovalRefused
from bascule.audit.approvals import Approvals, LedgerStore, MemoryStore
from bascule.audit.events import ApprovalMoved
from bascule.audit.ledger import LedgerUnavailable
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.audit.verification import verify
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
    KEY,
    Claiming,
    KeySealer,
    kept,
    opened_ledger,
    other_calls,
    request,
    says,
)
from tests.waits import SOON_SECONDS, Heard, until

SETTINGS = ApprovalSettings(decide_seconds=100, claim_seconds=50, max_pending=3)
PLAIN = "a sentence nobody else may read"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["memory", "ledger"])
async def approvals(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> AsyncGenerator[Approvals, None]:
    if request.param == "memory":
        yield Approvals(MemoryStore(clock), SETTINGS, clock=clock)
        return
    async with kept(tmp_path, SETTINGS, clock=clock) as opened:
        yield opened


async def asked(approvals: Approvals, about: ApprovalRequest) -> Approval:
    """Ask a question that is new, and return it."""
    answer = await approvals.ask(about, 0)
    assert isinstance(answer, Waiting)
    found = await approvals.get(answer.approval_id or "")
    assert found is not None
    return found


async def approved(approvals: Approvals, about: ApprovalRequest) -> Approval:
    question = await asked(approvals, about)
    return await approvals.decide(question.id, says("approve", question))


async def claim(approvals: Approvals, approval: Approval, request_id: str = "c1") -> bool:
    leaving = Claiming(request_id, approval.id, approval.call)
    return await approvals.claim(Approved(approval.call, approval.id), approval.call, leaving)


async def state(approvals: Approvals, id: str) -> str:
    found = await approvals.get(id)
    return "gone" if found is None else found.state


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


# --- which file it is


def put_back(copy: Path, ledger: Path) -> None:
    """Restore a copy into the file that is there."""
    shutil.copyfile(copy, ledger)
    remove_logs(ledger)


def put_another(copy: Path, ledger: Path) -> None:
    """Restore a copy as another file."""
    shutil.copyfile(copy, copy.with_name("another"))
    copy.with_name("another").replace(ledger)
    remove_logs(ledger)


def remove_logs(ledger: Path) -> None:
    for end in ("-wal", "-shm"):
        ledger.with_name(ledger.name + end).unlink(missing_ok=True)
    ledger.with_name("ledger.anchors").unlink(missing_ok=True)


@pytest.mark.requirement("approval:epoch")
def write_over(copy: Path, data: Path) -> None:
    """Restore a whole data directory into the files that are there, with the times they had."""
    shutil.copytree(copy, data, dirs_exist_ok=True)


def unpack(copy: Path, data: Path) -> None:
    """Restore a whole data directory as an archive is unpacked: each file anew, in its place."""
    for source in (path for path in copy.rglob("*") if path.is_file()):
        target = data / source.relative_to(copy)
        target.unlink(missing_ok=True)  # the new one may well be given its number
        shutil.copy2(source, target)


@pytest.mark.parametrize("restore", [write_over, unpack])
@pytest.mark.requirement("approval:epoch")
async def test_a_restored_data_directory_voids_what_was_not_claimed(
    tmp_path: Path, restore: Callable[[Path, Path], None]
):
    data, copy = tmp_path / "data", tmp_path / "copy"
    data.mkdir()
    async with kept(data) as approvals:
        given = await approved(approvals, request())
    shutil.copytree(data, copy)
    async with kept(data) as approvals:
        assert await claim(approvals, given)
    restore(copy, data)
    async with kept(data) as approvals:
        with pytest.raises(ApprovalRefused):
            await claim(approvals, given)


@pytest.mark.parametrize("restore", [put_back, put_another])
async def test_a_restored_ledger_voids_what_was_not_claimed(
    tmp_path: Path, restore: Callable[[Path, Path], None]
):
    data, copy = tmp_path / "data", tmp_path / "copy"
    data.mkdir()
    async with kept(data) as approvals:
        question, given = (
            await asked(approvals, request("a")),
            await approved(approvals, request("b")),
        )
    shutil.copyfile(data / "ledger.db", copy)
    async with kept(data) as approvals:
        assert await claim(approvals, given)
    restore(copy, data / "ledger.db")
    async with kept(data) as approvals:
        for one in (question, given):
            found = await approvals.get(one.id)
            assert found is not None
            assert found.state == "void"
            assert "restored" in found.reason
            assert await approvals.shown(one.id) is None
        with pytest.raises(ApprovalRefused):
            await claim(approvals, given)
    assert verify(data / "ledger.db").problems == ()


@pytest.mark.requirement("approval:epoch")
async def test_a_copied_data_directory_has_no_open_approvals_and_the_first_one_keeps_its(
    tmp_path: Path,
):
    data, copy = tmp_path / "data", tmp_path / "copy"
    data.mkdir()
    async with kept(data) as approvals:
        given = await approved(approvals, request())
    shutil.copytree(data, copy)
    async with kept(copy) as copied:
        with pytest.raises(ApprovalRefused):
            await claim(copied, given)
    async with kept(data) as approvals:
        assert await claim(approvals, given)


async def test_a_restart_voids_nothing_and_neither_do_processes_that_start_together(
    tmp_path: Path,
):
    await (await SqliteLedger(tmp_path, key=KEY).open()).close()
    async with AsyncExitStack() as stack:
        opened = await asyncio.gather(
            *(stack.enter_async_context(kept(tmp_path)) for _ in range(4))
        )
        given = [
            await approved(approvals, request(f"t{number}"))
            for number, approvals in enumerate(opened)
        ]
    for one in given:
        async with kept(tmp_path) as approvals:
            assert await claim(approvals, one, f"c-{one.id}")


# --- what a disk does


class Commits:
    """Counts commits, and fails them while it is told to."""

    def __init__(self) -> None:
        self.count = 0
        self.fails = False

    def __call__(self, connection: sqlite3.Connection, /) -> None:
        if self.fails:
            raise sqlite3.OperationalError("disk I/O error")
        self.count += 1
        plain_commit(connection)


async def test_claims_that_come_together_share_commits(tmp_path: Path):
    commits = Commits()
    many = 40
    settings = ApprovalSettings(max_pending=many)
    async with kept(tmp_path, settings, commit=commits) as approvals:
        given = [await approved(approvals, request(f"t{number}")) for number in range(many)]
        before = commits.count
        claims = (claim(approvals, one, f"c-{one.id}") for one in given)
        assert await asyncio.gather(*claims) == [True] * many
        assert commits.count - before <= many / 4


@pytest.mark.requirement("approval:fails-closed")
async def test_where_nothing_can_be_written_nothing_is_asked_decided_or_claimed_nor_lost(
    tmp_path: Path,
):
    clock, commits = FakeClock(), Commits()
    async with opened_ledger(tmp_path, clock=clock, commit=commits) as ledger:
        store = await LedgerStore(ledger, KeySealer(), clock).open()
        approvals = Approvals(store, clock=clock)
        question, given = (
            await asked(approvals, request("a")),
            await approved(approvals, request("b")),
        )
        await ledger.checkpoint()  # nothing is left to be done that would find out by itself
        commits.fails = True
        with pytest.raises(LedgerUnavailable) as refused:
            await claim(approvals, given)
        assert "disk I/O error" in str(refused.value)
        assert str(tmp_path) not in str(refused.value), "callers are told no path"
        with pytest.raises(LedgerUnavailable):
            await approvals.decide(question.id, says("approve", question))
        with pytest.raises(LedgerUnavailable):
            await approvals.ask(request("c"), None)
        found = await approvals.listing(ApprovalFilter())
        assert sorted(one.state for one in found) == ["approved", "pending"]
        commits.fails = False

        async def taken() -> bool:
            await clock.advance(1)
            try:
                return await claim(approvals, given)
            except LedgerUnavailable:
                return False

        assert await until(taken), "nobody looked whether the disk has room again"
        await approvals.decide(question.id, says("approve", question))
        store.close()
    assert verify(tmp_path / "ledger.db").problems == ()


@pytest.mark.requirement("audit:ledger:one-transaction")
async def test_no_commit_ever_has_a_claim_without_its_intent(tmp_path: Path):
    seen: list[list[str]] = []
    given: list[str] = []

    def commit(connection: sqlite3.Connection, /) -> None:
        plain_commit(connection)  # whoever is killed now leaves what another connection finds
        seen.extend(rows_about(tmp_path, id) for id in given)

    async with kept(tmp_path, commit=commit) as approvals:
        one = await approved(approvals, request())
        given.append(one.id)
        assert await claim(approvals, one)
    before = ["approval pending", "approval approved"]
    claimed = [*before, "approval claimed", "call_intent c1"]
    assert claimed in seen
    assert all(found in (before, claimed) for found in seen)


@pytest.mark.requirement("audit:ledger:one-transaction")
async def test_a_commit_that_fails_takes_the_claim_and_its_intent_with_it(tmp_path: Path):
    commits = Commits()
    async with kept(tmp_path, clock=FakeClock(), commit=commits) as approvals:
        given = await approved(approvals, request())
        commits.fails = True
        with pytest.raises(LedgerUnavailable):
            await claim(approvals, given)
        assert rows_about(tmp_path, given.id) == ["approval pending", "approval approved"]
        commits.fails = False


def rows_about(folder: Path, approval_id: str) -> list[str]:
    with closing(sqlite3.connect(folder / "ledger.db")) as connection:
        query = "SELECT event, request_id, body FROM events WHERE approval_id = ? ORDER BY number"
        found = connection.execute(query, (approval_id,)).fetchall()
    return [
        f"{event} {msgspec.json.decode(body, type=ApprovalMoved).state}"
        if event == "approval"
        else f"{event} {request_id}"
        for event, request_id, body in found
    ]


@pytest.mark.requirement("approval:sealed")
async def test_arguments_are_never_on_disk_as_they_are_and_what_was_sealed_goes_with_the_end(
    tmp_path: Path,
):
    clock = FakeClock()
    async with kept(tmp_path, clock=clock) as approvals:
        given = await approved(approvals, request(PLAIN))
        shown = await approvals.shown(given.id)
        assert shown is not None
        assert PLAIN.encode() in shown.arguments
        sealed = sealed_of(tmp_path, given.id)
        assert any(sealed in data for data in files(tmp_path))
        assert not any(PLAIN.encode() in data for data in files(tmp_path))
        await claim(approvals, given)
        await approvals.sweep()
        assert not any(sealed in data for data in files(tmp_path))
    assert not any(PLAIN.encode() in data for data in files(tmp_path))


def sealed_of(folder: Path, id: str) -> bytes:
    with closing(sqlite3.connect(folder / "ledger.db")) as connection:
        query = "SELECT sealed FROM approval_contents WHERE id = ?"
        [sealed] = connection.execute(query, (id,)).fetchone()
    return sealed


def files(folder: Path) -> list[bytes]:
    """Return every byte of a data directory: the database, its log, the journal."""
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


async def test_what_was_sealed_for_one_approval_is_not_shown_for_another(tmp_path: Path):
    async with kept(tmp_path) as approvals:
        one, other = [await asked(approvals, request(text)) for text in "ab"]
        sealed = sealed_of(tmp_path, one.id)
        with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection, connection:
            query = "UPDATE approval_contents SET sealed = ? WHERE id = ?"
            connection.execute(query, (sealed, other.id))
        assert await approvals.shown(one.id) is not None
        assert await approvals.shown(other.id) is None
