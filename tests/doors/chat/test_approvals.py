"""Approvals at the chat door, for OpenAI's client over real HTTP: wait, park, resume, hang up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from bascule.audit.parked_turns import MemoryTurns
from bascule.client.http import ApiClient
from bascule.clock import rfc3339
from bascule.loop.backend import UpstreamFailed
from bascule.loop.budgets import LoopSettings
from bascule.testing.clock import FakeClock
from tests.doors.chat.site import READ, WRITE, Site, serving
from tests.loop.fakes import FakeUpstream, asks, call, says
from tests.loop.parked import AT_ONCE, Desk, asking_server
from tests.node.fakes import Sent, text
from tests.policy.build import server
from tests.waits import SOON_SECONDS, until

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
OWN: Any = {"type": "function", "function": {"name": "own", "parameters": {"type": "object"}}}
Json = dict[str, Any]


class Place:
    """A served site whose tools ask, a client of one token, and who decides."""

    def __init__(self, site: Site, desk: Desk, client: AsyncOpenAI, turns: MemoryTurns) -> None:
        self.site, self.desk, self.client, self.turns = site, desk, client, turns

    async def ask(self, *, stream: bool, messages: list[Any] = HELLO, **more: Any) -> Json:
        """Ask, and return the answer's text, its finish reason and its ``bascule`` object."""
        return await ask(self.client, stream=stream, messages=messages, **more)

    async def resume(self, turn: Json, *, stream: bool, **more: Any) -> Json:
        resume = {"mcp": {"resume": turn["bascule"]["paused"]["resume"]}}
        return await self.ask(stream=stream, extra_body=resume, **more)

    def script(self, *steps: Any) -> FakeUpstream:
        return self.site.script(*steps)

    @property
    def sent(self) -> list[Sent]:
        return self.site.world.sent


async def ask(client: AsyncOpenAI, *, stream: bool, **asked: Any) -> Json:
    chats: Any = client.chat.completions
    if not stream:
        whole = await chats.create(model="m", **asked)
        [choice] = whole.choices
        said = {"text": choice.message.content, "finish": choice.finish_reason, "id": whole.id}
        return {**said, "calls": choice.message.tool_calls, "bascule": whole.bascule, "notes": []}
    chunks = [chunk async for chunk in await chats.create(model="m", stream=True, **asked)]
    choices = [chunk.choices[0] for chunk in chunks]
    notes = [chunk.model_extra["bascule"] for chunk in chunks if "bascule" in chunk.model_extra]
    assert len({chunk.id for chunk in chunks}) == 1
    return {
        "text": "".join(choice.delta.content or "" for choice in choices),
        "finish": choices[-1].finish_reason,
        "id": chunks[0].id,
        "calls": [c for choice in choices for c in choice.delta.tool_calls or ()] or None,
        "bascule": notes[-1],
        "notes": notes[:-1],
    }


@asynccontextmanager
async def place_with(settings: LoopSettings) -> AsyncGenerator[Place, None]:
    desk, turns = Desk(), MemoryTurns()
    records = (asking_server(), server("git"))
    site = Site(settings=settings, records=records, approvals=desk.approvals, parked=turns)
    async with serving(site), site.client() as client:
        site.world.caller.answers("write", text("written"))
        yield Place(site, desk, client.with_options(timeout=SOON_SECONDS), turns)


@pytest.fixture
async def hasty() -> AsyncGenerator[Place, None]:
    """A place where nobody waits."""
    async with place_with(AT_ONCE) as place:
        yield place


@pytest.fixture
async def patient() -> AsyncGenerator[Place, None]:
    """A place where calls wait for somebody."""
    async with place_with(LoopSettings()) as place:
        yield place


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def stream(request: pytest.FixtureRequest) -> bool:
    return request.param


# --- while somebody waits


@pytest.mark.requirement("chat:approval:waits")
async def test_a_call_is_granted_while_its_client_waits(patient: Place, stream: bool):
    patient.script(asks(call(WRITE, {"text": "a"})), says("Done."))
    asking = asyncio.create_task(patient.ask(stream=stream))
    [question] = await patient.desk.asked()
    await patient.desk.decide("approve")
    answer = await asking
    assert (answer["text"], answer["finish"]) == ("Done.", "stop")
    assert (answer["bascule"]["paused"], len(patient.sent)) == (None, 1)
    if stream:
        events = [note["event"] for note in answer["notes"]]
        assert events == ["call_started", "approval_waiting", "call_finished"]
        assert answer["notes"][1] == {
            "event": "approval_waiting",
            "approval_id": question.id,
            "expires_at": rfc3339(question.expires_at),
            "call_id": "c1",
            "name": WRITE,
            "server": "fs",
            "tool": "write",
            "arguments": '{"text": "a"}',
        }


@pytest.mark.requirement("approval:one-pending")
async def test_the_same_call_at_the_tools_api_joins_the_question_and_one_of_them_runs(
    patient: Place,
):
    patient.script(asks(call(WRITE, {"text": "a"})), says("Done."))
    chatting = asyncio.create_task(patient.ask(stream=True))
    [question] = await patient.desk.asked()
    body = {"name": WRITE, "arguments": {"text": "a"}, "approval_wait_ms": 60_000}
    async with ApiClient(patient.site.url, patient.client.api_key) as api:
        events = api.events("/api/v1/tools/call", method="POST", body=body, seconds=SOON_SECONDS)
        waiting = await anext(events)
        assert json.loads(waiting.data)["approval_id"] == question.id
        await patient.desk.decide("approve")
        outcome = json.loads((await anext(events)).data)
        await events.aclose()
    [*_, finished] = (await chatting)["notes"]
    assert len(patient.sent) == 1
    assert {outcome["ok"], finished["status"] == "ok"} == {True, False}


async def test_a_call_is_denied_while_its_client_waits(patient: Place, stream: bool):
    patient.script(asks(call(WRITE)), says("I may not."))
    asking = asyncio.create_task(patient.ask(stream=stream))
    await patient.desk.decide("deny")
    answer = await asking
    assert answer["text"] == "I may not."
    assert answer["bascule"]["calls"][0]["error"] == "mcp_approval_denied"
    assert not patient.sent


@pytest.mark.requirement("chat:approval:withdrawn")
async def test_a_client_that_hangs_up_while_it_waits_withdraws(patient: Place, stream: bool):
    patient.script(asks(call(WRITE)))
    asking = asyncio.create_task(patient.ask(stream=stream))
    await patient.desk.asked()
    asking.cancel()
    await asyncio.wait({asking})
    [withdrawn] = await patient.desk.ended("withdrawn")
    assert "hung up" in withdrawn.reason
    assert not patient.sent
    assert len(patient.turns) == 0


async def test_a_client_whose_time_is_up_withdraws(patient: Place, stream: bool):
    patient.script(asks(call(WRITE)))
    client = patient.client.with_options(timeout=1.0)
    with pytest.raises(openai.APITimeoutError):
        await ask(client, stream=stream, messages=HELLO)
    await patient.desk.ended("withdrawn")


# --- parked and resumed


@pytest.mark.requirement("approval:paused-turn")
async def test_a_turn_is_parked_and_resumed_with_the_same_messages(hasty: Place, stream: bool):
    upstream = hasty.script(asks(call(WRITE, {"text": "a"}), text="Let me."), says("Done."))
    parked = await hasty.ask(stream=stream)
    [question] = await hasty.desk.all("pending")
    assert parked["finish"] == "stop"
    assert parked["calls"] is None
    assert parked["text"].startswith(f"Let me.\n\nWaiting for approval of fs/write ({question.id})")
    assert parked["bascule"]["paused"] == {
        "resume": parked["bascule"]["paused"]["resume"],
        "approvals": [
            {
                "approval_id": question.id,
                "expires_at": rfc3339(question.expires_at),
                "server": "fs",
                "tool": "write",
            }
        ],
    }
    again = await hasty.resume(parked, stream=stream)
    assert again["bascule"]["paused"] == parked["bascule"]["paused"]
    await hasty.desk.decide("approve")
    answer = await hasty.resume(parked, stream=not stream)  # either way, whatever came first
    assert (answer["text"], answer["bascule"]["paused"]) == ("Done.", None)
    assert [one["status"] for one in answer["bascule"]["calls"]] == ["ok"]
    assert [sent.payload for sent in hasty.sent] == [b'{"text":"a"}']
    assert len(upstream.asked) == 2
    assert len(hasty.turns) == 0


async def test_a_denied_call_of_a_parked_turn_is_told_to_the_model(hasty: Place, stream: bool):
    upstream = hasty.script(asks(call(WRITE)), says("I may not."))
    parked = await hasty.ask(stream=stream)
    await hasty.desk.decide("deny")
    answer = await hasty.resume(parked, stream=stream)
    assert answer["text"] == "I may not."
    said = json.loads(upstream.asked[1]["messages"][-1]["content"])
    assert said["error"]["code"] == "mcp_approval_denied"
    assert not hasty.sent


async def test_a_model_that_fails_after_a_resumed_call_is_asked_again_without_the_call(
    hasty: Place, stream: bool
):
    refused = UpstreamFailed("no", status=400)
    hasty.script(asks(call(WRITE)), refused, says("Done."))
    parked = await hasty.ask(stream=stream)
    await hasty.desk.decide("approve")
    with pytest.raises(openai.APIError):
        await hasty.resume(parked, stream=stream)
    answer = await hasty.resume(parked, stream=stream)
    assert (answer["text"], len(hasty.sent)) == ("Done.", 1)


async def test_the_callers_own_calls_of_a_parked_turn_are_handed_back_and_completed(
    hasty: Place, stream: bool
):
    both = asks(call("own", {"x": 1}, "c1"), call(WRITE, None, "c2"))
    upstream = hasty.script(both, says("All done."))
    parked = await hasty.ask(stream=stream, tools=[OWN])
    await hasty.desk.decide("approve")
    answer = await hasty.resume(parked, stream=stream, tools=[OWN])
    assert answer["finish"] == "tool_calls"
    [own] = answer["calls"]
    entry = {"id": own.id, "type": "function", "function": {"name": "own", "arguments": "{}"}}
    history = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [entry]},
        {"role": "tool", "tool_call_id": own.id, "content": "mine"},
    ]
    last = await hasty.ask(stream=stream, messages=history, tools=[OWN])
    assert last["text"] == "All done."
    assert [m["content"] for m in upstream.asked[1]["messages"][2:]] == ["mine", "written"]


async def test_a_turn_with_results_from_before_is_resumed_where_they_are_no_longer_kept(
    stream: bool,
):
    """What a caller could not send of an earlier turn is parked with the later one."""
    desk, turns, clock = Desk(), MemoryTurns(), FakeClock()
    site = Site(
        settings=AT_ONCE,
        clock=clock,
        records=(asking_server(), server("git")),
        approvals=desk.approvals,
        parked=turns,
    )
    async with serving(site), site.client() as client:
        both = asks(call("own", {}, "c1"), call(READ, None, "c2"))
        upstream = site.script(both, asks(call(WRITE, None, "c3")), says("Done."))
        handed = await ask(client, stream=stream, messages=HELLO, tools=[OWN])
        [own] = handed["calls"]
        entry = {"id": own.id, "type": "function", "function": {"name": "own", "arguments": "{}"}}
        history = [
            *HELLO,
            {"role": "assistant", "content": None, "tool_calls": [entry]},
            {"role": "tool", "tool_call_id": own.id, "content": "mine"},
        ]
        parked = await ask(client, stream=stream, messages=history, tools=[OWN])
        await desk.decide("approve")
        await clock.advance(2 * 3600)  # held results are gone; the turn counts by the real clock
        resume = {"mcp": {"resume": parked["bascule"]["paused"]["resume"]}}
        answer = await ask(client, stream=stream, messages=history, tools=[OWN], extra_body=resume)
    assert answer["text"] == "Done."
    assert [m["content"] for m in upstream.asked[2]["messages"][2:4]] == ["mine", "done"]


# --- misuse: nothing runs


@pytest.mark.requirement("chat:approval:misuse")
@pytest.mark.parametrize(
    ("change", "code", "status"),
    [
        ({"messages": [{"role": "user", "content": "hello!"}]}, "wrong_conversation", 409),
        ({"messages": [*HELLO, *HELLO]}, "wrong_conversation", 409),
        ({"messages": [{"role": "system", "content": "hello"}]}, "wrong_conversation", 409),
        ({"tools": [OWN]}, "wrong_conversation", 409),
        ({"extra_body": {"mcp": {"resume": "turn-other"}}}, "not_found", 404),
        ({"extra_body": {"mcp": {"resume": "'; --"}}}, "not_found", 404),
        ({"extra_body": {"mcp": {"resume": ""}}}, "invalid_record", 400),
        ({"extra_body": {"mcp": {"resume": 7}}}, "invalid_record", 400),
        ({"extra_body": {"mcp": {"resume": "x" * 101}}}, "invalid_record", 400),
    ],
)
async def test_a_resume_that_does_not_fit_runs_nothing(
    hasty: Place, stream: bool, change: Json, code: str, status: int
):
    upstream = hasty.script(asks(call(WRITE)), says("Done."))
    parked = await hasty.ask(stream=stream)
    await hasty.desk.decide("approve")
    resume = parked["bascule"]["paused"]["resume"]
    asked: Json = {"extra_body": {"mcp": {"resume": resume}}, **change}
    with pytest.raises(openai.APIStatusError) as refused:
        await hasty.ask(stream=stream, **asked)
    assert (refused.value.status_code, refused.value.code) == (status, code)
    if status != 400:
        assert refused.value.response.headers["x-should-retry"] == "false"
        assert refused.value.param == "mcp.resume"
    assert (len(upstream.asked), len(hasty.sent)) == (1, 0)
    answer = await hasty.resume(parked, stream=stream)  # and nothing is lost
    assert (answer["text"], len(hasty.sent)) == ("Done.", 1)


@pytest.mark.requirement("chat:approval:misuse")
async def test_another_model_or_token_does_not_resume(hasty: Place, stream: bool):
    upstream = hasty.script(asks(call(WRITE)))
    parked = await hasty.ask(stream=stream)
    await hasty.desk.decide("approve")
    resume = {"mcp": {"resume": parked["bascule"]["paused"]["resume"]}}
    chats: Any = hasty.client.chat.completions
    with pytest.raises(openai.ConflictError):
        await chats.create(model="fake/m", messages=HELLO, stream=stream, extra_body=resume)
    for task in ("writer", "reader"):
        async with hasty.site.client(task) as other:
            with pytest.raises(openai.NotFoundError) as refused:
                await ask(other, stream=stream, messages=HELLO, extra_body=resume)
            assert refused.value.code == "not_found"
    assert (len(upstream.asked), len(hasty.sent)) == (1, 0)


@pytest.mark.requirement("chat:approval:misuse")
async def test_a_turn_that_was_used_is_gone(hasty: Place, stream: bool):
    hasty.script(asks(call(WRITE)), says("Done."))
    parked = await hasty.ask(stream=stream)
    await hasty.desk.decide("approve")
    await hasty.resume(parked, stream=stream)
    with pytest.raises(openai.NotFoundError):
        await hasty.resume(parked, stream=stream)
    assert len(hasty.sent) == 1


@pytest.mark.requirement("chat:approval:misuse")
async def test_of_two_who_resume_at_once_one_is_refused(hasty: Place, stream: bool):
    entered, go = asyncio.Event(), asyncio.Event()

    async def slow(_: Sent) -> Json:
        entered.set()
        await go.wait()
        return text("written")

    hasty.site.world.caller.answers("write", slow)
    hasty.script(asks(call(WRITE)), says("Done."))
    parked = await hasty.ask(stream=stream)
    await hasty.desk.decide("approve")
    first = asyncio.create_task(hasty.resume(parked, stream=stream))
    async with asyncio.timeout(SOON_SECONDS):
        await entered.wait()
    with pytest.raises(openai.ConflictError) as refused:
        await hasty.resume(parked, stream=stream)
    assert refused.value.code == "in_use"
    go.set()
    assert (await first)["text"] == "Done."
    assert len(hasty.sent) == 1


@pytest.mark.requirement("chat:approval:once")
async def test_a_client_that_hangs_up_while_a_call_runs_learns_that_its_outcome_is_unknown(
    hasty: Place, stream: bool
):
    entered, left = asyncio.Event(), asyncio.Event()

    async def hang(_: Sent) -> Json:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        raise AssertionError("nobody lets it end")

    hasty.site.world.caller.answers("write", hang)
    upstream = hasty.script(asks(call(WRITE)), says("I do not know."))
    parked = await hasty.ask(stream=stream)
    await hasty.desk.decide("approve")
    resuming = asyncio.create_task(hasty.resume(parked, stream=stream))
    async with asyncio.timeout(SOON_SECONDS):
        await entered.wait()
        resuming.cancel()
        await left.wait()

    async def resumed() -> Json | None:
        try:
            return await hasty.resume(parked, stream=stream)
        except openai.ConflictError:  # the request that was left has not quite ended
            return None

    answer = await until(resumed)
    assert answer is not None
    assert answer["text"] == "I do not know."
    said = json.loads(upstream.asked[1]["messages"][-1]["content"])
    assert said["error"]["code"] == "mcp_outcome_unknown"
    assert len(hasty.sent) == 1


async def test_a_turn_is_not_resumed_while_mcp_is_off(hasty: Place, stream: bool):
    hasty.script(asks(call(WRITE)))
    parked = await hasty.ask(stream=stream)
    resume = parked["bascule"]["paused"]["resume"]
    with pytest.raises(openai.BadRequestError):
        await hasty.ask(stream=stream, extra_body={"mcp": {"resume": resume, "enabled": False}})
    assert not hasty.site.upstream.forwarded
