"""Input in the middle of a call, over every transport and generation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bascule.errors import RemoteError
from bascule.node.assembly import Bridge
from bascule.testing.server import ScriptedServer, do
from tests.flow import matrix
from tests.flow.matrix import Place
from tests.flow.servers import PATIENT, code_of, lines_of

ANSWERS: Mapping[str, Mapping[str, Any]] = {
    "elicitation/create": {"action": "accept", "content": {"name": "Ada"}},
    "sampling/createMessage": {
        "role": "assistant",
        "content": {"type": "text", "text": "yes"},
        "model": "m",
    },
    "roots/list": {"roots": [{"uri": "file:///srv"}]},
}
OFFERED: Mapping[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}


class Person:
    """Answers everything, and remembers the questions."""

    def __init__(self, capabilities: Mapping[str, Any] = OFFERED) -> None:
        self.capabilities = capabilities
        self.asked: list[str] = []

    async def provide(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append(method)
        if params.get("message") == "a rude question":
            raise RemoteError(-1, "not to be answered")
        return ANSWERS[method]


def asking(place: Place, method: str, journal: Path, **params: Any) -> ScriptedServer:
    """Return a server whose tool asks once, in the way of the generation, and tells the answer."""
    legacy = do("server_request", method=method, params=params)
    modern = do("input_required", requests={"it": {"method": method, "params": params}})
    return ScriptedServer(
        behaviours={"ask": legacy if place.era == "legacy" else modern}, journal=journal
    )


def answer_in(place: Place, text: str) -> Any:
    """Return what the server was told, from what its tool repeats."""
    told = json.loads(text)
    return told["result"] if place.era == "legacy" else told["it"]


@asynccontextmanager
async def bridged(place: Place, script: ScriptedServer) -> AsyncGenerator[Bridge, None]:
    async with (
        asyncio.timeout(20),
        place.serving(script) as served,
        Bridge.open([served], settings=PATIENT) as bridge,
    ):
        yield bridge


# A legacy server without sessions cannot tell whose answer it gets, so it has no way to ask.
ASKING = [each for each in matrix.PLACES if not each.is_stateless]


@pytest.mark.requirement("manager:sampling-elicitation")
@pytest.mark.parametrize("place", ASKING, ids=lambda each: each.name)
@pytest.mark.parametrize("method", ANSWERS)
async def test_what_a_server_asks_goes_to_the_sessions_handler(
    place: Place, method: str, tmp_path: Path
):
    person = Person()
    script = asking(place, method, tmp_path / "journal", message="hello")
    async with (
        bridged(place, script) as bridge,
        bridge.session(server_ids=["bad"], inputs=person) as session,
    ):
        outcome = await session.call("mcp__bad__ask")
        assert outcome.ok, outcome.error
        assert answer_in(place, outcome.text) == ANSWERS[method]
        assert person.asked == [method]


@pytest.mark.parametrize("place", ASKING, ids=lambda each: each.name)
@pytest.mark.requirement("wire:server-requests-refused")
async def test_without_a_handler_a_server_is_told_that_nothing_was_offered(
    place: Place, tmp_path: Path
):
    script = asking(place, "elicitation/create", tmp_path / "journal", message="hello")
    async with (
        bridged(place, script) as bridge,
        bridge.session(server_ids=["bad"]) as session,
    ):
        outcome = await session.call("mcp__bad__ask")
        if place.era == "legacy":
            assert json.loads(outcome.text)["error"]["code"] == -32601
        else:
            assert code_of(outcome) == "mcp_tool_error"
            assert "nobody here was declared able to give it" in str(outcome.error)
    assert not capabilities_told(tmp_path / "journal")


@pytest.mark.parametrize("place", ASKING, ids=lambda each: each.name)
async def test_a_server_is_told_what_the_handler_offers_and_refused_the_rest(
    place: Place, tmp_path: Path
):
    person = Person({"roots": {"listChanged": False}})
    script = asking(place, "elicitation/create", tmp_path / "journal", message="hello")
    async with (
        bridged(place, script) as bridge,
        bridge.session(server_ids=["bad"], inputs=person) as session,
    ):
        outcome = await session.call("mcp__bad__ask")
        said = outcome.text if place.era == "legacy" else str(outcome.error)
        assert "elicitation/create was not offered" in said
    assert not person.asked
    assert capabilities_told(tmp_path / "journal") == {"roots": {"listChanged": False}}


@pytest.mark.parametrize("place", ASKING, ids=lambda each: each.name)
async def test_a_refusal_of_the_handler_ends_the_question_and_not_the_connection(
    place: Place, tmp_path: Path
):
    script = asking(place, "elicitation/create", tmp_path / "journal", message="a rude question")
    async with (
        bridged(place, script) as bridge,
        bridge.session(server_ids=["bad"], inputs=Person()) as session,
    ):
        for _ in range(2):
            outcome = await session.call("mcp__bad__ask")
            said = outcome.text if place.era == "legacy" else str(outcome.error)
            assert "not to be answered" in said


@pytest.mark.parametrize("place", ASKING, ids=lambda each: each.name)
async def test_only_the_session_with_the_handler_is_asked(place: Place, tmp_path: Path):
    person = Person()
    script = asking(place, "elicitation/create", tmp_path / "journal", message="hello")
    async with (
        bridged(place, script) as bridge,
        bridge.session(server_ids=["bad"]) as other,
        bridge.session(server_ids=["bad"], inputs=person) as session,
    ):
        refused, answered = await asyncio.gather(
            other.call("mcp__bad__ask"), session.call("mcp__bad__ask")
        )
        assert "offered" in refused.text or refused.error is not None
        assert answer_in(place, answered.text) == ANSWERS["elicitation/create"]
        assert len(person.asked) == 1
        assert len(bridge.statuses()) == 2
        await session.close()
        assert len(bridge.statuses()) == 1


MODERN = [each for each in matrix.PLACES if each.era == "modern"]


@pytest.mark.parametrize("place", MODERN, ids=lambda each: each.name)
async def test_each_round_carries_the_exact_state_and_the_call_it_belongs_to(
    place: Place, tmp_path: Path
):
    journal = tmp_path / "journal"
    script = ScriptedServer(behaviours={"ask": do("input_required", rounds=3)}, journal=journal)
    async with (
        bridged(place, script) as bridge,
        bridge.session(server_ids=["bad"], inputs=Person()) as session,
    ):
        outcome = await session.call("mcp__bad__ask", {"text": "hello"})
        assert outcome.ok, outcome.error
    calls = [message for message in told(journal) if message.get("method") == "tools/call"]
    assert len({call["id"] for call in calls}) == 4
    assert [call["params"].get("requestState") for call in calls] == [
        None,
        "round-1",
        "round-2",
        "round-3",
    ]
    assert ["inputResponses" in call["params"] for call in calls] == [False, True, True, True]
    assert all(call["params"]["arguments"] == {"text": "hello"} for call in calls)


@pytest.mark.parametrize("place", MODERN, ids=lambda each: each.name)
async def test_a_tool_that_never_has_enough_input_is_given_up(place: Place):
    script = ScriptedServer(behaviours={"ask": do("input_required", rounds=1000)})
    person = Person()
    async with (
        bridged(place, script) as bridge,
        bridge.session(server_ids=["bad"], inputs=person) as session,
    ):
        outcome = await session.call("mcp__bad__ask")
        assert "asked for input more than 10 times" in str(outcome.error)
        assert len(person.asked) == 10


def told(journal: Path) -> list[dict[str, Any]]:
    """Return every message that the server received."""
    return [json.loads(line) for line in lines_of(journal)]


def capabilities_told(journal: Path) -> Any:
    """Return what the server was told the client can do, in whichever way."""
    for message in told(journal):
        params = message.get("params") or {}
        if message.get("method") == "initialize":
            return params["capabilities"]
        meta = params.get("_meta") or {}
        if message.get("method") == "tools/call":
            return meta["io.modelcontextprotocol/clientCapabilities"]
    raise AssertionError("the server was told nothing")
