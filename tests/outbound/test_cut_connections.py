"""A connection that ends, at any byte: the failure says what the server can have done."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from bascule.outbound.http import HttpClient, HttpRequest
from tests.outbound.exchange import BOTH_LOOPS, Outcome, client, failed, outcome, request
from tests.outbound.scripted_server import (
    Ending,
    Line,
    Script,
    answering_once,
    dropping,
    resetting,
    scripted,
    stalling,
    turns,
)
from tests.outbound.wire_answers import CONTINUE, TEXT, answer, chunked, measured

pytestmark = BOTH_LOOPS
METHOD = pytest.mark.parametrize("method", ["POST", "GET"])
ENDING = pytest.mark.parametrize("ending", [dropping, resetting], ids=["closed", "reset"])
WIRES = {
    "length": measured("Content-Type: application/json"),
    "chunks": chunked(TEXT[:20], TEXT[20:]),
    "after an interim answer": CONTINUE + measured(),
    "no content": answer(status="204 No Content"),
}


# While the answer comes


@ENDING
@pytest.mark.parametrize("name", WIRES)
async def test_an_answer_that_is_cut_at_any_byte_is_broken_and_asked_for_once(
    name: str, ending: Ending
):
    wire = WIRES[name]
    for place in range(len(wire)):
        async with scripted(ending(wire[:place])) as peer, client() as http:
            got = await outcome(http, request(f"http://127.0.0.1:{peer.port}/"))
            wanted = "BrokenAnswer" if place else "Unanswered"
            assert got == failed(wanted), wire[:place]
            assert len(peer.requests) == 1


@METHOD
@ENDING
async def test_an_answer_that_is_whole_when_its_connection_ends_is_read(
    method: str, ending: Ending
):
    for wire in (WIRES["length"], WIRES["chunks"]):
        async with scripted(ending(wire)) as peer, client() as http:
            asked = request(f"http://127.0.0.1:{peer.port}/", method=method)
            for count in (1, 2):
                assert await outcome(http, asked) == Outcome(200, TEXT)
                assert len(peer.lines) == len(peer.requests) == count
                await peer.closed()
                await turns()


async def test_a_body_until_the_end_of_the_connection_ends_with_it_and_not_with_a_reset():
    wire = answer("Content-Type: text/plain", body=TEXT)
    begin = wire.index(b"\r\n\r\n") + 4
    for place in range(begin, len(wire) + 1, 9):
        async with scripted(dropping(wire[:place])) as peer, client() as http:
            got = await outcome(http, request(f"http://127.0.0.1:{peer.port}/"))
            assert got == Outcome(200, wire[begin:place])
        async with scripted(resetting(wire[:place])) as peer, client() as http:
            got = await outcome(http, request(f"http://127.0.0.1:{peer.port}/"))
            assert got == failed("BrokenAnswer")


@pytest.mark.parametrize("name", WIRES)
async def test_an_answer_that_stops_at_any_byte_is_late_and_its_connection_ends(name: str):
    wire = WIRES[name]
    for place in range(0, len(wire), 9):
        async with scripted(stalling(wire[:place])) as peer, client() as http:
            address = f"http://127.0.0.1:{peer.port}/"
            late = request(address, seconds=0.02)
            assert await outcome(http, late) == failed("DeadlineExceeded")
            silent = request(address, idle_seconds=0.02)
            assert await outcome(http, silent) == failed("DeadlineExceeded")
            await peer.closed()


# While the request is sent


def reading(count: int, *, reset: bool) -> Script:
    """Read so much of a request, and end the connection."""

    async def script(line: Line) -> None:
        if count:
            await line.reader.readexactly(count)
        line.reset() if reset else line.drop()

    return script


@METHOD
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
async def test_a_request_that_is_cut_at_any_byte_is_sent_once_and_has_no_known_outcome(
    method: str, reset: bool
):
    for count in range(60):
        async with scripted(reading(count, reset=reset)) as peer, client() as http:
            asked = request(f"http://127.0.0.1:{peer.port}/", method=method, body=bytes(200))
            got = (await outcome(http, asked)).failure
            assert got == "Unanswered" or (count == 0 and got == "Unconnected: network")
            assert len(peer.lines) == 1


async def test_a_large_request_that_is_cut_has_no_known_outcome():
    for count in (1, 1000, 1_000_000):
        async with scripted(reading(count, reset=True), limit=4096) as peer, client() as http:
            asked = request(f"http://127.0.0.1:{peer.port}/", body=bytes(32 * 2**20))
            assert await outcome(http, asked) == failed("Unanswered")
            assert len(peer.lines) == 1


async def test_a_request_that_nobody_reads_is_late():
    async def script(line: Line) -> None:
        await line.over.wait()

    async with scripted(script, limit=4096) as peer, client() as http:
        asked = request(f"http://127.0.0.1:{peer.port}/", body=bytes(32 * 2**20), seconds=0.2)
        assert await outcome(http, asked) == failed("DeadlineExceeded")
        assert len(peer.lines) == 1


async def test_a_name_that_is_too_long_to_be_asked_for_is_not_found():
    async with client() as http:
        got = await outcome(http, request(f"http://{'a' * 64}.test/"))
        assert got == failed("Unconnected: name")
        assert not http.is_open


# A kept connection that the server has ended


@METHOD
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("rounds", [0, 1, 5], ids=["unnoticed", "just noticed", "noticed"])
async def test_a_kept_connection_that_has_ended_takes_no_request(
    method: str, reset: bool, rounds: int
):
    """The server's end is closed while the client's event loop stands still, or a moment before."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        async with client() as http:
            asked = request(f"http://127.0.0.1:{server.getsockname()[1]}/", method=method)
            peer, got = await answered(server, http, asked)
            assert got == Outcome(200, b"1")
            if reset:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
            await turns(rounds)
            fresh, got = await answered(server, http, asked)
            assert got in (Outcome(200, b"1"), failed("ConnectionGone"))
            fresh.close()


async def answered(
    server: socket.socket, http: HttpClient, asked: HttpRequest
) -> tuple[socket.socket, Outcome]:
    """Answer one request of a new connection from a thread, and return the server's end."""

    def serve() -> socket.socket:
        peer, _ = server.accept()
        peer.settimeout(20)
        data = b""
        while b"\r\n\r\n" not in data or (b"POST" in data and not data.endswith(b"{}")):
            data += peer.recv(4096)
        peer.sendall(measured(body=b"1"))
        return peer

    accepting = asyncio.get_running_loop().run_in_executor(None, serve)
    got = await outcome(http, asked)
    if got.failure:
        assert await outcome(http, asked) == Outcome(200, b"1")
    return await accepting, got


async def test_a_server_that_hangs_up_before_it_reads_the_second_request_leaves_it_unknown():
    async def script(line: Line) -> None:
        await line.request()
        await line.say(measured(body=b"one"))
        await line.reader.readexactly(1)
        line.drop()

    async with scripted(script) as peer, client() as http:
        asked = request(f"http://127.0.0.1:{peer.port}/")
        assert await outcome(http, asked) == Outcome(200, b"one")
        assert await outcome(http, asked) == failed("Unanswered")
        assert len(peer.lines) == 1


async def test_a_half_closed_connection_is_not_used_again():
    async def script(line: Line) -> None:
        await line.request()
        await line.say(measured(body=b"one"))
        line.writer.write_eof()
        assert not await line.left()

    async with scripted(script) as peer, client() as http:
        asked = request(f"http://127.0.0.1:{peer.port}/")
        for count in (1, 2):
            assert await outcome(http, asked) == Outcome(200, b"one")
            assert len(peer.lines) == count
            await peer.closed()


async def test_an_answer_that_is_let_go_before_its_end_ends_its_connection():
    async with scripted(answering_once(measured()[:-5])) as peer, client() as http:
        first = await http.send(request(f"http://127.0.0.1:{peer.port}/"))
        assert not first.ended
        first.close()
        await peer.closed()
        assert not first.connected
