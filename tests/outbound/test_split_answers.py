"""An answer may come in any pieces: every split of every answer gives the same result."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.outbound.exchange import BOTH_LOOPS, Outcome, client, outcome, request
from tests.outbound.scripted_server import Line, Script, answering, closing, cut, scripted
from tests.outbound.wire_answers import ANSWERS, WireAnswer
from tests.scale import scaled

pytestmark = BOTH_LOOPS
EACH = pytest.mark.parametrize("known", ANSWERS, ids=lambda known: known.name)


def serving(known: WireAnswer, pieces: list[bytes]) -> Script:
    return answering(*pieces) if known.kept else closing(*pieces)


async def twice(known: WireAnswer, pieces: list[bytes]) -> tuple[list[Outcome], int]:
    """Ask twice, and count the connections that this took."""
    async with scripted(serving(known, pieces)) as peer, client() as http:
        address = f"http://127.0.0.1:{peer.port}/"
        got = [await outcome(http, request(address, method=known.method)) for _ in range(2)]
        assert len(peer.requests) == 2
        return got, len(peer.lines)


def wanted(known: WireAnswer) -> tuple[list[Outcome], int]:
    return [Outcome(known.status, known.body)] * 2, 1 if known.kept else 2


@EACH
async def test_an_answer_is_read_whole_and_its_connection_serves_again(known: WireAnswer):
    assert await twice(known, [known.wire]) == wanted(known)


@EACH
async def test_an_answer_is_read_byte_by_byte(known: WireAnswer):
    assert await twice(known, cut(known.wire, range(len(known.wire)))) == wanted(known)


@EACH
async def test_an_answer_is_read_in_two_pieces_wherever_it_is_cut(known: WireAnswer):
    served = iter(range(1, len(known.wire)))

    async def script(line: Line) -> None:
        while True:
            await line.request()
            place = next(served)
            await line.say(known.wire[:place], known.wire[place:])
            if not known.kept:
                return

    async with scripted(script) as peer, client() as http:
        asked = request(f"http://127.0.0.1:{peer.port}/", method=known.method)
        for place in range(1, len(known.wire)):
            assert await outcome(http, asked) == Outcome(known.status, known.body), place


@settings(max_examples=scaled(2_000))
@given(st.sampled_from(ANSWERS), st.lists(st.integers(0, 4096), max_size=8))
async def test_every_split_of_every_answer_gives_the_same_result(
    known: WireAnswer, places: list[int]
):
    assert await twice(known, cut(known.wire, places)) == wanted(known)
