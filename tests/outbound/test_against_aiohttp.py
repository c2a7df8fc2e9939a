"""The same bytes, read by our engine and by aiohttp: the same result, or a stricter one of a list.

aiohttp repeats a GET by itself when a kept connection breaks; scripts here answer one request.
"""

from __future__ import annotations

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.outbound.exchange import Outcome, client, failed, outcome, request
from tests.outbound.scripted_server import closing, scripted
from tests.outbound.test_strict_answers import ALLOWED, REFUSED
from tests.outbound.wire_answers import ANSWERS, TEXT, WireAnswer, answer, chunked, chunks, measured
from tests.scale import scaled

BROKEN = failed("BrokenAnswer")
SECONDS = 20
#: Each takes two clients and two connections.
FEW = settings(max_examples=scaled(1_000))

#: What aiohttp reads, and we refuse: another reader could understand it otherwise.
STRICTER = frozenset(
    {
        "HTTP/0.9 by name",
        "HTTP/2.0 by name",
        "status 000",
        "status 099",
        "a protocol nobody asked for",
        "bare LF after the first line",
        "bare LF after a header",
        "bare LF at the end of the head",
        "bare LF everywhere",
        "folding",
        "folding with a tab",
        "folding of the first line",
        "folding of an empty value",
        "a control character in a value",
        "DEL in a value",
        "gzip, chunked",
        "identity",
        "chunked, identity",
        "chunked, gzip",
        "chunked twice",
        "chunked on two lines",
        "identity, chunked",
        "something else",
        "chunked with a parameter",
        "an empty coding",
        "a vertical tab",
        "chunks in HTTP/1.0",
        "bare LF after the data",
        "bare LF at the very end",
        "a trailer that folds",
        "a trailer with NUL",
        "a hundred interim answers",
        "many interim answers",
        "many hints",
        "a long extension",
    }
)


async def ours(port: int, method: str) -> Outcome:
    async with client() as http:
        return await outcome(http, request(f"http://127.0.0.1:{port}/", method=method))


async def theirs(port: int, method: str) -> Outcome:
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        try:
            body = b"{}" if method == "POST" else None
            async with session.request(method, f"http://127.0.0.1:{port}/", data=body) as got:
                return Outcome(got.status, await got.read())
        except aiohttp.ServerDisconnectedError:
            return failed("Unanswered")
        except aiohttp.ClientError:
            return BROKEN


async def both(wire: bytes, method: str = "POST") -> tuple[Outcome, Outcome]:
    """Return what each makes of an answer after which the server hangs up."""
    async with scripted(closing(wire)) as peer:
        return await ours(peer.port, method), await theirs(peer.port, method)


@pytest.mark.parametrize("known", ANSWERS, ids=lambda known: known.name)
async def test_usual_answers_are_read_alike(known: WireAnswer):
    mine, other = await both(known.wire, known.method)
    assert mine == other == Outcome(known.status, known.body)


@pytest.mark.parametrize("name", ALLOWED)
async def test_unusual_answers_are_read_alike(name: str):
    mine, other = await both(ALLOWED[name])
    assert mine == other


@pytest.mark.parametrize("name", REFUSED)
async def test_what_aiohttp_refuses_we_refuse_and_the_rest_is_listed(name: str):
    mine, other = await both(REFUSED[name])
    assert mine == BROKEN
    assert (other.failure == "") == (name in STRICTER), other


# Random answers: harmless ones, with one change somewhere

PIECES = st.lists(st.binary(min_size=1, max_size=20), max_size=3)
HEADERS = st.lists(
    st.sampled_from(["Content-Type: text/plain", "X-A: b", "Connection: close", "X: \x80\xff"]),
    max_size=3,
)
SEEDS = st.one_of(
    st.builds(lambda headers, parts: measured(*headers, body=b"".join(parts)), HEADERS, PIECES),
    st.builds(
        lambda headers, parts: answer(*headers, "Transfer-Encoding: chunked", body=chunks(*parts)),
        HEADERS,
        PIECES,
    ),
    st.builds(lambda headers, parts: answer(*headers, body=b"".join(parts)), HEADERS, PIECES),
)
ODD = st.sampled_from([b"\r\n", *[bytes([byte]) for byte in b"\r\n\0 \t:05-;,\x7f\xff"]])


@FEW
@given(SEEDS)
async def test_answers_of_random_parts_are_read_alike(wire: bytes):
    mine, other = await both(wire)
    assert mine == other
    assert mine.status == 200


@FEW
@given(SEEDS, ODD, st.integers(0, 1000), st.booleans())
async def test_a_changed_answer_is_read_alike_or_refused(
    wire: bytes, odd: bytes, place: int, replaced: bool
):
    """We never read what aiohttp refuses, nor read it otherwise."""
    at = place % len(wire)
    mine, other = await both(wire[:at] + odd + wire[at + replaced :])
    if mine.status:
        assert mine == other


@FEW
@given(st.sampled_from([measured(), chunked(TEXT)]), st.integers(0, 1000))
async def test_an_answer_that_is_cut_is_whole_for_neither(wire: bytes, place: int):
    mine, other = await both(wire[: 1 + place % (len(wire) - 1)])
    assert mine.failure
    assert other.failure
