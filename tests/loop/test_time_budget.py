"""The seconds of a conversation: they stand still while it only waits for somebody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from bascule.loop.time_budget import TimeBudget
from bascule.testing.clock import FakeClock

SECONDS, MOST = 100.0, 60.0


@asynccontextmanager
async def counting() -> AsyncGenerator[tuple[TimeBudget, FakeClock], None]:
    clock = FakeClock()
    budget = TimeBudget(SECONDS, MOST, clock)
    async with budget.timer:
        yield budget, clock


def end_of(budget: TimeBudget) -> float:
    """Return when the time is up, in seconds from now; the loop's own clock hardly moves."""
    when = budget.timer.when()
    assert when is not None
    return round(when - asyncio.get_running_loop().time())


async def test_time_passes_while_a_call_runs():
    async with counting() as (budget, clock):
        budget.begin_call()
        await clock.advance(30)
        assert (budget.spent, budget.left, end_of(budget)) == (30, 70, 100)


@pytest.mark.requirement("chat:approval:time")
async def test_it_stands_still_while_the_only_call_waits():
    async with counting() as (budget, clock):
        await clock.advance(10)
        budget.begin_call()
        budget.begin_wait()
        assert end_of(budget) == 160  # the longest wait at the most
        await clock.advance(40)
        budget.end_call(waited=True)
        assert (budget.spent, budget.left, end_of(budget)) == (10, 90, 140)


@pytest.mark.requirement("chat:approval:time")
async def test_it_goes_on_while_another_call_of_the_turn_runs():
    async with counting() as (budget, clock):
        budget.begin_call()
        budget.begin_call()
        budget.begin_wait()
        await clock.advance(20)
        assert end_of(budget) == 100
        budget.end_call(waited=False)  # from here on, everything waits
        await clock.advance(30)
        budget.begin_call()  # the turn's next one
        await clock.advance(5)
        budget.end_call(waited=False)
        await clock.advance(10)
        budget.end_call(waited=True)
        assert (budget.spent, end_of(budget)) == (25, 140)


async def test_a_call_that_was_approved_and_then_takes_long_is_not_free():
    async with counting() as (budget, clock):
        budget.begin_call()
        budget.begin_wait()
        await clock.advance(90)
        budget.end_call(waited=True)
        assert (budget.spent, budget.left, end_of(budget)) == (30, 70, 160)


async def test_a_time_that_is_up_is_not_given_back():
    clock = FakeClock()
    budget = TimeBudget(0.0, MOST, clock)
    try:
        async with budget.timer:
            budget.begin_call()
            try:
                await asyncio.Event().wait()
            finally:
                budget.begin_wait()
                budget.end_call(waited=True)
    except TimeoutError:
        pass
    assert budget.timer.expired()
