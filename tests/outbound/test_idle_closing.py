"""Servers end kept connections when they like: nothing runs twice, nothing is lost in silence."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from tests.outbound.exchange import BOTH_LOOPS, Outcome, client, outcome, request
from tests.outbound.racing_server import Ending, RacingServer, racing
from tests.outbound.scripted_server import turns
from tests.scale import scaled

pytestmark = BOTH_LOOPS
NOTHING_SENT = "ConnectionGone"
UNKNOWN = frozenset({"Unanswered", "BrokenAnswer"})
CALLERS = 8


async def ask(server: RacingServer, method: str, total: int) -> dict[int, Outcome]:
    """Send numbered requests, several at once, and return what came of each."""
    numbers, got = count(), dict[int, Outcome]()

    async def caller(http) -> None:
        while (number := next(numbers)) < total:
            address = f"http://127.0.0.1:{server.port}/{number}"
            got[number] = await outcome(http, request(address, method=method))
            await turns(number % 3)

    async with client() as http, asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(caller(http))
    return got


@pytest.mark.parametrize("method", ["POST", "GET"])
@pytest.mark.parametrize("each", [1, 2, 7])
@pytest.mark.parametrize("ending", ["told", "untold", "unanswered", "idle", "with the next"])
async def test_no_request_runs_twice_and_none_is_lost_without_a_code(
    ending: Ending, each: int, method: str
):
    total = scaled(10_000)
    with racing(ending, each) as server:
        got = await ask(server, method, total)
    assert len(got) == total
    assert max(server.executed.values()) == 1
    for number, one in got.items():
        ran = server.executed[number]
        if one.status:
            assert (one, ran) == (Outcome(200, b"%d" % number), 1)
        elif one.failure == NOTHING_SENT:
            assert ran == 0
        else:
            assert one.failure in UNKNOWN
    if ending == "told":
        assert all(one.status for one in got.values()), "the server had said so"
    if ending == "unanswered":
        lost = sum(one.failure == "Unanswered" for one in got.values())
        assert lost >= total // (each + CALLERS)


async def test_connections_are_kept_where_the_server_keeps_them():
    with racing("told", each=10**9) as server:
        got = await ask(server, "POST", scaled(10_000))
        assert all(one.status for one in got.values())
        assert server.connections <= CALLERS
