"""Approvals that several replicas share: decided once, used once, whatever becomes of the link."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bascule.audit.approval_rows import ApprovalFilter
from bascule.audit.approval_steps import ApprovalRefused
from bascule.audit.approvals import Approvals
from bascule.audit.ledger import LedgerUnavailable
from bascule.audit.parked_turns import LedgerTurns, Place, TurnRefused
from bascule.db.postgres import Postgres
from bascule.model.approval import Answer, Approval, Approved, Denied, Verb, Waiting
from tests.audit.questions import (
    KeySealer,
    approved,
    asked,
    claim,
    kept,
    request,
    says,
    shared_ledger,
    state,
)
from tests.postgres.binaries import own
from tests.postgres.cluster import Cluster, own_cluster
from tests.postgres.databases import database
from tests.postgres.torn_link import Break, TornLink, torn_link
from tests.waits import SOON_SECONDS, Heard, until

EVERY = ApprovalFilter(limit=1_000)


@pytest.fixture
async def dsn() -> AsyncGenerator[str, None]:
    async with database() as dsn:
        yield dsn


@pytest.fixture
async def both(dsn: str, tmp_path: Path) -> AsyncGenerator[tuple[Approvals, Approvals], None]:
    """Two replicas over one database."""
    async with AsyncExitStack() as stack:
        one, other = [
            await stack.enter_async_context(kept(made(tmp_path / name), dsn=dsn))
            for name in ("one", "other")
        ]
        yield one, other


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


# --- two replicas


@pytest.mark.requirement("approval:replicas:once")
async def test_of_two_replicas_that_claim_one_approval_one_does(both: tuple[Approvals, Approvals]):
    one, other = both
    for number in range(10):
        approval = await approved(one, request(f"text {number}"))
        claims = [claim(one, approval, f"a{number}"), claim(other, approval, f"b{number}")]
        results = await asyncio.gather(*claims, return_exceptions=True)
        assert results.count(True) == 1
        assert sum(isinstance(result, ApprovalRefused) for result in results) == 1


@pytest.mark.requirement("approval:replicas:once")
async def test_of_two_replicas_that_decide_one_does_and_the_other_is_told_who(
    both: tuple[Approvals, Approvals],
):
    one, other = both
    question = await asked(one, request())
    decisions = [
        one.decide(question.id, says("approve", question)),
        other.decide(question.id, says("deny", question)),
    ]
    results = await asyncio.gather(*decisions, return_exceptions=True)
    [refused] = [result for result in results if isinstance(result, ApprovalRefused)]
    [decided] = [result for result in results if isinstance(result, Approval)]
    assert refused.approval is not None
    assert refused.approval.decided == decided.decided


@pytest.mark.requirement("approval:replicas:heard")
async def test_a_decision_is_heard_by_who_waits_at_another_replica(
    both: tuple[Approvals, Approvals],
):
    one, other = both
    told = Heard[Waiting]()
    answers: dict[Verb, type[Answer]] = {"approve": Approved, "deny": Denied}
    for verb, kind in answers.items():
        calling = asyncio.create_task(one.ask(request(verb), None, told.hear))
        await until(other.pending)
        [question] = await other.pending()
        heard = one.heard
        await other.decide(question.id, says(verb, question))
        async with asyncio.timeout(SOON_SECONDS):
            assert isinstance(await calling, kind)
        await until(lambda heard=heard: one.heard > heard)


async def test_the_same_call_at_two_replicas_is_one_question(both: tuple[Approvals, Approvals]):
    one, other = both
    answers = await asyncio.gather(one.ask(request(), 0), other.ask(request(), 0))
    assert answers[0] == answers[1]
    assert len(await one.listing(EVERY)) == 1


async def test_what_is_asked_at_one_replica_is_shown_at_another(both: tuple[Approvals, Approvals]):
    one, other = both
    question = await asked(one, request("to be shown"))
    shown = await other.shown(question.id)
    assert shown is not None
    assert shown.arguments == b'{"text":"to be shown"}'


@pytest.mark.requirement("approval:replicas:turns")
async def test_a_turn_that_one_replica_resumes_no_other_gets(dsn: str, tmp_path: Path):
    place = Place(id="turn-1", owner="alice", conversation="c" * 64)
    async with (
        shared_ledger(dsn, made(tmp_path / "one")) as first,
        shared_ledger(dsn, made(tmp_path / "other")) as second,
    ):
        one, other = (LedgerTurns(ledger, KeySealer()) for ledger in (first, second))
        await one.keep(place, b"body", until=2e9)
        assert await other.take(place) == b"body"
        with pytest.raises(TurnRefused) as refused:
            await one.take(place)
        assert refused.value.code == "in_use"
        await other.give_back(place)
        assert await one.take(place) == b"body"


# --- a commit that nobody answered


@pytest.fixture
async def link(dsn: str) -> AsyncGenerator[TornLink, None]:
    with TemporaryDirectory(prefix="bascule-") as folder:  # a socket's name is short
        async with torn_link(dsn, Path(folder)) as found:
            yield found


@pytest.mark.requirement("approval:replicas:in-doubt")
@pytest.mark.parametrize("how", ["before", "after", "while"])
async def test_a_claim_whose_commit_was_not_answered_is_told_apart(
    link: TornLink, tmp_path: Path, how: Break
):
    async with kept(tmp_path, dsn=link.dsn) as approvals:
        approval = await approved(approvals, request())
        link.word, link.next = b"claimed", how
        claiming = asyncio.create_task(claim(approvals, approval))
        await until(lambda: link.broken == 1)
        assert not claiming.done() or how != "while", "what may still happen is waited for"
        link.arrives.set()
        if how == "before":
            with pytest.raises(LedgerUnavailable):
                await claiming
            assert await state(approvals, approval.id) == "approved"
            assert await claim(approvals, approval, "c2")
        else:
            assert await claiming
        with pytest.raises(ApprovalRefused):
            await claim(approvals, approval, "c3")
        [claimed] = await approvals.listing(EVERY)
        assert (claimed.state, claimed.claimed_by) == (
            "claimed",
            "c2" if how == "before" else "c1",
        )


@pytest.mark.requirement("approval:replicas:in-doubt")
async def test_a_claim_of_which_nobody_can_tell_does_not_leave_and_is_not_made_again(
    link: TornLink, tmp_path: Path
):
    async with kept(tmp_path, dsn=link.dsn) as approvals:
        approval = await approved(approvals, request())
        link.word, link.next, link.goes_down = b"claimed", "after", True
        with pytest.raises(LedgerUnavailable):
            await claim(approvals, approval)
        link.down = False
        with pytest.raises(ApprovalRefused) as refused:
            await until_told(claim, approvals, approval, "c2")
        assert refused.value.code == "claimed"


async def test_approvals_that_cannot_be_read_for_long_are_logged_once(
    link: TornLink, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with kept(tmp_path, dsn=link.dsn) as approvals:
        link.cut()
        for _ in range(3):
            with pytest.raises(LedgerUnavailable):
                await approvals.listing(EVERY)
    logged = [record for record in caplog.records if "cannot be read: " in record.getMessage()]
    assert len(logged) == 1


# --- a database that is another one


@pytest.mark.requirement("approval:replicas:epoch")
async def test_a_failover_voids_what_was_not_claimed(tmp_path: Path):
    with own_cluster({"restore_command": "false"}) as cluster:
        async with kept(tmp_path, dsn=cluster.dsn()) as approvals:
            pending = await asked(approvals, request("pending"))
            agreed = await approved(approvals, request("agreed"))
            used = await approved(approvals, request("used"))
            assert await claim(approvals, used)
            await asyncio.to_thread(promote, cluster)
            with pytest.raises(ApprovalRefused) as refused:
                await until_told(claim, approvals, agreed, "c2")
            assert refused.value.code == "void"
            assert await state(approvals, pending.id) == "void"
            assert await state(approvals, used.id) == "claimed"
            again = await approved(approvals, request("agreed"))
            assert await claim(approvals, again, "c3")


@pytest.mark.requirement("approval:replicas:epoch")
async def test_a_crash_of_the_server_voids_nothing(tmp_path: Path):
    with own_cluster() as cluster:
        async with kept(tmp_path, dsn=cluster.dsn()) as approvals:
            agreed = await approved(approvals, request("agreed"))
            await asyncio.to_thread(cluster.kill)
            await asyncio.to_thread(cluster.start)
            assert await until_told(claim, approvals, agreed)


@pytest.mark.requirement("approval:replicas:epoch")
async def test_a_copy_of_the_server_that_is_put_back_voids_what_was_not_claimed(tmp_path: Path):
    with own_cluster() as cluster:
        async with kept(tmp_path, dsn=cluster.dsn()) as approvals:
            agreed = await approved(approvals, request("agreed"))
            await asyncio.to_thread(cluster.stop)
            copy = shutil.copytree(cluster.data, cluster.folder / "copy", symlinks=True)
            await asyncio.to_thread(cluster.start)
            assert await until_told(claim, approvals, agreed)
            await asyncio.to_thread(cluster.stop)
            shutil.rmtree(cluster.data)
            copy.rename(cluster.data)
            await asyncio.to_thread(cluster.start)
            with pytest.raises(ApprovalRefused) as refused:
                await until_told(claim, approvals, agreed, "c2")
            assert refused.value.code == "void", "it was claimed, and the copy does not know"


@pytest.mark.requirement("approval:replicas:epoch")
async def test_a_row_of_ones_own_that_is_not_there_any_more_voids_what_was_not_claimed(
    dsn: str, tmp_path: Path
):
    async with kept(tmp_path, dsn=dsn) as approvals:
        agreed = await approved(approvals, request("agreed"))
        postgres = await Postgres(dsn).open()
        await postgres.statement(
            "DELETE FROM ledger_events WHERE link = (SELECT max(link) FROM ledger_events)"
        )
        await postgres.close()
        with pytest.raises(ApprovalRefused) as refused:
            await claim(approvals, agreed)
        assert refused.value.code == "void"


def promote(cluster: Cluster) -> None:
    """Have the server come back on another timeline, as a standby does that takes over."""
    cluster.stop()
    signal = cluster.data / "recovery.signal"
    signal.touch()
    own(signal)
    cluster.start()


async def until_told(
    claim: Callable[..., Awaitable[bool]], approvals: Approvals, approval: Approval, *more: str
) -> bool:
    """Claim until the database answers."""

    async def told() -> bool:
        with suppress(LedgerUnavailable):
            return await claim(approvals, approval, *more)
        return False

    return await until(told)
