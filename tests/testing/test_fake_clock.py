"""The laws of the clock that stands still."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.clock import Clock
from bascule.testing import FakeClock


async def test_nothing_moves_by_itself():
    clock: Clock = FakeClock(start=100.0)
    await FakeClock().settle()
    assert (clock.now(), clock.monotonic()) == (100.0, 0.0)


async def test_both_times_move_together_and_only_the_date_jumps():
    clock = FakeClock(start=100.0)
    await clock.advance(5)
    clock.jump(-50)
    assert (clock.now(), clock.monotonic()) == (55.0, 5.0)


async def test_a_sleeper_wakes_at_its_moment_and_not_before():
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(10))
    await clock.advance(9.5)
    assert not task.done()
    assert clock.sleepers == 1
    await clock.advance(0.5)
    assert task.done()
    assert clock.sleepers == 0


async def test_a_sleeper_sees_the_time_it_asked_for_and_may_sleep_again_on_the_way():
    clock = FakeClock()
    seen: list[float] = []

    async def every_second() -> None:
        while True:
            await clock.sleep(1)
            seen.append(clock.monotonic())

    task = asyncio.create_task(every_second())
    await clock.advance(3.5)
    assert seen == [1.0, 2.0, 3.0]
    assert clock.monotonic() == 3.5
    task.cancel()


async def test_a_task_just_made_is_asleep_before_the_time_moves():
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(1))
    await clock.advance(1)
    assert task.done()


async def test_a_cancelled_sleeper_is_forgotten():
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(1))
    await clock.settle()
    task.cancel()
    await clock.settle()
    assert clock.sleepers == 0
    await clock.advance(2)
    assert task.cancelled()


async def test_a_sleep_of_nothing_only_gives_others_a_turn():
    clock = FakeClock()
    other = asyncio.create_task(asyncio.Event().wait())
    ran: list[str] = []
    asyncio.get_running_loop().call_soon(ran.append, "other")
    await clock.sleep(0)
    assert ran == ["other"]
    other.cancel()


async def test_time_does_not_go_back():
    with pytest.raises(ValueError, match="jump"):
        await FakeClock().advance(-1)


@given(st.lists(st.integers(1, 50), max_size=12), st.lists(st.integers(0, 20), max_size=12))
def test_sleepers_wake_in_order_and_exactly_those_that_are_due(delays, steps):
    woken: list[tuple[float, int]] = []

    async def scenario() -> float:
        clock = FakeClock()

        async def sleeper(number: int, delay: int) -> None:
            await clock.sleep(delay)
            assert clock.monotonic() == delay
            woken.append((delay, number))

        tasks = [asyncio.create_task(sleeper(n, delay)) for n, delay in enumerate(delays)]
        for step in steps:
            await clock.advance(step)
        for task in tasks:
            task.cancel()
        return clock.monotonic()

    elapsed = asyncio.run(scenario())
    due = [(delay, number) for number, delay in enumerate(delays) if delay <= elapsed]
    assert woken == sorted(due)
