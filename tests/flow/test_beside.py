"""What goes on beside a call reaches the call it belongs to and no other, over every transport."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bascule.model.call import Beside, LogLevel, LogMessage, Progress
from bascule.model.outcome import Outcome
from bascule.node.assembly import Bridge
from bascule.node.bridge.session import Session
from bascule.testing import do
from tests.flow import matrix
from tests.flow.matrix import PLACES, Place
from tests.flow.servers import PATIENT, any_fault, lines_of
from tests.scale import scaled
from tests.waits import SOON_SECONDS, until

place = matrix.place

LOGGING = {"tools": {"listChanged": True}, "logging": {}}
META = "io.modelcontextprotocol/"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
#: A message that any server may send, asked or not.
UNASKED = do("flood", count=1, params={"level": "error", "data": "unasked"})

on_streams = pytest.mark.parametrize(
    "place", [p for p in PLACES if not p.shares_a_wire], ids=lambda place: place.name
)
on_one_wire = pytest.mark.parametrize(
    "place", [p for p in PLACES if p.shares_a_wire], ids=lambda place: place.name
)
with_a_get_stream = pytest.mark.parametrize(
    "place",
    [p for p in PLACES if p.transport == "streamable_http" and p.name.startswith("http legacy s")
     and not p.is_stateless],
    ids=lambda place: place.name,
)  # fmt: skip


class Ear:
    """A caller who hears of logs, and calls."""

    def __init__(self, session: Session, level: LogLevel | None = "info") -> None:
        self.session = session
        self.level: LogLevel | None = level
        self.heard: list[LogMessage] = []

    @property
    def said(self) -> list[Any]:
        return [message.data for message in self.heard]

    async def call(self, step: Mapping[str, Any] | str, text: str = "hello") -> Outcome:
        beside = Beside(on_log=self.heard.append, log_level=self.level)
        return await called(self.session, step, beside, text)


async def called(
    session: Session, step: Mapping[str, Any] | str, beside: Beside, text: str = "hello"
) -> Outcome:
    """Call the tool that does what it is asked, and see it succeed."""
    async with asyncio.timeout(SOON_SECONDS):
        outcome = await session.call_beside("mcp__bad__fault", {"do": step, "text": text}, beside)
    assert outcome.ok, outcome.error
    return outcome


@asynccontextmanager
async def two_sessions(place: Place, **fields: Any) -> AsyncGenerator[tuple[Session, Session]]:
    """Serve a script to two sessions of one bridge."""
    script = any_fault(capabilities=LOGGING, **fields.pop("script", {}))
    async with (
        place.serving(script, **fields) as served,
        Bridge.open([served], settings=PATIENT) as bridge,
        bridge.session(server_ids=["bad"]) as alice,
        bridge.session(server_ids=["bad"]) as bob,
    ):
        yield alice, bob


def sent(journal: Path, method: str) -> list[Any]:
    """Return the parameters of every request of a method that a server was sent."""
    messages = map(json.loads, lines_of(journal))
    return [message["params"] for message in messages if message.get("method") == method]


# Logs


@pytest.mark.requirement("call:logs:own-connection")
async def test_logs_over_a_connection_of_its_own_reach_the_call_in_order(place: Place):
    script = any_fault(capabilities=LOGGING)
    async with place.session(script, sharing="session") as session:
        ear = Ear(session)
        await ear.call(do("log", count=3))
    assert ear.heard == [LogMessage("info", f"hello {number}", "scripted") for number in (1, 2, 3)]


@pytest.mark.requirement("call:logs:own-stream")
@on_streams
async def test_logs_with_the_answer_of_a_call_reach_it_over_a_shared_connection(place: Place):
    async with place.session(any_fault(capabilities=LOGGING)) as session:
        ear = Ear(session)
        await ear.call(do("log", count=3))
        assert ear.said == ["hello 1", "hello 2", "hello 3"]


@pytest.mark.requirement("call:logs:shared-nobody")
@on_one_wire
async def test_logs_over_a_shared_wire_reach_nobody_and_are_not_asked_for(
    place: Place, tmp_path: Path
):
    journal = tmp_path / "journal"
    async with two_sessions(place, script={"journal": journal}) as (alice, bob):
        ears = [Ear(alice, "debug"), Ear(bob, "debug")]
        await asyncio.gather(*(ear.call(UNASKED) for ear in ears))
        await asyncio.gather(*(ear.call(do("log", level="alert")) for ear in ears))
    assert [ear.heard for ear in ears] == [[], []]
    assert not sent(journal, "logging/setLevel")
    metas = [params.get("_meta", {}) for params in sent(journal, "tools/call")]
    assert all(META + "logLevel" not in meta for meta in metas)


@pytest.mark.requirement("call:logs:shared-nobody")
@with_a_get_stream
@pytest.mark.parametrize("sharing", ["shared", "session"])
async def test_logs_on_the_stream_of_a_session_are_for_the_one_whose_connection_it_is(
    place: Place, sharing: str, tmp_path: Path
):
    gate = tmp_path / "gate"
    step = do("log", on="get", data="from aside", then=do("gate", path=str(gate)))
    async with two_sessions(place, sharing=sharing) as (alice, bob):
        ears = [Ear(alice), Ear(alice, "error"), Ear(bob)]
        silent = asyncio.create_task(ears[1].call(do("gate", path=str(gate))))
        other = asyncio.create_task(ears[2].call(do("gate", path=str(gate))))
        calling = asyncio.create_task(ears[0].call(step))
        if sharing == "session":
            await until(lambda: ears[0].heard)
        else:  # what comes on the stream of the answer comes later
            await Ear(alice).call("echo")
        gate.touch()
        await asyncio.gather(silent, other, calling)
    assert [ear.said for ear in ears] == [["from aside"] * (sharing == "session"), [], []]


@pytest.mark.requirement("call:logs:own-connection")
@on_one_wire
async def test_every_call_of_a_session_hears_what_is_logged_over_its_own_wire(
    place: Place, tmp_path: Path
):
    gate, seen = tmp_path / "gate", tmp_path / "seen"
    waits = do("ledger", path=str(seen), then=do("gate", path=str(gate)))
    async with two_sessions(place, sharing="session") as (alice, bob):
        ears = [Ear(alice), Ear(alice, "warning"), Ear(alice, "error"), Ear(alice, None), Ear(bob)]
        waiting = [asyncio.create_task(ear.call(waits)) for ear in ears]
        await until(lambda: len(lines_of(seen)) == len(ears))
        await Ear(alice).call(do("log", level="warning", data="for all"))
        gate.touch()
        await asyncio.gather(*waiting)
        await Ear(alice).call(do("log", level="warning", data="too late"))
    assert [ear.said for ear in ears] == [["for all"], ["for all"], [], [], []]


class Nobody:
    """Offers to answer what servers ask, and is not asked."""

    capabilities: Mapping[str, Any] = {"roots": {}}

    async def provide(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        raise NotImplementedError


@pytest.mark.requirement("call:logs:own-connection")
async def test_a_session_that_answers_its_servers_has_a_connection_of_its_own(place: Place):
    async with (
        place.serving(any_fault(capabilities=LOGGING)) as served,
        Bridge.open([served], settings=PATIENT) as bridge,
        bridge.session(server_ids=["bad"], inputs=Nobody()) as session,
    ):
        ear = Ear(session)
        await ear.call(do("log"))
        assert ear.said == ["hello 1"]


@pytest.mark.requirement("call:logs:level")
async def test_only_what_is_serious_enough_and_has_a_level_is_told(place: Place):
    step: Mapping[str, Any] | str = "echo"
    for params in (
        {"level": "warning", "data": "kept"},
        {"level": "info", "data": "below"},
        {"level": "loud", "data": "unknown"},
        {"data": "without"},
        {"level": "error"},
        {"level": 7, "data": "a number"},
        [],
        {"level": "emergency", "data": {"kept": [1, None]}},
    ):
        step = do("flood", count=1, params=params, then=step)
    async with place.session(any_fault(), sharing="session") as session:
        ear, nobody = Ear(session, "warning"), Ear(session, None)
        await ear.call(step)
        await nobody.call(step)
    assert ear.said == [{"kept": [1, None]}, "kept"]
    assert nobody.said == []


@pytest.mark.requirement("call:logs:level")
async def test_a_server_is_told_the_level_in_the_way_of_its_generation(
    place: Place, tmp_path: Path
):
    journal = tmp_path / "journal"
    script = any_fault(capabilities=LOGGING, journal=journal)
    async with place.session(script, sharing="session") as session:
        for level in ("error", "warning", "error", "debug", "info", None):
            ear = Ear(session, level)
            await ear.call(do("log", level="notice"))
            assert len(ear.heard) == (level in ("debug", "info"))
    told = [params.get("level") for params in sent(journal, "logging/setLevel")]
    metas = [params.get("_meta", {}) for params in sent(journal, "tools/call")]
    wished = [meta.get(META + "logLevel") for meta in metas]
    if place.era == "modern":
        assert (told, wished) == ([], ["error", "warning", "error", "debug", "info", None])
    else:
        assert (told, wished) == (["error", "warning", "debug"], [None] * 6)


@pytest.mark.requirement("call:logs:level")
async def test_nobody_changes_the_level_of_a_shared_server(place: Place, tmp_path: Path):
    journal = tmp_path / "journal"
    async with place.session(any_fault(capabilities=LOGGING, journal=journal)) as session:
        await Ear(session, "debug").call("echo")
    assert not sent(journal, "logging/setLevel")


@pytest.mark.requirement("call:logs:level")
async def test_a_server_that_does_not_say_that_it_logs_is_told_no_level(tmp_path: Path):
    journal = tmp_path / "journal"
    async with PLACES[0].session(any_fault(journal=journal), sharing="session") as session:
        ear = Ear(session)
        await ear.call(do("log", data="all the same"))
    assert ear.said == ["all the same"]
    assert not sent(journal, "logging/setLevel")


@pytest.mark.parametrize("answer", ["rpc_error", "never", do("fixed", result=None, bare=True)])
async def test_a_server_that_does_not_take_the_level_is_called_all_the_same(
    answer: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr("bascule.node.pool.client.LEVEL_SECONDS", 0.2)
    journal = tmp_path / "journal"
    script = any_fault(capabilities=LOGGING, journal=journal, on={"logging/setLevel": answer})
    async with PLACES[0].session(script, sharing="session") as session:
        ear = Ear(session)
        await asyncio.gather(*(ear.call(do("log", data="said")) for _ in range(3)))
    assert set(ear.said) == {"said"}
    assert len(sent(journal, "logging/setLevel")) == 1


async def test_a_session_that_was_opened_again_is_told_the_level_again(tmp_path: Path):
    journal = tmp_path / "journal"
    [place] = [each for each in PLACES if each.name == "http legacy stateful"]
    script = any_fault(capabilities=LOGGING, journal=journal)
    async with place.session(script, sharing="session") as session:
        ear = Ear(session)
        await ear.call("echo")
        await ear.call(do("once", path=str(tmp_path / "lost"), first="session_lost"))
        await ear.call("echo")
    assert len(sent(journal, "logging/setLevel")) == 2


@pytest.mark.requirement("call:logs:bounded")
async def test_of_a_flood_a_call_hears_a_thousand_messages_and_is_answered(place: Place):
    async with place.session(any_fault(), sharing="session") as session:
        ear = Ear(session)
        await ear.call(do("log", count=5_000))
        assert ear.said == [f"hello {number + 1}" for number in range(1_000)]
        again = Ear(session)
        await again.call(do("log"))
        assert again.said == ["hello 1"]


@pytest.mark.requirement("call:logs:never-crossed")
@on_streams
async def test_what_is_logged_for_alice_never_reaches_bob(place: Place):
    """Both share a connection; their calls are under way at once, with equal texts and ids."""
    crowd = scaled(200)
    async with two_sessions(place, budgets={"max_concurrency": 64}) as (alice, bob):
        ears = [Ear(session) for _ in range(crowd) for session in (alice, bob)]
        names = {id(ear): f"{'ab'[number % 2]}{number}" for number, ear in enumerate(ears)}
        step = do("log", count=5, then=do("progress", count=1))
        await asyncio.gather(*(ear.call(step, names[id(ear)]) for ear in ears))
    for ear in ears:
        assert ear.said == [f"{names[id(ear)]} {number}" for number in range(1, 6)]


# Progress

PROGRESS = (
    '{"jsonrpc":"2.0","method":"notifications/progress",'
    '"params":{"progressToken":@TOKEN@,"progress":%d}}'
)
RESULT = '{"jsonrpc":"2.0","id":@ID@,"result":@RESULT@}'


@pytest.mark.requirement("call:progress:reported")
async def test_the_last_progress_before_the_answer_is_told_and_none_after_it(place: Place):
    """All of it comes at once, and the rest with the answer to the next call."""
    frames = "\n".join([PROGRESS % 1, PROGRESS % 2, RESULT, PROGRESS % 3])
    heard: list[Progress] = []
    ended = [False]

    def told(progress: Progress) -> None:
        assert not ended[0]
        heard.append(progress)

    async with place.session(any_fault()) as session:
        await called(session, do("raw", frame=frames), Beside(on_progress=told))
        ended[0] = True
        await called(session, "echo", Beside())
    assert heard == [Progress(1), Progress(2)]


@pytest.mark.requirement("call:progress:own-token")
async def test_calls_of_two_sessions_over_one_connection_hear_their_own_progress(
    place: Place, tmp_path: Path
):
    journal, gate, seen = tmp_path / "journal", tmp_path / "gate", tmp_path / "seen"
    ticks = do("gate", path=str(gate), then=do("progress", count=2))
    step = do("ledger", path=str(seen), then=ticks)
    stray = {"progressToken": 10_000, "progress": 9}
    none_of_ours = do("flood", count=1, method="notifications/progress", params=stray)
    heard: list[list[Progress]] = [[], [], [], []]
    strange: list[Progress] = []
    async with two_sessions(place, script={"journal": journal}) as (alice, bob):
        calls = [
            asyncio.create_task(called(session, step, Beside(on_progress=own.append)))
            for session, own in zip((alice, bob, alice, bob), heard, strict=True)
        ]
        await until(lambda: len(lines_of(seen)) == len(calls))
        await called(alice, none_of_ours, Beside(on_progress=strange.append))
        gate.touch()
        await asyncio.gather(*calls)
    assert heard == [[Progress(1, 2), Progress(2, 2)]] * 4
    assert strange == []
    metas = [params.get("_meta", {}) for params in sent(journal, "tools/call")]
    tokens = [meta["progressToken"] for meta in metas if "progressToken" in meta]
    assert len(set(tokens)) == len(tokens) == 5


# Trace


@pytest.mark.requirement("call:trace")
@pytest.mark.parametrize(
    ("given", "goes_up"),
    [
        ({"traceparent": PARENT, "tracestate": 'a="b\\c", d=e'},) * 2,
        ({"traceparent": PARENT, "baggage": "user=alice"}, {"traceparent": PARENT}),
        ({"traceparent": PARENT.upper(), "tracestate": "a=b"}, {}),
    ],
)
async def test_the_trace_of_a_caller_goes_up_and_nothing_else(
    place: Place, given: dict[str, str], goes_up: dict[str, str], tmp_path: Path
):
    journal = tmp_path / "journal"
    async with place.session(any_fault(journal=journal)) as session:
        await called(session, "echo", Beside(trace=given))
    [params] = sent(journal, "tools/call")
    meta = {name: v for name, v in params.get("_meta", {}).items() if not name.startswith(META)}
    assert meta == goes_up
