"""The laws of a session's budget, over any order of events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.model.session import SessionLimits
from bascule.policy.budget import Budget, Exceeded

EVENTS = st.lists(
    st.sampled_from(["reserve", "release", "iterate"]) | st.integers(0, 50), max_size=40
)
LIMITS = st.builds(
    SessionLimits,
    max_iterations=st.none() | st.integers(1, 5),
    max_total_tool_calls=st.none() | st.integers(0, 6),
    max_tool_output_bytes=st.none() | st.integers(1, 100),
)


def step(budget: Budget, event: str | int) -> Budget | Exceeded:
    if event == "reserve":
        return budget.reserve()
    if event == "iterate":
        return budget.iterate()
    if budget.reserved == 0:
        return budget
    return budget.release() if isinstance(event, str) else budget.commit(event)


@pytest.mark.requirement("budgets:session:total-calls", "budgets:reserve-commit")
@given(LIMITS, EVENTS)
def test_calls_and_iterations_never_exceed_their_limits(
    limits: SessionLimits, events: list[str | int]
):
    budget = Budget(limits)
    for event in events:
        after = step(budget, event)
        if isinstance(after, Exceeded):
            continue
        budget = after
        assert budget.reserved >= 0
        assert within(budget.calls + budget.reserved, limits.max_total_tool_calls)
        assert within(budget.iterations, limits.max_iterations)


def within(used: int, limit: int | None) -> bool:
    return limit is None or used <= limit


@pytest.mark.requirement("budgets:release")
@given(LIMITS, EVENTS)
def test_reserving_and_releasing_leaves_a_budget_as_it_was(
    limits: SessionLimits, events: list[str | int]
):
    budget = Budget(limits)
    for event in events:
        after = step(budget, event)
        budget = budget if isinstance(after, Exceeded) else after
    held = budget.reserve()
    if isinstance(held, Budget):
        assert held.release() == budget


@pytest.mark.requirement("budgets:session:output-bytes")
@given(LIMITS, st.lists(st.integers(0, 50), max_size=20))
def test_no_call_starts_once_the_output_is_used_up(limits: SessionLimits, outputs: list[int]):
    budget, used = Budget(limits), 0
    for size in outputs:
        held = budget.reserve()
        over = not within(used + 1, limits.max_tool_output_bytes)
        full = not within(budget.calls + 1, limits.max_total_tool_calls)
        assert isinstance(held, Exceeded) == (over or full)
        if isinstance(held, Exceeded):
            return
        budget, used = held.commit(size), used + size
        assert budget.output_bytes == used
