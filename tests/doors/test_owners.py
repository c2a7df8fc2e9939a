"""Which worker a request names: by the ids in it, and by nothing that only looks like one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bascule.asgi.errors import Refused
from bascule.doors.owners import Ownership, ownership_at
from bascule.model.worker import mark_of, marked_worker, node_of, worker_name
from tests.asgi.caller import http_scope

HEX = "0123456789abcdef01234567"
CHAT = "/v1/chat/completions"


def ownership(path: str) -> Ownership:
    found = ownership_at(path)
    assert found is not None
    return found


def of_head(path: str, query: str = "", **headers: str) -> int | None:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {**http_scope("POST", path, pairs), "query_string": query.encode()}
    return ownership(path).by_head(scope)


def of_chat(**chat: Any) -> int | None:
    return ownership(CHAT).by_body(json.dumps(chat).encode())


def turn(*ids: str) -> dict[str, Any]:
    calls = [{"id": id, "type": "function"} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def test_a_mark_says_which_worker_and_none_says_nobody():
    assert [mark_of(None), mark_of(1), mark_of(64)] == ["", "w1", "w64"]
    assert [marked_worker(id) for id in ("turn-abw7", "turn-ab", "w0", "x12", "w123")] == [
        *(7, None, None, None, None),
    ]
    assert [worker_name("east", None), worker_name("east", 2)] == ["east", "east/2"]
    assert [node_of(name) for name in ("east", "east/2", "a/b")] == ["east", "east", "a/b"]


@pytest.mark.requirement("workers:owned-ids")
@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/mcp/servers/{id}"])
def test_a_session_of_an_mcp_client_is_at_the_worker_behind_its_point(path: str):
    assert of_head(path, mcp_session_id="QUJD.w2") == 2
    assert of_head(path, mcp_session_id="QUJDw2") is None
    assert of_head(path) is None


def test_the_rest_of_an_output_is_at_the_worker_of_its_handle():
    path = "/api/v1/tools/output"
    assert of_head(path, "handle=0a1bw2-out-3&start=0") == 2
    for other in ("handle=0a1b-out-3", "handle=0a1bw2-out-3&handle=0a1bw1-out-3", "x=1", ""):
        assert of_head(path, other) is None
    scope = http_scope("POST", "/mcp", [(b"mcp-name", b"bascule__read_output")])
    assert ownership("/mcp").needs_body(scope)
    assert not ownership("/mcp").needs_body(http_scope("POST", "/mcp", [(b"mcp-name", b"other")]))
    asked = {"params": {"arguments": {"handle": "0a1bw2-out-3"}}}
    assert ownership("/mcp").by_body(json.dumps(asked).encode()) == 2
    for strange in ({}, [], {"params": 1}, {"params": {"arguments": {"handle": 7}}}):
        assert ownership("/mcp").by_body(json.dumps(strange).encode()) is None


@pytest.mark.requirement("workers:owned-ids")
def test_a_chat_is_at_the_worker_of_the_turn_that_goes_on():
    first, last = f"call_bsc{HEX}w1_0", f"call_bsc{HEX}w2_1"
    assert of_chat(messages=[turn(first), turn(last)]) == 2
    assert of_chat(messages=[turn(last), turn("call_1")]) == 2
    assert of_chat(messages=[turn(first)], mcp={"resume": f"turn-{HEX}w3"}) == 3
    assert of_chat(messages=[turn(f"call_bsc{HEX}_0")]) is None


@pytest.mark.parametrize(
    "chat",
    [
        {"messages": [{"role": "tool", "content": f"call_bsc{HEX}w2_0"}]},
        {"messages": f"call_bsc{HEX}w2_0"},
        {"messages": [7, {"tool_calls": 7}, {"tool_calls": [{"id": 7}, 7]}], "x": "turn-"},
        {"mcp": {"resume": 7}, "x": "turn-"},
        {"mcp": "turn-1w2"},
    ],
    ids=str,
)
def test_what_a_chat_says_elsewhere_names_nobody(chat: dict[str, Any]):
    assert of_chat(**chat) is None


def test_a_body_that_cannot_be_read_is_for_whoever_got_it():
    assert ownership(CHAT).by_body(b'{"turn-": ') is None
    assert ownership(CHAT).by_body(b'["turn-"]') is None


@pytest.mark.parametrize("path", ["/metrics", "/api/v1/node", "/api/v1/node/accept"])
def test_a_worker_may_be_asked_for_by_its_number(path: str):
    assert ownership(path).alone
    assert [of_head(path, query) for query in ("worker=2", "", "other=1")] == [2, None, None]
    for strange in ("0", "-1", "65", "100", "x", "1.0", "\u0661"):
        with pytest.raises(Refused, match="worker: must be the number of one"):
            of_head(path, f"worker={strange}")


def test_other_routes_are_everybodys():
    assert [ownership_at(path) for path in ("/api/v1/tools/call", "/v1/models", "/mcps")] == [
        *(None, None, None),
    ]
