"""The client of the tools API over servers that answer oddly: what is known is what is said."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bascule.client.http import ApiClient, ApiError, Unreachable
from bascule.client.tools import Identity, ToolsClient, identity, wait_ms
from bascule.model.session import SessionRequest
from bascule.node.bridge.opening import Opening
from bascule.node.remote_session import RemoteSession
from bascule.wire.api.tools import MAX_WAIT_MS
from tests.client.peers import answers, peer
from tests.node.fakes import failed, succeeded

OUTCOME: dict[str, Any] = {
    "ok": True,
    "text": "hello",
    "structured": None,
    "content": [{"type": "text", "text": "hello"}],
    "error": None,
    "truncated": None,
    "request_id": "s-1",
    "revision": 7,
}
STREAM = "200 OK\r\nContent-Type: text/event-stream"


def error_of(code: str) -> bytes:
    body = {"error": {"code": code, "message": f"it is {code}", "details": {"reason": "r"}}}
    return json.dumps(body).encode()


def event(name: str, data: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


async def test_whose_token_it_is_may_be_told_with_more_than_is_known():
    body = b'{"name": "n", "role": "someone new", "more": 1}'
    async with peer(answers("200 OK", body)) as server, ApiClient(server.url, "t") as api:
        assert await identity(api) == Identity("n", "someone new")


async def test_a_call_carries_its_narrowing_and_its_token():
    body = json.dumps(OUTCOME).encode()
    async with peer(answers("200 OK", body)) as server, ApiClient(server.url, "t") as api:
        client = ToolsClient(api, SessionRequest(server_ids=("a", "b,c"), read_only=True))
        assert succeeded(await client.call("a/x", {})).text == "hello"
    [head] = server.heads
    assert b"X-Bascule-Servers: a,b%2Cc\r\n" in head
    assert b"X-Bascule-Read-Only: true\r\n" in head
    assert b"Authorization: Bearer t\r\n" in head


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{}",
        b'"hello"',
        json.dumps({**OUTCOME, "text": 3}).encode(),
        json.dumps({**OUTCOME, "error": {"code": "new_code"}}).encode(),
    ],
)
async def test_an_answer_that_is_no_outcome_leaves_the_outcome_unknown(body: bytes):
    async with peer(answers("200 OK", body)) as server, ApiClient(server.url, "t") as api:
        session = RemoteSession(api, Opening())
        failed(await session.call("a/x"), "mcp_outcome_unknown")
        with pytest.raises(Unreachable):
            await session.explanation("a/x")


@pytest.mark.parametrize(
    ("head", "code", "means"),
    [
        ("401 Unauthorized", "unauthenticated", "mcp_policy_denied"),
        ("403 Forbidden", "forbidden", "mcp_policy_denied"),
        ("413 Content Too Large", "body_too_large", "mcp_invalid_arguments"),
        ("422 Unprocessable", "invalid_record", "mcp_invalid_arguments"),
        ("404 Not Found", "not_found", "mcp_unavailable"),
        ("421 Misdirected", "host_refused", "mcp_unavailable"),
        ("429 Too Many", "mcp_budget_exceeded", "mcp_budget_exceeded"),
        ("500 Internal", "internal", "mcp_outcome_unknown"),
        ("503 Unavailable", "store_unavailable", "mcp_outcome_unknown"),
    ],
)
async def test_a_refusal_of_the_server_itself_is_an_outcome(head: str, code: str, means: str):
    async with peer(answers(head, error_of(code))) as server, ApiClient(server.url, "t") as api:
        session = RemoteSession(api, Opening())
        outcome = failed(await session.call("a/x"), means)
        assert outcome.error.message == f"it is {code}"
        assert (outcome.error.details or {})["code"] == code
        assert outcome.request_id.startswith(session.session_id)
        with pytest.raises(ApiError):
            await session.tools()


@pytest.mark.parametrize(
    ("stream", "means"),
    [
        (b"", "mcp_outcome_unknown"),
        (event("progress", {"progress": 1}), "mcp_outcome_unknown"),
        (event("progress", "half"), "mcp_outcome_unknown"),
        (event("outcome", {"ok": True}), "mcp_outcome_unknown"),
        (b"event: outcome\ndata: {\n\n", "mcp_outcome_unknown"),
        (b"event: error\ndata: " + error_of("internal") + b"\n\n", "mcp_outcome_unknown"),
        (b"event: error\ndata: " + error_of("forbidden") + b"\n\n", "mcp_policy_denied"),
    ],
)
async def test_a_stream_without_an_outcome_says_what_is_known(stream: bytes, means: str):
    async with peer(answers(STREAM, stream)) as server, ApiClient(server.url, "t") as api:
        session = RemoteSession(api, Opening())
        failed(await session.call("a/x", on_progress=print), means)
        assert len(server.heads) == 1


async def test_events_that_nobody_knows_are_passed_over():
    stream = event("news", 1) + event("outcome", OUTCOME) + event("outcome", {"late": True})
    async with peer(answers(STREAM, stream)) as server, ApiClient(server.url, "t") as api:
        session = RemoteSession(api, Opening())
        assert succeeded(await session.call("a/x", on_progress=print)).revision == 7


@pytest.mark.parametrize("uptime", [425.13, 426.61, 432.9, 0.0, 1e6])
def test_the_longest_wait_is_asked_for_as_the_server_takes_it(uptime: float):
    ends = uptime + MAX_WAIT_MS / 1000
    assert wait_ms(ends - uptime) == MAX_WAIT_MS
    assert wait_ms(-0.5) == 0
    assert wait_ms(0.0001) == 1
