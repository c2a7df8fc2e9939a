"""Many who want to begin at the same moment: a few pass in each turn of the loop, in order."""

from __future__ import annotations

import asyncio

from bascule.asgi.turnstile import Turnstile
from bascule.clock import SYSTEM_CLOCK


class Crowd:
    """Tasks before a turnstile."""

    def __init__(self, size: int, turnstile: Turnstile) -> None:
        self.passed: list[int] = []
        self.turnstile = turnstile
        self.tasks = [asyncio.create_task(self._enter(number)) for number in range(size)]

    async def _enter(self, number: int) -> None:
        await self.turnstile.enter()
        self.passed.append(number)

    async def turns(self) -> list[int]:
        """Return how many passed in each turn of the loop until all had."""
        each: list[int] = []
        async with asyncio.timeout(20):
            while not all(task.done() for task in self.tasks):
                before = len(self.passed)
                await SYSTEM_CLOCK.sleep(0)
                each.append(len(self.passed) - before)
        return each


async def test_no_more_than_a_few_pass_in_one_turn_and_all_in_their_order():
    crowd = Crowd(20, Turnstile(3))
    assert max(await crowd.turns()) == 3
    assert crowd.passed == list(range(20))


async def test_who_comes_alone_passes_at_once_every_time():
    turnstile = Turnstile(1)
    for _ in range(3):
        crowd = Crowd(1, turnstile)
        assert await crowd.turns() == [1]
        await SYSTEM_CLOCK.sleep(0)


async def test_who_stops_waiting_takes_nobodys_place():
    crowd = Crowd(9, Turnstile(2))
    await SYSTEM_CLOCK.sleep(0)
    for task in crowd.tasks[2:8]:
        task.cancel()
    await crowd.turns()
    assert crowd.passed == [0, 1, 8]


async def test_a_crowd_after_a_crowd_waits_for_its_turns_too():
    turnstile = Turnstile(2)
    await Crowd(5, turnstile).turns()
    later = Crowd(6, turnstile)
    assert max(await later.turns()) == 2
    assert later.passed == list(range(6))
