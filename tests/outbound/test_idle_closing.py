"""Servers end kept connections when they like: nothing runs twice, nothing is lost in silence."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from bascule.outbound.http import HttpClient
from tests.outbound.exchange import ASYNCIO, BOTH_LOOPS, UVLOOP, Outcome, client, outcome, request
from tests.outbound.racing_server import Ending, RacingServer, racing
from tests.outbound.scripted_server import turns
from tests.scale import SOAK, scaled

ENDINGS: tuple[Ending, ...] = ("told", "untold", "unanswered", "idle", "with the next")
#: Event loop, and how many requests a connection serves; the second loop gets a sample.
LOOPS = [
    *[pytest.param(UVLOOP, each, id=f"uvloop-{each}") for each in (1, 2, 7)],
    *[pytest.param(ASYNCIO, each, id=f"asyncio-{each}") for each in ((1, 2, 7) if SOAK else (2,))],
]
NOTHING_SENT = "ConnectionGone"
UNKNOWN = frozenset({"Unanswered", "BrokenAnswer"})
CALLERS = 8


async def ask(server: RacingServer, total: int) -> dict[int, Outcome]:
    """Send numbered requests of both kinds, several at once, and return what came of each."""
    numbers, got = count(), dict[int, Outcome]()

    async def caller(http: HttpClient) -> None:
        while (number := next(numbers)) < total:
            address = f"http://127.0.0.1:{server.port}/{number}"
            method = "GET" if number // CALLERS % 2 else "POST"
            got[number] = await outcome(http, request(address, method=method))
            await turns(number % 3)

    async with client() as http, asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(caller(http))
    return got


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(("anyio_backend", "each"), LOOPS)
async def test_no_request_runs_twice_and_none_is_lost_without_a_code(ending: Ending, each: int):
    total = scaled(10_000)
    with racing(ending, each) as server:
        got = await ask(server, total)
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


@BOTH_LOOPS
async def test_connections_are_kept_where_the_server_keeps_them():
    with racing("told", each=10**9) as server:
        got = await ask(server, scaled(10_000))
        assert all(one.status for one in got.values())
        assert server.connections <= CALLERS
