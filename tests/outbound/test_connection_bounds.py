"""What connections hold: descriptors, memory, and no more of a body than was asked for."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable

import psutil
import pytest

from tests.outbound.exchange import BOTH_LOOPS, Outcome, client, descriptors, outcome, request
from tests.outbound.racing_server import racing
from tests.outbound.scripted_server import Line, scripted, turns
from tests.outbound.wire_answers import measured
from tests.scale import scaled
from tests.waits import until

pytestmark = BOTH_LOOPS
MIB = 2**20
KEPT = 1_000
MOST_EACH = 20 * 1024


async def test_many_requests_leave_one_connection_and_then_none():
    before = descriptors()
    with racing("told", each=10**9) as server:
        async with client() as http:
            for number in range(scaled(20_000)):
                asked = request(f"http://127.0.0.1:{server.port}/{number}")
                assert await outcome(http, asked) == Outcome(200, b"%d" % number)
            assert server.connections == 1
    await until(lambda: descriptors() <= before)


@pytest.mark.soak
async def test_a_thousand_kept_connections_hold_little_memory():
    own = psutil.Process()
    with racing("told", each=10**9) as server:
        async with client(connections=0) as http:

            async def crowd(size: int) -> None:
                gate = [
                    http.send(request(f"http://127.0.0.1:{server.port}/1")) for _ in range(size)
                ]
                for answer in await asyncio.gather(*gate):
                    await answer.read(10)

            await crowd(10)
            gc.collect()
            before = own.memory_info().rss
            await crowd(KEPT)
            assert server.connections >= KEPT
            gc.collect()
            # The server's ends are in this process too.
            assert own.memory_info().rss - before < 2 * MOST_EACH * KEPT


async def test_a_body_that_nobody_reads_is_not_gathered():
    """The server can send only what the sockets hold, however much it has."""
    sent = 0

    async def script(line: Line) -> None:
        nonlocal sent
        await line.request()
        await line.say(f"HTTP/1.1 200 OK\r\nContent-Length: {256 * MIB}\r\n\r\n".encode())
        for _ in range(4096):
            line.writer.write(bytes(65_536))
            await line.writer.drain()
            sent += 65_536

    async with scripted(script) as peer, client() as http:
        tracemalloc.start()
        try:
            answer = await http.send(request(f"http://127.0.0.1:{peer.port}/"))
            await until(lambda: stalled(lambda: sent))
            assert sent < 32 * MIB
            assert tracemalloc.get_traced_memory()[0] < 4 * MIB
            taken = 0
            async for piece in answer:
                taken += len(piece)
                if taken > 64 * MIB:
                    break
            assert tracemalloc.get_traced_memory()[1] < 8 * MIB
        finally:
            tracemalloc.stop()
        answer.close()


async def stalled(count: Callable[[], int]) -> bool:
    """Say whether nothing more happens, although everybody gets many turns."""
    before = count()
    await turns(500)
    return count() == before


async def test_a_slow_reader_gets_all_of_a_large_body():
    body = bytes(range(256)) * 4 * 4096

    async def script(line: Line) -> None:
        await line.request()
        await line.say(measured(body=body))
        await line.left()

    async with scripted(script) as peer, client() as http:
        answer = await http.send(request(f"http://127.0.0.1:{peer.port}/"))
        pieces: list[bytes] = []
        async for piece in answer:
            pieces.append(piece)
            await turns(3)
        assert b"".join(pieces) == body
        assert answer.ended


async def test_a_slow_server_gets_all_of_a_large_request():
    body = bytes(range(256)) * 4 * 4096
    seen = bytearray()

    async def script(line: Line) -> None:
        await line.reader.readuntil(b"\r\n\r\n")
        while len(seen) < len(body):
            seen.extend(await line.reader.read(10_000))
            await turns(1)
        await line.say(measured(body=b"thanks"))
        await line.left()

    async with scripted(script, limit=4096) as peer, client() as http:
        got = await outcome(http, request(f"http://127.0.0.1:{peer.port}/", body=body))
        assert got == Outcome(200, b"thanks")
        assert bytes(seen) == body
