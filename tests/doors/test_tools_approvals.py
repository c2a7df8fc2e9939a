"""Approval at the tools API: a call says what it waits for, waits if asked, and runs once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from bascule.asgi.serve import Serving
from bascule.audit.approval_settings import ApprovalSettings
from bascule.audit.approvals import Approvals, MemoryStore
from bascule.client.http import ApiClient
from bascule.clock import SYSTEM_CLOCK, seconds_of
from bascule.model.approval import ApprovalRequest, Waiting
from bascule.testing.clock import FakeClock
from tests.doors.asking import asked, decided
from tests.doors.door import Door
from tests.node.fakes import text
from tests.waits import SOON_SECONDS, until

CALL = "/api/v1/tools/call"
DELETE: dict[str, Any] = {"name": "fs/delete", "arguments": {"text": "x"}}


@pytest.fixture
async def approvals() -> AsyncIterator[Approvals]:
    approvals = Approvals(MemoryStore())
    yield approvals
    await approvals.close()


@pytest.fixture
def door(approvals: Approvals) -> Door:
    door = Door(approvals=approvals)
    door.world.caller.answers("delete", text("gone"))
    return door


# --- a call that comes back


@pytest.mark.requirement("approval:network", "approval:end-to-end")
async def test_a_call_comes_back_with_the_question_and_is_made_once_when_that_is_approved(
    door: Door, approvals: Approvals
):
    headers = await door.token()
    first = await door.call(headers, DELETE)
    assert (first.status, first.code) == (409, "mcp_approval_required")
    question = await asked(approvals)
    details = first.json["error"]["details"]
    assert details["approval_id"] == question.id
    assert question.id in first.json["error"]["message"]
    assert details["expires_at"].endswith("Z")
    assert seconds_of(details["expires_at"]) == pytest.approx(question.expires_at, abs=0.01)
    again = await door.call(headers, DELETE)
    assert again.json["error"]["details"] == details
    assert door.world.sent == []
    await decided(approvals)
    done = await door.call(headers, DELETE)
    assert (done.status, done.json["text"]) == (200, "gone")
    third = await door.call(headers, DELETE)
    assert third.status == 409
    assert third.json["error"]["details"]["approval_id"] != question.id
    assert len(door.world.sent) == 1


async def test_other_arguments_are_another_question(door: Door, approvals: Approvals):
    headers = await door.token()
    await door.call(headers, DELETE)
    approved = await decided(approvals)
    other = await door.call(headers, {**DELETE, "arguments": {"text": "y"}})
    assert other.status == 409
    assert other.json["error"]["details"]["approval_id"] != approved.id
    assert door.world.sent == []


async def test_a_denial_answers_the_same_call_with_its_reason(door: Door, approvals: Approvals):
    headers = await door.token()
    await door.call(headers, DELETE)
    denied = await decided(approvals, "deny", "not today")
    answer = await door.call(headers, DELETE)
    assert (answer.status, answer.code) == (403, "mcp_approval_denied")
    assert answer.json["error"]["details"] == {"approval_id": denied.id}
    assert "not today" in answer.json["error"]["message"]


async def test_an_approval_is_used_by_its_id_for_its_own_call_alone(
    door: Door, approvals: Approvals
):
    headers, stranger = await door.token(), await door.token()
    await door.call(headers, DELETE)
    id = (await decided(approvals)).id
    stolen = await door.call(stranger, {**DELETE, "approval_id": id})
    unknown = await door.call(headers, {**DELETE, "approval_id": "apr-none"})
    assert stolen.json["error"]["message"] == unknown.json["error"]["message"]
    assert (stolen.status, unknown.status) == (404, 404)
    assert door.world.sent == []
    assert (await door.call(headers, {**DELETE, "approval_id": id})).status == 200
    used = await door.call(headers, {**DELETE, "approval_id": id})
    assert (used.status, used.code) == (502, "mcp_outcome_unknown")
    assert len(door.world.sent) == 1


# --- a call that waits


async def test_a_call_waits_as_long_as_it_says(door: Door, approvals: Approvals):
    headers = await door.token()
    body = {**DELETE, "approval_wait_ms": int(SOON_SECONDS * 1000)}
    waiting = asyncio.ensure_future(door.call(headers, body))
    await decided(approvals)
    assert (await waiting).status == 200
    late = await door.call(headers, {**DELETE, "approval_wait_ms": 1})
    assert (late.status, late.code) == (409, "mcp_approval_required")
    assert (await asked(approvals)).id == late.json["error"]["details"]["approval_id"]


@pytest.mark.parametrize("wait", [-1, 600_001, 1.5, "60", True, []])
async def test_a_wait_that_cannot_be_is_refused_by_its_name(door: Door, wait: object):
    answer = await door.call(await door.token(), {**DELETE, "approval_wait_ms": wait})
    assert (answer.status, answer.code) == (422, "invalid_record")
    assert "approval_wait_ms" in json.dumps(answer.json["error"])


@pytest.mark.parametrize("id", ["", "a" * 65, 7])
async def test_an_id_that_cannot_be_one_is_refused_by_its_name(door: Door, id: object):
    answer = await door.call(await door.token(), {**DELETE, "approval_id": id})
    assert answer.status == 422
    assert "approval_id" in json.dumps(answer.json["error"])


async def events(
    api: ApiClient, body: dict[str, Any], heard: list[tuple[str | None, Any]]
) -> list[str | None]:
    stream = api.events(CALL, method="POST", body=body, seconds=SOON_SECONDS)
    async with aclosing(stream):
        async for event in stream:
            heard += [(event.event, json.loads(event.data))]
    return [name for name, _ in heard]


@pytest.mark.requirement("approval:network:wait")
async def test_a_stream_tells_first_what_it_waits_for(door: Door, approvals: Approvals):
    heard: list[tuple[str | None, Any]] = []
    async with Serving(door.app) as server, ApiClient(server.url, await door.minted()) as api:
        at_once = await events(api, DELETE, [])
        body = {**DELETE, "approval_wait_ms": 60_000}
        streaming = asyncio.ensure_future(events(api, body, heard))
        await until(lambda: heard)
        question = await decided(approvals)
        names = await streaming
    assert at_once == ["outcome"]
    assert names == ["approval", "outcome"]
    told = heard[0][1]
    assert told["approval_id"] == question.id
    assert set(told) == {"approval_id", "expires_at"}
    assert seconds_of(told["expires_at"]) > SYSTEM_CLOCK.now()
    assert heard[1][1]["text"] == "gone"


@pytest.mark.requirement("approval:network:wait")
@pytest.mark.parametrize("streaming", [False, True])
async def test_who_hangs_up_while_it_waits_takes_the_question_back(
    door: Door, approvals: Approvals, streaming: bool
):
    body = {**DELETE, "approval_wait_ms": 600_000}
    async with Serving(door.app) as server, ApiClient(server.url, await door.minted()) as api:
        work = events(api, body, []) if streaming else api.request("POST", CALL, body=body)
        waiting = asyncio.ensure_future(work)
        question = await asked(approvals)
        waiting.cancel()
        await asyncio.wait([waiting])
        async with asyncio.timeout(SOON_SECONDS):
            settled = await approvals.settled(question.id, None)
    assert (settled.state, settled.reason) == ("withdrawn", "whoever asked has hung up")
    assert door.world.sent == []


async def test_a_question_that_others_have_asked_stays_when_one_hangs_up(
    door: Door, approvals: Approvals
):
    async with Serving(door.app) as server, ApiClient(server.url, await door.minted()) as api:
        waits = {**DELETE, "approval_wait_ms": 60_000}
        staying = asyncio.ensure_future(api.request("POST", CALL, body=waits))
        await asked(approvals)
        heard: list[tuple[str | None, Any]] = []
        leaving = asyncio.ensure_future(events(api, waits, heard))
        await until(lambda: heard)
        leaving.cancel()
        await asyncio.wait([leaving])
        await until(lambda: "cancelled" in door.world.ledger.trace)
        await decided(approvals)
        assert (await staying).status == 200
    assert len(door.world.sent) == 1


# --- asking what became of it


async def seen(door: Door, id: str, headers: dict[str, str], query: str = "") -> Any:
    return await door.get(f"/api/v1/approvals/{id}{query}", headers)


async def test_whoever_asked_sees_what_became_of_it(door: Door, approvals: Approvals):
    headers = await door.token()
    id = (await door.call(headers, DELETE)).json["error"]["details"]["approval_id"]
    shown = (await seen(door, id, headers)).json
    assert (shown["id"], shown["state"], shown["decided"]) == (id, "pending", None)
    assert (shown["server"], shown["tool"]) == ("fs", "delete")
    assert set(shown) == {"id", "state", "expires_at", "server", "tool", "reason", "decided"}
    waiting = asyncio.ensure_future(seen(door, id, headers, "?wait_ms=60000"))
    await decided(approvals, "deny", "not today")
    shown = (await waiting).json
    assert (shown["state"], shown["reason"]) == ("denied", "not today")
    assert shown["decided"].keys() == {"by", "at", "reason"}
    assert (shown["decided"]["by"], shown["decided"]["reason"]) == ("bob", "not today")


@pytest.mark.requirement("approval:network:asker")
async def test_to_everybody_else_a_question_does_not_exist(door: Door):
    headers, stranger = await door.token(), await door.token()
    id = (await door.call(headers, DELETE)).json["error"]["details"]["approval_id"]
    theirs = await seen(door, id, stranger)
    unknown = await seen(door, "apr-none", stranger)
    assert (theirs.status, theirs.body) == (404, unknown.body)
    assert (await seen(door, id, await door.token(role="approver"))).status == 403
    assert (await seen(Door(), id, headers)).status in {401, 404}


async def test_a_question_whose_time_is_up_says_so_to_whoever_asked():
    clock = FakeClock()
    approvals = Approvals(MemoryStore(clock), clock=clock)
    door = Door(approvals=approvals)
    headers = await door.token()
    id = (await door.call(headers, DELETE)).json["error"]["details"]["approval_id"]
    await clock.advance(approvals.settings.decide_seconds)
    assert (await seen(door, id, headers)).json["state"] == "expired"


async def test_whoever_lost_their_token_while_waiting_is_told_nothing(
    door: Door, approvals: Approvals
):
    headers = await door.token()
    id = (await door.call(headers, DELETE)).json["error"]["details"]["approval_id"]
    waiting = asyncio.ensure_future(seen(door, id, headers, "?wait_ms=60000"))
    await asyncio.wait([waiting], timeout=0)
    [token] = await door.tokens.records()
    await door.tokens.revoke(token.id)
    await decided(approvals)
    assert (await waiting).status == 401


@pytest.mark.parametrize("query", ["wait_ms=600001", "wait_ms=-1", "wait_ms=x", "wait=1"])
async def test_a_wait_for_an_answer_has_bounds(door: Door, query: str):
    headers = await door.token()
    id = (await door.call(headers, DELETE)).json["error"]["details"]["approval_id"]
    answer = await seen(door, id, headers, f"?{query}")
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert query.partition("=")[0] in answer.json["error"]["message"]


async def test_a_process_without_approvals_knows_none():
    door = Door()
    headers = await door.token()
    refused = await door.call(headers, DELETE)
    assert "details" not in refused.json["error"]
    assert (await seen(door, "apr-1", headers)).status == 404


async def test_too_many_questions_of_one_token_are_a_budget():
    approvals = Approvals(MemoryStore(), ApprovalSettings(max_pending=1))
    door = Door(approvals=approvals)
    headers = await door.token()
    await door.call(headers, DELETE)
    answer = await door.call(headers, {**DELETE, "arguments": {"text": "y"}})
    assert (answer.status, answer.code) == (429, "mcp_budget_exceeded")
    assert answer.header("retry-after") == "60"


async def test_a_question_of_another_person_is_not_shown_to_the_same_token(
    door: Door, approvals: Approvals
):
    minted = await door.tokens.mint("alice", "client", task_id="writer")
    headers = {"Authorization": f"Bearer {minted.token}"}
    shown = {
        person: (await seen(door, await asked_for(approvals, minted.record.id, person), headers))
        for person in (None, "alice")
    }
    assert {person: answer.status for person, answer in shown.items()} == {None: 200, "alice": 404}


async def asked_for(approvals: Approvals, token_id: str, person: str | None) -> str:
    """Ask a question of a token for a person, and return its id."""
    request = ApprovalRequest(
        request_id="s-1",
        session_id="s",
        caller="alice",
        task_id="writer",
        server="fs",
        tool="delete",
        arguments={},
        arguments_digest="a",
        definition_digest="d",
        revision=1,
        rule="always",
        token_id=token_id,
        person=person,
    )
    answer = await approvals.ask(request, 0.0)
    assert isinstance(answer, Waiting)
    return str(answer.approval_id)
