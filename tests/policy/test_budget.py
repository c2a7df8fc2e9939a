"""A session's budget: reserve, then commit or release."""

from __future__ import annotations

import pytest

from bascule.model.session import UNLIMITED, SessionLimits
from bascule.policy.budget import Budget, Exceeded


def budget(**limits: int) -> Budget:
    return Budget(SessionLimits(**limits))


def held(of: Budget) -> Budget:
    after = of.reserve()
    assert isinstance(after, Budget)
    return after


@pytest.mark.requirement("budgets:reserve-commit")
def test_a_call_is_reserved_first_and_counted_when_it_happened():
    reserved = held(budget())
    assert (reserved.reserved, reserved.calls, reserved.output_bytes) == (1, 0, 0)
    done = reserved.commit(120)
    assert (done.reserved, done.calls, done.output_bytes) == (0, 1, 120)


@pytest.mark.requirement("budgets:release")
def test_a_reservation_that_is_released_burns_nothing():
    start = budget(max_total_tool_calls=1)
    for _ in range(3):
        start = held(start).release()
    assert start == budget(max_total_tool_calls=1)


@pytest.mark.requirement("budgets:session:total-calls", "budgets:reserve-commit")
def test_the_total_of_calls_is_limited_reservations_included():
    full = held(held(budget(max_total_tool_calls=2)))
    exceeded = full.reserve()
    assert exceeded == Exceeded("max_total_tool_calls", 2)
    assert str(exceeded) == "max_total_tool_calls of 2 is used up"
    assert isinstance(full.commit(0).reserve(), Exceeded)
    assert isinstance(full.release().reserve(), Budget)
    assert isinstance(budget(max_total_tool_calls=0).reserve(), Exceeded)


@pytest.mark.requirement("budgets:session:output-bytes")
def test_the_total_of_output_is_limited():
    one = held(budget(max_tool_output_bytes=100)).commit(99)
    two = held(one).commit(50)
    assert two.reserve() == Exceeded("max_tool_output_bytes", 100)
    assert isinstance(held(budget()).commit(10**9).reserve(), Budget)


def test_iterations_are_limited():
    state = budget(max_iterations=2)
    for _ in range(2):
        after = state.iterate()
        assert isinstance(after, Budget)
        state = after
    assert state.iterate() == Exceeded("max_iterations", 2)
    assert isinstance(state.reserve(), Budget)


def test_what_has_no_limit_goes_on():
    state = Budget(UNLIMITED, iterations=10**6, calls=10**6, output_bytes=10**9)
    assert isinstance(state.iterate(), Budget)
    assert isinstance(state.reserve(), Budget)


def test_output_may_be_counted_after_the_call():
    done = held(budget(max_tool_output_bytes=10)).commit().spend(10)
    assert (done.calls, done.output_bytes) == (1, 10)
    assert isinstance(done.reserve(), Exceeded)


def test_the_seeds_limits_are_the_defaults():
    limits = SessionLimits()
    assert (limits.max_iterations, limits.max_total_tool_calls) == (8, 32)


@pytest.mark.requirement("budgets:reserve-commit", "budgets:release")
def test_what_was_not_reserved_can_be_neither_used_nor_given_back():
    with pytest.raises(ValueError, match="nothing is reserved"):
        budget().commit(1)
    with pytest.raises(ValueError, match="nothing is reserved"):
        budget().release()


def test_a_budget_is_a_value():
    start = budget()
    held(start).commit(5)
    assert start == budget()
