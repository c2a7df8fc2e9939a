"""The parking of one request: for one token and person, and what cannot be read any more."""

from __future__ import annotations

import pytest

from bascule.audit.parked_turns import MemoryTurns, Place, TurnRefused
from bascule.auth.identity import Principal
from bascule.clock import SYSTEM_CLOCK
from bascule.doors.chat.options import Asked, ChatOptions
from bascule.doors.chat.parking import RequestParking
from bascule.loop.budgets import Spent
from bascule.loop.deltas import Asked as AskedCall
from bascule.loop.deltas import Turn
from bascule.loop.parking import Answered, ParkedTurn, WaitingCall

MODEL = "m"


def principal(by: str = "tok-1", person: str | None = "alice") -> Principal:
    return Principal("app", "client", "writer", by, person=person)


def asked(resume: str | None = None, text: str = "hello") -> Asked:
    plain = {"model": MODEL, "messages": [{"role": "user", "content": text}]}
    return Asked(
        raw=b"",
        plain=plain,
        has_ours=False,
        model=MODEL,
        narrowing=(),
        options=ChatOptions(resume=resume),
    )


def turn(expires_at: float) -> ParkedTurn:
    call = AskedCall(call_id="c1", name="write", arguments='{"big": 123456789012345678901}')
    waiting = WaitingCall(
        asked=call,
        name="write",
        server="fs",
        tool="write",
        approval_id="apr-1",
        expires_at=expires_at,
    )
    return ParkedTurn(
        turn=Turn(text="", calls=(call,), finish_reason="tool_calls", extra={"n": 2**70}),
        answers=(Answered(message={"role": "tool", "content": "x"}, waiting=waiting),),
        appended=({"role": "assistant", "content": None},),
        reports=(),
        spent=Spent(iterations=1, streaks={"write {}": 1}),
        warnings=("one",),
    )


@pytest.fixture
def later() -> float:
    return SYSTEM_CLOCK.now() + 3_600


async def parked_by(turns: MemoryTurns, who: Principal, later: float) -> str:
    async with RequestParking(turns, who, asked()) as parking:
        return await parking.keep(turn(later))


async def test_a_turn_comes_back_as_it_was(later: float):
    turns = MemoryTurns()
    resume = await parked_by(turns, principal(), later)
    async with RequestParking(turns, principal(), asked(resume)) as parking:
        assert parking.parked == turn(later)


@pytest.mark.requirement("chat:approval:misuse")
@pytest.mark.parametrize(
    "other",
    [principal(person="bob"), principal(person=None), principal("tok-2"), principal("tok-2", None)],
)
async def test_it_belongs_to_one_token_and_one_person(other: Principal, later: float):
    turns = MemoryTurns()
    resume = await parked_by(turns, principal(), later)
    with pytest.raises(TurnRefused) as refused:
        async with RequestParking(turns, other, asked(resume)):
            pass
    assert refused.value.code == "not_found"


async def test_a_turn_in_a_form_that_is_not_known_any_more_is_gone(later: float):
    turns = MemoryTurns()
    resume = await parked_by(turns, principal(), later)
    parking = RequestParking(turns, principal(), asked(resume))
    place: Place = parking._place
    await turns.keep(place, b'{"turn": 1}', later)
    for _ in range(2):
        with pytest.raises(TurnRefused) as refused:
            async with parking:
                pass
        assert refused.value.code == "not_found"
    assert len(turns) == 0
