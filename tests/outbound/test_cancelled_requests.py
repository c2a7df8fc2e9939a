"""Requests that are given up, at any moment: nothing stays open, and no answer reaches another."""

from __future__ import annotations

import asyncio
import random

import pytest

from bascule.outbound.http import HttpClient
from tests.outbound.exchange import BOTH_LOOPS, Outcome, client, descriptors, outcome, request
from tests.outbound.scripted_server import Line, answering_once, cut, scripted, turns
from tests.outbound.wire_answers import chunks, measured
from tests.scale import scaled
from tests.waits import DEADLINE_SECONDS, until

pytestmark = BOTH_LOOPS
MOMENTS = 40


async def echo(line: Line) -> None:
    """Answer each request with its own body, now whole and now in pieces."""
    count = 0
    while True:
        body = (await line.request()).partition(b"\r\n\r\n")[2]
        count += 1
        if count % 2:
            await line.say(measured(body=body))
        else:
            head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            await line.say(head, *cut(chunks(body), range(0, 40, 3)))


async def number(http: HttpClient, port: int, value: int) -> bytes:
    got = await outcome(http, request(f"http://127.0.0.1:{port}/", body=b"%012d" % value))
    assert got.status == 200, got
    return got.body


async def given_up(task: asyncio.Task[bytes]) -> None:
    task.cancel()
    await asyncio.wait([task], timeout=DEADLINE_SECONDS)


@pytest.mark.parametrize("kept", [False, True], ids=["a new connection", "a kept one"])
async def test_a_request_that_is_given_up_at_any_moment_leaves_nothing_behind(kept: bool):
    before = descriptors()
    async with scripted(echo) as peer:
        for moment in range(MOMENTS):
            async with client() as http:
                if kept:
                    assert await number(http, peer.port, 0) == b"%012d" % 0
                task = asyncio.create_task(number(http, peer.port, 1))
                await turns(moment)
                await given_up(task)
                for value in (2, 3):
                    assert await number(http, peer.port, value) == b"%012d" % value
            await until(lambda: not http.is_open)
    await until(lambda: descriptors() <= before)


async def test_however_many_are_given_up_no_answer_reaches_another():
    before, chance = descriptors(), random.Random(14)
    got: list[tuple[int, bytes]] = []

    async def one(http: HttpClient, port: int, value: int) -> None:
        task = asyncio.create_task(number(http, port, value))
        if chance.random() < 0.5:
            await turns(chance.randrange(40))
            await given_up(task)
        else:
            got.append((value, await task))

    async with scripted(echo) as peer, client(connections=8) as http:
        for start in range(0, scaled(10_000), 20):
            async with asyncio.timeout(DEADLINE_SECONDS), asyncio.TaskGroup() as group:
                for value in range(start, start + 20):
                    group.create_task(one(http, peer.port, value))
        assert all(body == b"%012d" % value for value, body in got)
        assert len(got) > scaled(10_000) // 3
    await until(lambda: descriptors() <= before)


async def test_a_body_that_is_given_up_at_any_moment_ends_its_connection():
    pieces = [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", *[b"x"] * 99]
    before = descriptors()
    async with scripted(answering_once(*pieces)) as peer, client() as http:
        for moment in range(1, 100, 7):
            answer = await http.send(request(f"http://127.0.0.1:{peer.port}/"))
            task = asyncio.create_task(answer.read(1000))
            await turns(moment)
            await given_up(task)
            assert not answer.connected
        await until(lambda: not http.is_open)
        await peer.closed()
    await until(lambda: descriptors() <= before)


@pytest.mark.parametrize("moment", [1, 2, 3, 5, 8, 20])
async def test_a_client_that_is_closed_ends_what_is_under_way_with_a_code(moment: int):
    before = descriptors()
    async with scripted(answering_once()) as peer, client(connections=4) as http:
        asked = [request(f"http://127.0.0.1:{peer.port}/") for _ in range(10)]
        tasks = [asyncio.create_task(outcome(http, one)) for one in asked]
        await turns(moment)
        await http.close()
        async with asyncio.timeout(DEADLINE_SECONDS):
            got = [await task for task in tasks]
        assert {one.failure for one in got} <= {"NotDelivered", "Unanswered"}
        assert sum(one.failure == "Unanswered" for one in got) >= len(peer.requests)
        await until(lambda: not http.is_open)
        await peer.closed()
    await until(lambda: descriptors() <= before)


async def test_a_limit_of_connections_holds_and_everyone_gets_a_turn():
    async with scripted(echo) as peer, client(connections=3) as http:
        async with asyncio.timeout(DEADLINE_SECONDS):
            got = await asyncio.gather(*[number(http, peer.port, n) for n in range(50)])
        assert got == [b"%012d" % n for n in range(50)]
        assert len(peer.lines) <= 3


async def test_whoever_waits_for_a_connection_may_give_up_and_takes_nobodys_turn():
    async with scripted(echo) as peer, client(connections=1) as http:
        tasks = [asyncio.create_task(number(http, peer.port, n)) for n in range(30)]
        for task in tasks[::3]:
            await turns(1)
            await given_up(task)
        async with asyncio.timeout(DEADLINE_SECONDS):
            for value, task in enumerate(tasks):
                if not task.cancelled():
                    assert await task == b"%012d" % value
        assert await number(http, peer.port, 99) == b"%012d" % 99


async def test_a_connection_to_one_server_makes_room_for_another():
    async with scripted(echo) as one, scripted(echo) as other, client(connections=1) as http:
        for value in range(6):
            port = (one, other)[value % 2].port
            assert await number(http, port, value) == b"%012d" % value


async def test_a_deadline_holds_while_a_connection_is_waited_for():
    async with scripted(answering_once()) as peer, client(connections=1) as http:
        address = f"http://127.0.0.1:{peer.port}/"
        first = asyncio.create_task(outcome(http, request(address)))
        await until(lambda: peer.requests)
        late = await outcome(http, request(address, seconds=0.05))
        assert late == Outcome(failure="DeadlineExceeded")
        first.cancel()
        await asyncio.wait([first])
