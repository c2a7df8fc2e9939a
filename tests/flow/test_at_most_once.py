"""A server that writes down what it executes: no write is ever done twice."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from bascule.model.outcome import Outcome
from bascule.node.assembly import Bridge
from bascule.node.bridge.session import Session
from bascule.testing.server import ScriptedServer, do
from tests.flow.processes import traces
from tests.flow.servers import PATIENT, SHORT, code_of, lines_of, record, works
from tests.scale import scaled
from tests.waits import blocked_until_ended

SEED = 20_260_728
AT_ONCE = 5
#: Whether it was carried out is not known to the caller; nothing else may have been.
AMBIGUOUS = {"mcp_outcome_unknown", "mcp_timeout"}
EXECUTE = do("ledger")
#: The server did answer this one, if not in a way that can be read.
UNREADABLE = do("ledger", then="bad_utf8")
#: What may become of a call: before the execution, after it, or instead of it.
FATES: list[Mapping[str, Any]] = [
    *[do("ledger", then="echo")] * 20,
    do("ledger", then="die"),
    do("die"),
    do("ledger", then=do("die", signal="KILL")),
    do("ledger", then="close_output"),
    do("ledger", then="never"),
    do("ledger", then="sleep_until_cancelled"),
    do("ledger", then=do("sleep_until_cancelled", then="echo")),
    UNREADABLE,
    do("ledger", then="duplicate_reply"),
    do("ledger", then="wrong_id"),
    do("noise", times=100, then=EXECUTE),
    do("flood", count=1000, then=EXECUTE),
]


class Ledger:
    """A server with a tool of every class, and what it has executed so far."""

    def __init__(self, folder: Path, era: Literal["modern", "legacy"]) -> None:
        self.path = folder / "executed"
        self.starts = folder / "starts"
        self.server = ScriptedServer(
            behaviours={"echo": "echo", "fault": "asked", "put": "asked", "get": "asked"},
            ledger=self.path,
            starts=self.starts,
            era=era,
        )
        self.record = record(
            self.server,
            effects={"read": ["get"], "idempotent": ["put"]},
            budgets={"max_concurrency": 64},
        )

    def executions(self) -> Counter[int]:
        """Return how often each numbered call was carried out."""
        return Counter(json.loads(line)["n"] for line in lines_of(self.path))

    @asynccontextmanager
    async def session(self) -> AsyncGenerator[Session, None]:
        """Open a bridge over the server, and a session on it."""
        async with (
            Bridge.open([self.record], settings=PATIENT) as bridge,
            bridge.session(server_ids=["bad"]) as session,
        ):
            await session.tools()
            yield session


@pytest.fixture(params=["modern", "legacy"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Ledger:
    """A ledger server that has executed nothing yet.

    The era matters: a modern connection has a subscription in flight all the time, so that what
    is written takes another way than on one with nothing else to send.
    """
    return Ledger(tmp_path, request.param)


async def call(session: Session, number: int, step: Any, tool: str = "fault") -> Outcome:
    """Make a numbered call; its end must come."""
    arguments = {"n": number, "do": step, "text": str(number)}
    async with asyncio.timeout(10):
        return await session.call(f"mcp__bad__{tool}", arguments, timeout=SHORT)


def kill_someone(word: str, dice: random.Random) -> None:
    """Kill a server from outside, at a moment that nobody chose."""
    for pid in traces(word):
        if dice.random() < 0.5:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.timeout(300)
@pytest.mark.requirement("call:once", "call:once:otherwise-unknown", "outcomes:unknown")
async def test_no_write_is_done_twice_whatever_happens_and_when(ledger: Ledger):
    dice = random.Random(SEED)
    outcomes: dict[int, Outcome] = {}
    fates: dict[int, Mapping[str, Any]] = {}
    left = iter(range(scaled(500)))

    async def worker(session: Session) -> None:
        for number in left:
            fates[number] = dice.choice(FATES)
            outcomes[number] = await call(session, number, fates[number])
            if dice.random() < 0.05:
                kill_someone(str(ledger.path), dice)

    async with ledger.session() as session:
        await asyncio.gather(*(worker(session) for _ in range(AT_ONCE)))
        async with asyncio.timeout(10):
            await works(session)
    done = ledger.executions()
    assert len(outcomes) == scaled(500)
    assert [number for number, count in done.items() if count > 1] == []
    for number, outcome in outcomes.items():
        if outcome.ok:
            assert outcome.text == str(number)
            assert done[number] == 1
        elif code_of(outcome) == "mcp_unavailable":
            assert done[number] == 0, "said to be undelivered, and executed"
        elif code_of(outcome) == "mcp_tool_error":
            assert fates[number] is UNREADABLE
            assert done[number] == 1
        else:
            assert code_of(outcome) in AMBIGUOUS
    codes = Counter(code_of(outcome) for outcome in outcomes.values())
    # What says little about repeats is a run in which little was carried out.
    assert sum(done.values()) > len(outcomes) // 2, codes
    assert codes["ok"] > len(outcomes) // 5, codes
    assert codes["mcp_outcome_unknown"] > len(outcomes) // 20, codes
    assert codes["mcp_unavailable"] < len(outcomes) // 10, codes
    assert len(lines_of(ledger.starts)) > len(outcomes) // 25


@pytest.mark.requirement("call:once:otherwise-unknown", "outcomes:unknown")
@pytest.mark.parametrize(
    ("fate", "executed"),
    [
        (do("ledger", then="die"), 1),
        (do("die"), 0),
        (do("ledger", then="close_output"), 1),
        (do("ledger", then=do("die", signal="KILL")), 1),
    ],
)
async def test_a_write_whose_answer_is_lost_is_unknown_and_not_sent_again(
    ledger: Ledger, fate: Any, executed: int
):
    async with ledger.session() as session:
        outcome = await call(session, 1, fate)
        assert code_of(outcome) == "mcp_outcome_unknown"
        assert outcome.error is not None
        assert not outcome.error.retryable
        await works(session)
    assert ledger.executions()[1] == executed


async def test_the_bystander_of_an_answer_that_may_be_anybodys_has_an_unknown_outcome(
    ledger: Ledger,
):
    """It was sent, it may have been carried out, and nobody will ever answer it."""
    anonymous = do("raw", frame='{"jsonrpc":"2.0","result":{"content":[NaN]}}')
    async with ledger.session() as session:
        bystander = asyncio.create_task(
            session.call("mcp__bad__fault", {"n": 1, "do": do("ledger", then="never")})
        )
        await works(session)
        await call(session, 2, anonymous)
        async with asyncio.timeout(10):
            assert code_of(await bystander) == "mcp_outcome_unknown"
    assert ledger.executions()[1] == 1


@pytest.mark.requirement("call:once:resend-idempotent")
@pytest.mark.parametrize("tool", ["put", "get"])
async def test_what_the_record_calls_harmless_to_repeat_is_sent_again(
    ledger: Ledger, tool: str, tmp_path: Path
):
    first = do("ledger", then="die")
    fate = do("once", path=str(tmp_path / "once"), first=first, then=EXECUTE)
    async with ledger.session() as session:
        arguments = {"n": 1, "do": fate, "text": "again"}
        outcome = await session.call(f"mcp__bad__{tool}", arguments)
        assert outcome.ok, outcome.error
        assert outcome.text == "again"
    assert ledger.executions()[1] == 2


@pytest.mark.requirement("call:once:resend-idempotent", "outcomes:unknown")
async def test_what_is_harmless_to_repeat_is_repeated_once_and_not_for_ever(ledger: Ledger):
    async with ledger.session() as session:
        outcome = await session.call(
            "mcp__bad__put", {"n": 1, "do": do("ledger", then="die"), "text": "x"}
        )
        assert code_of(outcome) == "mcp_outcome_unknown"
    assert ledger.executions()[1] == 2


@pytest.mark.requirement("call:once:resend-unsent", "pool:restart-on-disconnect")
async def test_a_write_that_provably_never_left_is_sent_to_the_next_process(ledger: Ledger):
    async with ledger.session() as session:
        for number in range(5):
            (pid,) = traces(str(ledger.path))
            os.kill(pid, signal.SIGKILL)
            blocked_until_ended(pid)  # not a turn of the loop: the node must not have noticed yet
            outcome = await session.call(
                "mcp__bad__fault", {"n": number, "do": EXECUTE, "text": "once"}
            )
            assert outcome.ok, outcome.error
    assert ledger.executions() == dict.fromkeys(range(5), 1)
    assert len(lines_of(ledger.starts)) == 6


@pytest.mark.requirement("call:once")
async def test_a_call_answered_late_is_not_sent_again(ledger: Ledger):
    late = do("ledger", then=do("sleep_until_cancelled", then="echo"))
    async with ledger.session() as session:
        assert code_of(await call(session, 1, late)) == "mcp_timeout"
        assert code_of(await call(session, 2, late, "put")) == "mcp_timeout"
        await works(session)
    assert ledger.executions() == {1: 1, 2: 1}


@pytest.mark.requirement("call:once", "call:cancel:upstream")
async def test_a_cancelled_caller_cancels_its_call_and_nothing_is_repeated(
    ledger: Ledger, tmp_path: Path
):
    told = tmp_path / "told"
    step = do("ledger", then=do("sleep_until_cancelled", path=str(told)))
    async with ledger.session() as session:
        caller = asyncio.create_task(
            session.call("mcp__bad__fault", {"n": 1, "do": step, "text": "x"})
        )
        await works(session)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await works(session)
        assert lines_of(told) == ["cancelled"]
    assert ledger.executions() == {1: 1}
