"""Turns to start: how many at once, in which order, and how a turn ends."""

from __future__ import annotations

import asyncio

import pytest

from bascule.node.pool.turns import Turn, Turns, cores, shared_turns
from tests.waits import SOON_SECONDS


def asked(turns: Turns, asker: str, count: int) -> list[Turn]:
    return [turns.ask(asker) for _ in range(count)]


def started(*turns: Turn) -> list[bool]:
    return [not turn.waiting for turn in turns]


@pytest.mark.requirement("pool:turns")
async def test_no_more_start_at_once_than_the_limit():
    turns = Turns(2)
    first, second, third = asked(turns, "a", 3)
    assert started(first, second, third) == [True, True, False]
    first.give_back()
    first.give_back()
    assert started(third, *asked(turns, "a", 1)) == [True, False]


@pytest.mark.requirement("pool:turns")
async def test_twice_as_many_start_at_once_as_there_are_cores():
    turns = asked(Turns(), "a", 2 * cores() + 1)
    assert started(*turns) == [True] * (2 * cores()) + [False]


@pytest.mark.requirement("pool:turns:fair")
async def test_a_session_that_wants_one_does_not_wait_for_another_that_wants_many():
    turns = Turns(1)
    (running, *many) = asked(turns, "greedy", 20)
    (one,) = asked(turns, "modest", 1)
    running.give_back()
    many[0].give_back()
    assert not one.waiting
    assert started(*many[1:]) == [False] * 18


@pytest.mark.requirement("pool:turns:fair")
async def test_sessions_start_by_turns():
    turns = Turns(1)
    held = turns.ask("other")
    line = [(asker, turn) for asker in ("a", "b", "c") for turn in asked(turns, asker, 2)]
    order: list[str] = []
    for _ in range(6):
        held.give_back()
        asker, held = next((asker, turn) for asker, turn in line if not turn.waiting)
        line.remove((asker, held))
        order.append(asker)
    assert order == ["a", "b", "c", "a", "b", "c"]


@pytest.mark.requirement("pool:turns:fair")
async def test_a_start_that_another_session_waits_for_too_has_that_ones_place_as_well():
    turns = Turns(1)
    (running, *many) = asked(turns, "first", 10)
    last = many[-1]
    last.also_for("second")
    last.also_for("second")
    running.give_back()
    many[0].give_back()
    assert not last.waiting
    last.give_back()
    assert started(*many[1:-1]) == [True] + [False] * 6


async def test_whoever_leaves_the_line_holds_nobody_up():
    turns = Turns(1)
    running, leaving, waiting = asked(turns, "a", 3)
    coming = asyncio.create_task(leaving.come())
    leaving.give_back()
    async with asyncio.timeout(SOON_SECONDS):
        await asyncio.wait({coming})
    running.give_back()
    assert not waiting.waiting


async def test_all_bridges_of_one_event_loop_take_turns_together():
    assert shared_turns() is shared_turns()
