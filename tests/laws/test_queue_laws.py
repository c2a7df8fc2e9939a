"""The laws of waiting: turns by token, then by session, and no place is ever lost."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from bascule.node.bridge.limiter import Limiter

#: Whose call it is, and of which session.
Asker = tuple[str, str]
ASKERS = st.tuples(st.sampled_from("abcd"), st.sampled_from("12345"))


def fair(served: Sequence[Asker], whose: Callable[[Asker], str]) -> None:
    """Check that between two services of one nobody else, waiting or not, is served twice."""
    between: dict[str, Counter[str]] = defaultdict(Counter)
    seen: set[str] = set()
    for asker in map(whose, served):
        assert not seen or between[asker].total() == 0 or max(between[asker].values()) <= 1
        seen.add(asker)
        between[asker] = Counter()
        for other in seen - {asker}:
            between[other][asker] += 1


async def settle() -> None:
    """Let every task run as far as it can."""
    for _ in range(5):
        turn = asyncio.Event()
        asyncio.get_running_loop().call_soon(turn.set)
        await turn.wait()


async def services(limiter: Limiter, askers: Sequence[Asker]) -> list[Asker]:
    """Let all of them wait behind one who is inside; return in which order they were served."""
    served: list[Asker] = []

    async def visit(asker: Asker) -> None:
        assert await limiter.wait(asyncio.get_running_loop().time() + 60, *asker)
        served.append(asker)
        await settle()
        limiter.leave()

    assert limiter.enter()
    visits = [asyncio.create_task(visit(asker)) for asker in askers]
    await settle()
    limiter.leave()
    async with asyncio.timeout(60):
        await asyncio.gather(*visits)
    return served


@pytest.mark.requirement("budgets:turns")
@given(askers=st.lists(ASKERS, max_size=40))
def test_tokens_take_turns_and_so_do_the_sessions_of_each(askers: list[Asker]):
    limiter = Limiter(1)
    served = asyncio.run(services(limiter, askers))
    assert Counter(served) == Counter(askers)
    assert (limiter.active, len(limiter.lines)) == (0, 0)
    fair(served, lambda asker: asker[0])
    for token in {token for token, _ in askers}:
        fair([asker for asker in served if asker[0] == token], lambda asker: asker[1])


class Waiting(RuleBasedStateMachine):
    """Callers come, leave, are served, cancelled and late, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.limiter = Limiter(2)
        self.inside = 0
        self.waiting: dict[asyncio.Task[bool], Asker] = {}
        self.ended: list[asyncio.Task[bool]] = []
        self.cancelled: set[asyncio.Task[bool]] = set()
        #: Of everybody who waits without a break, how often others were served meanwhile.
        self.passed: dict[str, Counter[str]] = {}

    def settle(self) -> None:
        self.loop.run_until_complete(settle())
        while self.ended:  # several at once, if there is more room: in the order of their turns
            task = self.ended.pop(0)
            token, _ = self.waiting.pop(task)
            if task in self.cancelled:
                assert task.cancelled()
            elif task.result():
                self.inside += 1
                self.note(token)
        still = {token for token, _ in self.waiting.values()}
        self.passed = {token: self.passed.get(token, Counter()) for token in still}

    def note(self, token: str) -> None:
        for other, passed in self.passed.items():
            if other != token:
                passed[token] += 1
                assert passed[token] <= 1, f"{token} was served twice while {other} waited"
        self.passed.pop(token, None)
        if any(whose == token for whose, _ in self.waiting.values()):
            self.passed[token] = Counter()

    @rule(asker=ASKERS)
    def comes(self, asker: Asker) -> None:
        if self.limiter.enter():
            assert not self.waiting
            self.inside += 1
            return
        until = self.loop.time() + 60
        task = self.loop.create_task(self.limiter.wait(until, *asker))
        task.add_done_callback(self.ended.append)
        self.waiting[task] = asker
        self.settle()

    @rule(asker=ASKERS)
    def comes_too_late(self, asker: Asker) -> None:
        if self.limiter.enter():
            self.inside += 1
            return
        late = self.loop.create_task(self.limiter.wait(self.loop.time() - 1, *asker))
        self.settle()
        assert late.done()
        assert not late.result()

    @rule()
    def leaves(self) -> None:
        if self.inside:
            self.inside -= 1
            self.limiter.leave()
            self.settle()

    @rule(data=st.data())
    def is_cancelled(self, data: st.DataObject) -> None:
        if self.waiting:
            task = data.draw(st.sampled_from(list(self.waiting)))
            self.cancelled.add(task)
            task.cancel()
            self.settle()

    @rule(data=st.data())
    def is_cancelled_as_a_place_comes_free(self, data: st.DataObject) -> None:
        if self.waiting and self.inside:
            task = data.draw(st.sampled_from(list(self.waiting)))
            self.inside -= 1
            self.limiter.leave()
            self.cancelled.add(task)
            task.cancel()
            self.passed = {}  # whom the place was meant for had its turn
            self.settle()

    @rule(limit=st.integers(1, 4))
    def is_resized(self, limit: int) -> None:
        self.limiter.resize(limit)
        self.settle()

    @invariant()
    def no_place_is_lost_and_none_stays_free_while_somebody_waits(self) -> None:
        assert self.limiter.active == self.inside
        if self.waiting:
            assert self.inside >= self.limiter.limit
        counted = sum(len(line) for own in self.limiter.lines.values() for line in own.values())
        assert counted == len(self.waiting)

    def teardown(self) -> None:
        while self.waiting:
            assert self.inside, "somebody waits for nobody"
            self.leaves()
        assert not self.limiter.lines
        self.loop.close()


@pytest.mark.timeout(900)
@pytest.mark.requirement("budgets:turns")
def test_whoever_comes_and_goes_no_place_is_lost_and_turns_are_kept():
    run_state_machine_as_test(Waiting)


@pytest.mark.requirement("budgets:turns")
def test_a_thousand_sessions_of_one_token_delay_another_by_one_service():
    """Services are counted, not timed; ``z`` may wait for at most two."""
    flood = [("greedy", str(number)) for number in range(1000)]
    served = asyncio.run(services(Limiter(1), [*flood, ("modest", "z")]))
    assert served.index(("modest", "z")) <= 2
    assert len(served) == 1001


async def test_a_call_that_timed_out_costs_its_token_no_turn():
    limiter = Limiter(1)
    assert limiter.enter()
    until = asyncio.get_running_loop().time() + 60
    late, first, second = (
        asyncio.create_task(limiter.wait(until, whose, "s")) for whose in ("a", "a", "b")
    )
    await settle()
    limiter.lines["a"]["s"][0].set_exception(TimeoutError())
    limiter.leave()  # before whoever is late can withdraw
    await settle()
    assert (late.done(), first.done(), second.done()) == (True, True, False)
    assert (late.result(), first.result()) == (False, True)
    limiter.leave()
    assert await second
    assert (limiter.active, len(limiter.lines)) == (1, 0)
