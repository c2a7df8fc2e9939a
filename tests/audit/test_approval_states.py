"""Approvals in any order of events: both stores agree, and the laws hold in each of them."""

from __future__ import annotations

import asyncio
import copy
import shutil
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, closing
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from bascule.audit import approval_steps as steps
from bascule.audit.approval_rows import ApprovalFilter, MemoryRows
from bascule.audit.approval_settings import ApprovalSettings
from bascule.audit.approval_steps import HELD_AFTER, HELD_SECONDS, ApprovalRefused
from bascule.audit.approvals import Approvals, MemoryStore
from bascule.audit.events import ApprovalMoved, CallIntent
from bascule.audit.verification import verify
from bascule.db.postgres import Postgres
from bascule.errors import BasculeError, BudgetExceeded, OutcomeUnknown
from bascule.model.approval import (
    STEPS,
    Approval,
    ApprovalRequest,
    ApprovalState,
    Approved,
    Denied,
    Shown,
    Waiting,
)
from bascule.testing.clock import FakeClock
from tests.audit.questions import BOSS, Claiming, kept, other_calls, request, says
from tests.postgres.databases import database
from tests.scale import scaled
from tests.waits import SOON_SECONDS

T = TypeVar("T")
MOST = 3
EVERYTHING = ApprovalFilter(limit=10_000)
SETTINGS = ApprovalSettings(decide_seconds=100, claim_seconds=50, max_pending=MOST)
RESTORED = "the ledger was restored from a copy, or copied"
ASKERS = ({}, {"person": "bob"}, {"token_id": "tok-2", "caller": "other"}, {"token_id": None})
askers = st.sampled_from(range(len(ASKERS)))
texts = st.sampled_from(["a", "b", "c", "d", "e"])
picks = st.integers(0, 1_000)
FIELDS = sorted(other_calls(request().call))


class Copied:
    """A copy of the ledger, and of what the other store had then."""

    def __init__(self, file: Path, rows: MemoryRows, ids: int, when: tuple[int, int]) -> None:
        self.file = file
        self.rows = rows
        self.ids = ids
        #: How often anything had been restored, and how many steps were made.
        self.when = when


class ApprovalMachine(RuleBasedStateMachine):
    """Does everything to both stores; approvals are known by the order in which they came."""

    both: tuple[Approvals, Approvals]

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.data = Path(self.folder.name) / "data"
        self.data.mkdir()
        self.runner = asyncio.Runner()
        self.clock = FakeClock()
        self.memory = MemoryStore(self.clock)
        self.ids: list[tuple[str, str]] = []
        self.requests: list[ApprovalRequest] = []
        self.calls = 0
        #: How often each was claimed, and which have come to their end, whatever is restored.
        self.claims: Counter[str] = Counter()
        self.ended: set[str] = set()
        self.stack = AsyncExitStack()
        self.run(self.open())

    async def open(self) -> None:
        memory = Approvals(self.memory, SETTINGS, clock=self.clock)
        self.both = memory, await self.opened()

    async def opened(self) -> Approvals:
        """Open the store with the chain, to be closed with the stack."""
        raise NotImplementedError

    def bodies(self, event: str) -> list[bytes]:
        """Return the events of a kind that are in the chain."""
        raise NotImplementedError

    def run(self, work: Awaitable[T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(SOON_SECONDS):
                return await work

        return self.runner.run(bounded())

    def teardown(self) -> None:
        self.run(self.stack.aclose())
        self.runner.close()
        self.folder.cleanup()

    # --- doing it to both

    def do(self, work: Callable[[Approvals, int], Coroutine[Any, Any, object]]) -> object:
        """Do something to both; return what came of it, which must be the same."""
        memory, sql = (self.run(self.outcome(work(one, at))) for at, one in enumerate(self.both))
        assert plain(memory) == plain(sql)
        return sql

    async def outcome(self, work: Coroutine[Any, Any, object]) -> object:
        try:
            return await work
        except BasculeError as error:
            return error

    def get(self, pick: int) -> Approval:
        found = self.run(self.both[1].get(self.ids[pick % len(self.ids)][1]))
        assert found is not None
        return found

    @property
    def now(self) -> float:
        """The time as approvals see it: it never goes back behind the last step."""
        return max([self.clock.now(), *(move.timestamp for move in self.moves(1))])

    def moves(self, which: int) -> list[ApprovalMoved]:
        """Return the steps that are in the chain."""
        if which == 0:
            return [one for one in self.memory.rows.events if isinstance(one, ApprovalMoved)]
        return [msgspec.json.decode(body, type=ApprovalMoved) for body in self.bodies("approval")]

    # --- rules

    @rule(text=texts, who=askers, tool=st.sampled_from(["write", "write", "delete"]))
    def ask(self, text: str, who: int, tool: str) -> None:
        self.calls += 1
        asked = request(text, request_id=f"r{self.calls}", tool=tool, **ASKERS[who])
        before = self.run(self.both[1].listing(EVERYTHING))
        now, mine = self.now, [one for one in before if one.call == asked.call]
        denials = [
            one
            for one in before
            if one.state == "denied"
            and (one.call.asker, one.call.tool_name) == (asked.call.asker, tool)
            and one.decided is not None
            and one.decided.at > now - HELD_SECONDS
        ]
        open_ = [one for one in mine if one.state in STEPS and one.expires_at > now]
        no = [one for one in mine if one.state == "denied" and one.expires_at > now]
        waiting = [one for one in before if one.state == "pending" and one.expires_at > now]
        full = sum(one.call.token_id == asked.token_id for one in waiting) >= MOST
        came = self.do(lambda one, _: one.ask(asked, 0))
        if open_:
            assert isinstance(came, Waiting | Approved)
            assert came.approval_id == open_[0].id
        elif no:
            assert isinstance(came, Denied)
            assert came.approval_id in [one.id for one in no]
        elif len(denials) >= HELD_AFTER:
            assert isinstance(came, Denied)
            assert came.approval_id is None
        elif asked.token_id is not None and full:
            assert isinstance(came, BudgetExceeded)
        else:
            assert isinstance(came, Waiting)
            self.learn(asked)
            assert came.approval_id == self.ids[-1][1]
            assert came.expires_at == now + SETTINGS.decide_seconds

    def learn(self, asked: ApprovalRequest) -> None:
        """Take note of a question that is new in both."""
        found = [self.moves(which)[-1].approval_id for which in range(2)]
        assert all(new not in {id for pair in self.ids for id in pair} for new in found)
        self.ids.append((found[0], found[1]))
        self.requests.append(asked)

    @precondition(lambda self: self.ids)
    @rule(pick=picks, text=texts, who=askers)
    def ask_again_for_one(self, pick: int, text: str, who: int) -> None:
        pair, old = self.ids[pick % len(self.ids)], self.get(pick)
        asked = request(text, request_id="again", tool=old.call.tool_name, **ASKERS[who])
        due = old.state in STEPS and old.expires_at <= self.now
        came = self.do(lambda one, at: one.ask(replace(asked, approval_id=pair[at]), 0))
        if old.call.asker != asked.call.asker:
            assert isinstance(came, Denied)
            assert came.approval_id is None
        elif old.call == asked.call and not due and old.state in STEPS:
            expected = Waiting if old.state == "pending" else Approved
            assert isinstance(came, expected)
        else:
            assert isinstance(came, Denied | OutcomeUnknown)

    @precondition(lambda self: self.ids)
    @rule(
        pick=picks,
        verb=st.sampled_from(["approve", "approve", "deny"]),
        by=st.sampled_from([BOSS, BOSS, BOSS, replace(BOSS, name="agent")]),
        right=st.sampled_from([True, True, True, False]),
    )
    def decide(self, pick: int, verb: Any, by: Any, right: bool) -> None:
        pair, old, now = self.ids[pick % len(self.ids)], self.get(pick), self.now
        said = says(verb, old if right else replace(old, digest="of something else"), by)
        came = self.do(lambda one, at: one.decide(pair[at], said))
        if old.state != "pending" or old.expires_at <= now:
            assert isinstance(came, ApprovalRefused)
            assert came.code == "wrong_state"
            assert came.approval is not None
            assert came.approval.state not in ("pending",)
            if came.approval.state not in STEPS:
                self.ended.add(pair[1])
        elif by.name == old.call.caller or not right:
            assert isinstance(came, ApprovalRefused)
            assert came.code == ("own_call" if by.name == old.call.caller else "changed")
        else:
            assert isinstance(came, Approval)
            assert came.state == {"approve": "approved", "deny": "denied"}[verb]

    @precondition(lambda self: self.ids)
    @rule(pick=picks, other=st.sampled_from([None, None, None, None, *FIELDS]), twice=st.booleans())
    def claim(self, pick: int, other: str | None, twice: bool) -> None:
        pair, old, now = self.ids[pick % len(self.ids)], self.get(pick), self.now
        call = old.call if other is None else other_calls(old.call)[other]
        self.calls += 1
        for _ in range(1 + twice):
            usable = old.state == "approved" and now < old.expires_at and not self.claims[pair[1]]

            def claimed(one: Approvals, at: int, id: str = f"c{self.calls}") -> Any:
                leaving = Claiming(id, pair[at], call)
                return one.claim(Approved(call, pair[at]), call, leaving)

            came = self.do(claimed)
            if usable and other is None:
                assert came is True
                self.claims[pair[1]] += 1
                assert old.decided is not None
                assert old.decided.verb == "approve"
            else:
                assert isinstance(came, ApprovalRefused)
            assert self.get(pick).state != "approved"

    @precondition(lambda self: self.ids)
    @rule(pick=picks)
    def withdraw(self, pick: int) -> None:
        pair = self.ids[pick % len(self.ids)]
        self.do(lambda one, at: one.withdraw(pair[at], "no longer wanted"))

    @rule(seconds=st.sampled_from([1.0, 49.0, 50.0, 60.0, 100.0, 700.0, -1.0, -60.0, -700.0]))
    def jump(self, seconds: float) -> None:
        self.clock.jump(seconds)

    @rule()
    def sweep(self) -> None:
        now = self.now
        self.do(lambda one, _: one.sweep())
        for found in self.run(self.both[1].listing(EVERYTHING)):
            assert found.state not in STEPS or found.expires_at > now

    @rule()
    def restart(self) -> None:
        self.run(self.stack.aclose())
        self.run(self.open())

    # --- laws

    @invariant()
    def laws_hold(self) -> None:
        found = [self.found(which) for which in range(2)]
        for memory, sql in zip(*found, strict=True):
            assert plain(memory) == plain(sql)
        moves = self.moves(1)
        assert [plain(one) for one in self.moves(0)] == [plain(one) for one in moves]
        every_step_is_one_of_those_there_are_and_has_one_row(moves, found[1])
        self.nothing_is_claimed_twice_and_nothing_revives(found[1])
        self.every_claim_has_its_intent_and_no_intent_stands_alone(moves)
        self.contents_are_there_exactly_while_they_can_be_used(found)
        pending = Counter(one.call.token_id for one in found[1] if one.state == "pending")
        assert all(count <= MOST for token, count in pending.items() if token is not None)

    def found(self, which: int) -> list[Approval]:
        """Return the approvals that one store has, in the order in which they came."""
        listed = self.run(self.both[which].listing(EVERYTHING))
        by_id = {one.id: one for one in listed}
        assert set(by_id) == {pair[which] for pair in self.ids}
        return [by_id[pair[which]] for pair in self.ids]

    def nothing_is_claimed_twice_and_nothing_revives(self, found: list[Approval]) -> None:
        assert all(count == 1 for count in self.claims.values())
        for one in found:
            if one.state in STEPS:
                assert one.id not in self.ended
                assert not self.claims[one.id]
            else:
                self.ended.add(one.id)

    def every_claim_has_its_intent_and_no_intent_stands_alone(
        self, moves: list[ApprovalMoved]
    ) -> None:
        bodies = self.bodies("call_intent")
        intents = [msgspec.json.decode(body, type=CallIntent).approval_id for body in bodies]
        assert intents == [move.approval_id for move in moves if move.state == "claimed"]

    def contents_are_there_exactly_while_they_can_be_used(
        self, found: list[list[Approval]]
    ) -> None:
        for which, approvals in enumerate(found):
            for one, asked in zip(approvals, self.requests, strict=True):
                whole = Shown(asked.payload, msgspec.json.encode(asked.definition))
                shown = self.run(self.both[which].shown(one.id))
                assert shown == (whole if one.state in STEPS else None)


def every_step_is_one_of_those_there_are_and_has_one_row(
    moves: list[ApprovalMoved], found: list[Approval]
) -> None:
    histories: dict[str, list[ApprovalState]] = {}
    for move in moves:
        histories.setdefault(move.approval_id, []).append(move.state)
    assert {id: history[-1] for id, history in histories.items()} == {
        one.id: one.state for one in found
    }
    for history in histories.values():
        assert history[0] == "pending"
        for before, after in pairwise(history):
            assert after in STEPS.get(before, ())


def plain(value: object) -> object:
    """Return what two stores must agree on: everything but the ids that they gave."""
    if isinstance(value, ApprovalRefused):
        return value.code, plain(value.approval)
    if isinstance(value, BasculeError):
        return type(value)
    if isinstance(value, Approval):
        return replace(value, id="")
    if isinstance(value, ApprovalMoved | Waiting | Approved | Denied):
        return replace(value, approval_id=value.approval_id and "")
    return value


class FileMachine(ApprovalMachine):
    """In a file, which may be copied and put back."""

    def __init__(self) -> None:
        self.copies: list[Copied] = []
        self.copied = self.restored = 0
        super().__init__()

    async def opened(self) -> Approvals:
        self.stack = AsyncExitStack()
        return await self.stack.enter_async_context(kept(self.data, SETTINGS, clock=self.clock))

    def bodies(self, event: str) -> list[bytes]:
        with closing(sqlite3.connect(self.data / "ledger.db")) as connection:
            query = "SELECT body FROM events WHERE event = ? ORDER BY number"
            return [body for (body,) in connection.execute(query, (event,))]

    def teardown(self) -> None:
        self.run(self.stack.aclose())
        assert verify(self.data / "ledger.db").problems == ()
        super().teardown()

    @rule()
    def copy(self) -> None:
        """Copy the ledger, as a backup does."""
        self.copied += 1
        file = self.data.parent / f"copy-{self.copied}.db"
        with (
            closing(sqlite3.connect(self.data / "ledger.db")) as source,
            closing(sqlite3.connect(file)) as target,
        ):
            source.backup(target)
        rows, when = copy.deepcopy(self.memory.rows), (self.restored, len(self.moves(0)))
        self.copies.append(Copied(file, rows, len(self.ids), when))

    @precondition(lambda self: self.copies)
    @rule(pick=picks, in_place=st.booleans())
    def restore(self, pick: int, in_place: bool) -> None:
        """Put an older copy back, as another file or into the one that is there."""
        copied = self.copies.pop(pick % len(self.copies))
        self.run(self.stack.aclose())
        ledger = self.data / "ledger.db"
        same = in_place and copied.when == (self.restored, len(self.moves(0)))
        for name in ("ledger.db-wal", "ledger.db-shm", "ledger.anchors"):
            (self.data / name).unlink(missing_ok=True)
        if in_place:
            shutil.copyfile(copied.file, ledger)
        else:
            copied.file.replace(ledger)
        self.memory.rows = copied.rows
        del self.ids[copied.ids :], self.requests[copied.ids :]
        self.copies = [one for one in self.copies if one.ids <= copied.ids]
        if not same:
            self.restored += 1
            self.run(self.memory.step(lambda rows: steps.void_all(rows, RESTORED)))
        self.run(self.open())


class SharedMachine(ApprovalMachine):
    """In a database that two replicas share, which take turns."""

    async def opened(self) -> Approvals:
        if not hasattr(self, "dsn"):
            self.databases = AsyncExitStack()
            self.dsn = await self.databases.enter_async_context(database())
        self.stack, self.replicas = AsyncExitStack(), list[Approvals]()
        for name in ("one", "other"):
            folder = self.data / name
            folder.mkdir(exist_ok=True)
            shared = kept(folder, SETTINGS, clock=self.clock, dsn=self.dsn)
            self.replicas.append(await self.stack.enter_async_context(shared))
        return self.replicas[0]

    @rule()
    def hop(self) -> None:
        """Go on at the other replica."""
        self.replicas.reverse()
        self.both = self.both[0], self.replicas[0]

    def bodies(self, event: str) -> list[bytes]:
        return self.run(self.read(event))

    async def read(self, event: str) -> list[bytes]:
        postgres = await Postgres(self.dsn).open()
        try:
            query = "SELECT body FROM ledger_events WHERE event = $1 ORDER BY number"
            return [row[0] for row in await postgres.statement(query, event)]
        finally:
            await postgres.close()

    def teardown(self) -> None:
        self.run(self.stack.aclose())
        self.run(self.databases.aclose())
        super().teardown()


FileMachine.TestCase.settings = settings(
    max_examples=scaled(200), stateful_step_count=25, deadline=None
)
SharedMachine.TestCase.settings = settings(
    max_examples=scaled(50), stateful_step_count=25, deadline=None
)
TestApprovals = pytest.mark.requirement("approval:steps")(FileMachine.TestCase)
TestSharedApprovals = pytest.mark.requirement("approval:steps")(SharedMachine.TestCase)
