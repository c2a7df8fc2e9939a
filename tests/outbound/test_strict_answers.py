"""Answers that another reader could understand otherwise are refused, and their connection ends.

Two readers of one connection that disagree about where an answer ends give one caller the answer
of another. ``REFUSED`` lists what is not read; ``ALLOWED`` what is unusual and harmless.
"""

from __future__ import annotations

import gzip
import os

import pytest

from bascule.errors import MalformedReply
from tests.outbound.exchange import BOTH_LOOPS, Outcome, client, failed, outcome, request
from tests.outbound.scripted_server import (
    Line,
    Script,
    answering,
    answering_once,
    cut,
    scripted,
    turns,
)
from tests.outbound.wire_answers import (
    CONTINUE,
    HINTS,
    answer,
    chunked,
    chunks,
    measured,
)

pytestmark = BOTH_LOOPS
IN_CHUNKS = "Transfer-Encoding: chunked"
OK = chunks(b"ok")


def headed(raw: bytes) -> bytes:
    """Return an answer that has one more header line, as it is, before its length."""
    return b"HTTP/1.1 200 OK\r\n" + raw + b"\r\nContent-Length: 2\r\n\r\nok"


def lengthy(value: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: " + value + b"\r\n\r\nok"


def in_chunks(raw: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + raw


def coded(*values: str) -> bytes:
    return answer(*[f"Transfer-Encoding: {value}" for value in values], body=OK)


REFUSED = {
    # The first line
    "HTTP/0.9": b"<html><body>hello</body></html>\r\n\r\n",
    "HTTP/0.9 by name": b"HTTP/0.9 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.2": b"HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/2.0 by name": b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/2 settings": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18),
    "small letters": b"http/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "another protocol": b"SSH-2.0-OpenSSH_9.2p1\r\n",
    "a request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "two digits": b"HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nok",
    "four digits": b"HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\nok",
    "letters for a status": b"HTTP/1.1 abc OK\r\nContent-Length: 2\r\n\r\nok",
    "a signed status": b"HTTP/1.1 +20 OK\r\nContent-Length: 2\r\n\r\nok",
    "two spaces": b"HTTP/1.1  200 OK\r\nContent-Length: 2\r\n\r\nok",
    "a space first": b" HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "status 000": b"HTTP/1.1 000 OK\r\nContent-Length: 2\r\n\r\nok",
    "status 099": b"HTTP/1.1 099 OK\r\nContent-Length: 2\r\n\r\nok",
    "a protocol nobody asked for": answer("Upgrade: x", "Connection: upgrade", status="101 X"),
    "a bare CR in the reason": b"HTTP/1.1 200 O\rK\r\nContent-Length: 2\r\n\r\nok",
    # Ends of lines
    "bare LF after the first line": b"HTTP/1.1 200 OK\nContent-Length: 2\r\n\r\nok",
    "bare LF after a header": b"HTTP/1.1 200 OK\r\nContent-Length: 2\n\r\nok",
    "bare LF at the end of the head": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\nok",
    "bare LF everywhere": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "bare CR after the first line": b"HTTP/1.1 200 OK\rContent-Length: 2\r\n\r\nok",
    "bare CR after a header": b"HTTP/1.1 200 OK\r\nX: y\rContent-Length: 2\r\n\r\nok",
    "bare CR at the end of the head": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\rok",
    # Header lines
    "folding": headed(b"X: a\r\n b"),
    "folding with a tab": headed(b"X: a\r\n\tb"),
    "folding of the first line": headed(b" X: a"),
    "folding of an empty value": headed(b"X:\r\n a"),
    "no colon": headed(b"nonsense"),
    "no name": headed(b": a"),
    "a space before the colon": headed(b"X : a"),
    "a tab before the colon": headed(b"X\t: a"),
    "a space in a name": headed(b"X Y: a"),
    "NUL in a name": headed(b"X\x00Y: a"),
    "a control character in a name": headed(b"X\x01Y: a"),
    "DEL in a name": headed(b"X\x7fY: a"),
    "a byte beyond ASCII in a name": headed(b"X\xe9Y: a"),
    "a bracket in a name": headed(b"X(Y): a"),
    "NUL in a value": headed(b"X: a\x00b"),
    "a control character in a value": headed(b"X: a\x01b"),
    "DEL in a value": headed(b"X: a\x7fb"),
    "bare CR in a value": headed(b"X: a\rb"),
    # Lengths
    "two lengths": answer("Content-Length: 2", "Content-Length: 3", body=b"ok"),
    "one length twice": answer("Content-Length: 2", "Content-Length: 2", body=b"ok"),
    "a list of lengths": lengthy(b"2, 2"),
    "a length and chunks": answer("Content-Length: 2", IN_CHUNKS, body=OK),
    "chunks and a length": answer(IN_CHUNKS, "Content-Length: 2", body=OK),
    "a negative length": lengthy(b"-2"),
    "a signed length": lengthy(b"+2"),
    "a length in hex": lengthy(b"0x2"),
    "a length in exponents": lengthy(b"2e0"),
    "an empty length": lengthy(b""),
    "two numbers": lengthy(b"2 2"),
    "a length with a comma": lengthy(b"2,"),
    "a length with underscores": lengthy(b"0_2"),
    "a length in other digits": lengthy("٢".encode()),
    "a length beyond 64 bits": lengthy(b"18446744073709551618"),
    "a length of 1,000 digits": lengthy(b"9" * 1000),
    # Transfer codings
    "gzip, chunked": coded("gzip, chunked"),
    "chunked, identity": coded("chunked, identity"),
    "chunked, gzip": coded("chunked, gzip"),
    "chunked twice": coded("chunked, chunked"),
    "chunked on two lines": coded("chunked", "chunked"),
    "identity": coded("identity"),
    "identity, chunked": coded("identity", "chunked"),
    "something else": coded("xchunked"),
    "chunked with a parameter": coded("chunked;x=1"),
    "an empty coding": coded(""),
    "a vertical tab": coded("\x0bchunked"),
    "chunks in HTTP/1.0": answer(IN_CHUNKS, body=OK, version="1.0"),
    # Chunks
    "no size": in_chunks(b"\r\nok\r\n0\r\n\r\n"),
    "a negative size": in_chunks(b"-2\r\nok\r\n0\r\n\r\n"),
    "a signed size": in_chunks(b"+2\r\nok\r\n0\r\n\r\n"),
    "a size with 0x": in_chunks(b"0x2\r\nok\r\n0\r\n\r\n"),
    "a size that is no number": in_chunks(b"g\r\nok\r\n0\r\n\r\n"),
    "a space before the size": in_chunks(b" 2\r\nok\r\n0\r\n\r\n"),
    "a size beyond 64 bits": in_chunks(b"10000000000000002\r\nok\r\n0\r\n\r\n"),
    "a size beyond 64 bits by zeros": in_chunks(b"f" * 17 + b"\r\nok"),
    "bare LF after the size": in_chunks(b"2\nok\r\n0\r\n\r\n"),
    "bare CR after the size": in_chunks(b"2\rok\r\n0\r\n\r\n"),
    "bare LF after the data": in_chunks(b"2\r\nok\n0\r\n\r\n"),
    "nothing after the data": in_chunks(b"2\r\nok0\r\n\r\n"),
    "more data than said": in_chunks(b"2\r\nokay\r\n0\r\n\r\n"),
    "bare LF after the last size": in_chunks(b"2\r\nok\r\n0\n\r\n"),
    "bare LF at the very end": in_chunks(b"2\r\nok\r\n0\r\n\n"),
    "bare LF in an extension": in_chunks(b"2;a\nb\r\nok\r\n0\r\n\r\n"),
    "bare CR in an extension": in_chunks(b"2;a\rb\r\nok\r\n0\r\n\r\n"),
    "NUL in an extension": in_chunks(b"2;a\x00b\r\nok\r\n0\r\n\r\n"),
    "a trailer that folds": in_chunks(b"2\r\nok\r\n0\r\nX: a\r\n b\r\n\r\n"),
    "a trailer with NUL": in_chunks(b"2\r\nok\r\n0\r\nX: a\x00\r\n\r\n"),
    "a trailer without a colon": in_chunks(b"2\r\nok\r\n0\r\nnonsense\r\n\r\n"),
    "a trailer with a length": in_chunks(b"2\r\nok\r\n0\r\nContent-Length: 2\r\n\r\n"),
    # Too much
    "a long first line": b"HTTP/1.1 200 " + b"O" * 100_000,
    "a long header": headed(b"X: " + b"a" * 100_000),
    "a long name": headed(b"X" * 100_000 + b": a"),
    "a long head": headed(b"\r\n".join(b"X-%d: %s" % (n, b"a" * 1000) for n in range(1000))),
    "a long header before a long body": answer(
        "X: " + "a" * 100_000, "Content-Length: 100000", body=bytes(100_000)
    ),
    "three hundred headers": headed(b"\r\n".join(b"X-%d: a" % n for n in range(300))),
    "three hundred trailers": chunked(b"ok", trailers="X: a\r\n" * 300),
    "many headers": headed(b"\r\n".join(b"X-%d: a" % n for n in range(10_000))),
    "a hundred interim answers": CONTINUE * 100 + measured(body=b"ok"),
    "many interim answers": CONTINUE * 10_000 + measured(body=b"ok"),
    "many hints": HINTS * 10_000 + measured(body=b"ok"),
    "long trailers": chunked(b"ok", trailers="X: " + "a" * 200_000 + "\r\n"),
    "many trailers": chunked(b"ok", trailers="X: a\r\n" * 20_000),
    "a long extension": chunked(b"ok", extension=";" + "a" * 200_000),
    # Interim answers
    "an interim answer with a body": (
        answer("Content-Length: 2", status="103 Early Hints", body=b"no") + measured(body=b"ok")
    ),
    "an interim answer that is not HTTP": b"HTTP/1.1 100\nX\r\n\r\n" + measured(body=b"ok"),
}

ALLOWED = {
    "no reason": b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok",
    "an empty reason": b"HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nok",
    "a reason in UTF-8": "HTTP/1.1 200 Grüße\r\nContent-Length: 2\r\n\r\nok".encode(),
    "a reason with NUL": b"HTTP/1.1 200 a\x00b\r\nContent-Length: 2\r\n\r\nok",
    "a reason with a tab": b"HTTP/1.1 200 a\tb\r\nContent-Length: 2\r\n\r\nok",
    "names in small letters": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    "chunks in other letters": b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n" + OK,
    "a length with zeros before": lengthy(b"0002"),
    "a length without a space": b"HTTP/1.1 200 OK\r\nContent-Length:2\r\n\r\nok",
    "a length among spaces": lengthy(b" \t 2 \t "),
    "an empty value": headed(b"X:"),
    "a tab in a value": headed(b"X: a\tb"),
    "bytes beyond ASCII in a value": headed(b"X: caf\xc3\xa9 \xff"),
    "a header twice": headed(b"X: a\r\nX: b"),
    "chunk sizes in capitals": in_chunks(b"0000A\r\n0123456789\r\n0\r\n\r\n"),
    "chunk extensions": in_chunks(b'2;a=b;c="d e"\r\nok\r\n0;z\r\n\r\n'),
    "trailers": in_chunks(b"2\r\nok\r\n0\r\nX-Sum: 1\r\nX-Sum: 2\r\n\r\n"),
    "interim answers": CONTINUE * 3 + HINTS * 3 + measured(body=b"ok"),
    "an offer to speak otherwise": headed(b"Upgrade: h2c\r\nConnection: Upgrade"),
    "status 299": answer("Content-Length: 2", status="299 Strange", body=b"ok"),
    "status 599": answer("Content-Length: 2", status="599 Strange", body=b"ok"),
}


@pytest.mark.parametrize("apart", [False, True], ids=["at once", "in pieces"])
@pytest.mark.parametrize("name", REFUSED)
async def test_an_answer_that_can_be_read_in_two_ways_is_refused_and_its_connection_ends(
    name: str, apart: bool
):
    wire = REFUSED[name]
    pieces = cut(wire, range(0, min(len(wire), 400), 7)) if apart else [wire]
    async with scripted(answering_once(*pieces)) as peer, client() as http:
        asked = request(f"http://127.0.0.1:{peer.port}/")
        assert await outcome(http, asked) == failed("BrokenAnswer")
        await peer.closed()
        assert len(peer.requests) == 1


@pytest.mark.parametrize("name", ALLOWED)
async def test_an_unusual_answer_that_can_be_read_in_one_way_is_read(name: str):
    async with scripted(answering(ALLOWED[name])) as peer, client() as http:
        for _ in range(2):
            got = await outcome(http, request(f"http://127.0.0.1:{peer.port}/"))
            assert got.status in (200, 299, 599)
            assert got.body in (b"ok", b"0123456789")
        assert len(peer.lines) == 1


# Bytes that belong to no answer

AFTER = {
    "one byte": b"x",
    "an answer": measured(body=b"two"),
    "half an answer": measured(body=b"two")[:20],
    "a refusal": answer("Content-Length: 0", status="408 Request Timeout"),
}
ANSWERED = pytest.mark.parametrize(
    "wire", [measured(body=b"one"), chunked(b"one")], ids=["length", "chunks"]
)


def then(first: bytes, after: bytes = b"") -> Script:
    """Answer the first connection with too much, which takes no more requests."""

    async def script(line: Line) -> None:
        await line.request()
        if line.number == 1:
            await line.say(first + after)
            assert not await line.left(), "it was used again"
        else:
            await line.say(measured(body=b"mine"))
            await line.left()

    return script


@pytest.mark.parametrize("name", AFTER)
@ANSWERED
async def test_bytes_after_an_answer_end_its_connection_and_reach_nobody(wire: bytes, name: str):
    async with scripted(then(wire, AFTER[name])) as peer, client() as http:
        asked = request(f"http://127.0.0.1:{peer.port}/")
        assert await outcome(http, asked) == failed("BrokenAnswer")
        assert await outcome(http, asked) == Outcome(200, b"mine")
        assert len(peer.lines) == 2


@pytest.mark.parametrize("rounds", [0, 1, 5], ids=["unnoticed", "just noticed", "noticed"])
@pytest.mark.parametrize("name", [*AFTER, "a line"])
@ANSWERED
async def test_bytes_that_nobody_asked_for_end_a_kept_connection_and_reach_nobody(
    wire: bytes, name: str, rounds: int
):
    async with scripted(then(wire)) as peer, client() as http:
        asked = request(f"http://127.0.0.1:{peer.port}/")
        assert await outcome(http, asked) == Outcome(200, b"one")
        os.write(peer.lines[0].descriptor, AFTER.get(name, b"\r\n"))
        await turns(rounds)
        got = await outcome(http, asked)
        assert got in (Outcome(200, b"mine"), failed("ConnectionGone"))
        await peer.lines[0].over.wait()


@pytest.mark.parametrize(
    "wire",
    [
        answer("Content-Length: 5", status="204 No Content", body=b"extra"),
        answer("Content-Length: 5", status="304 Not Modified", body=b"extra"),
        answer(IN_CHUNKS, status="304 Not Modified", body=OK),
    ],
    ids=["204", "304", "304 in chunks"],
)
async def test_a_body_where_there_is_none_reaches_nobody(wire: bytes):
    async def script(line: Line) -> None:
        await line.request()
        await line.say(wire if line.number == 1 else measured(body=b"mine"))
        await line.left()

    async with scripted(script) as peer, client() as http:
        asked = request(f"http://127.0.0.1:{peer.port}/")
        assert await outcome(http, asked) == failed("BrokenAnswer")
        assert await outcome(http, asked) == Outcome(200, b"mine")
        assert len(peer.lines) == 2


async def test_the_body_of_an_answer_to_head_reaches_nobody():
    async def script(line: Line) -> None:
        await line.request()
        await line.say(measured(body=b"extra") if line.number == 1 else measured(body=b"mine"))
        await line.left()

    async with scripted(script) as peer, client() as http:
        address = f"http://127.0.0.1:{peer.port}/"
        first = await outcome(http, request(address, method="HEAD"))
        assert first in (Outcome(200), failed("BrokenAnswer"))
        assert await outcome(http, request(address)) == Outcome(200, b"mine")


@pytest.mark.parametrize("status", ["200 OK", "413 Content Too Large"])
async def test_an_answer_before_the_request_is_complete_is_refused(status: str):
    async def script(line: Line) -> None:
        await line.reader.readuntil(b"\r\n\r\n")
        await line.say(measured(body=b"early", status=status))
        await line.over.wait()

    async with scripted(script, limit=1024) as peer, client() as http:
        asked = request(f"http://127.0.0.1:{peer.port}/", body=bytes(32 * 2**20))
        assert await outcome(http, asked) == failed("BrokenAnswer")


# Bodies without an end


async def test_chunks_without_an_end_stop_at_the_limit():
    async def script(line: Line) -> None:
        await line.request()
        await line.say(in_chunks(b""))
        while True:
            await line.say(b"400\r\n" + bytes(0x400) + b"\r\n")

    async with scripted(script) as peer, client() as http:
        asked = request(f"http://127.0.0.1:{peer.port}/")
        assert await outcome(http, asked, limit=10_000) == failed(MalformedReply.__name__)
        await peer.closed()


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_body_that_grows_when_it_is_decompressed_stops_at_the_limit(encoding: str):
    bomb = gzip.compress(bytes(50 * 2**20))
    if encoding == "deflate":
        bomb = bomb[10:-8]
    wire = measured(f"Content-Encoding: {encoding}", body=bomb)
    async with scripted(answering_once(wire)) as peer, client() as http:
        asked = request(f"http://127.0.0.1:{peer.port}/")
        assert await outcome(http, asked, limit=10_000) == failed(MalformedReply.__name__)
