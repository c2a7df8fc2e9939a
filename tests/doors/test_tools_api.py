"""The tools API: what a client token's task may use, over HTTP, and how it is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bascule.asgi.guard import GuardedApp, open_routes
from bascule.audit.metrics import Metrics
from bascule.auth.identity import Principal
from bascule.doors.health import health_of, health_routes
from bascule.errors import RemoteError, ServerUnavailable, SessionRefused
from bascule.model.role import Role
from tests.asgi.caller import Answer, ask, http_scope, make_tokens, raw_headers
from tests.doors.door import TASKS, Door
from tests.node.fakes import Doorman, text
from tests.waits import SOON_SECONDS


@pytest.fixture
def door() -> Door:
    return Door()


async def explained(door: Door, headers: dict[str, str], query: str) -> Answer:
    return await door.get(f"/api/v1/tools/explain?{query}", headers)


# --- tools of the caller's own


@pytest.mark.requirement("hostcalls:own-tools:audit")
async def test_a_client_has_calls_of_its_own_tools_written_down(door: Door):
    told = {"name": "count", "arguments": {"text": "secret"}, "output_bytes": 4, "duration_ms": 1.5}
    answer = await door.own(await door.token(), told)
    assert (answer.status, answer.json["revision"]) == (200, 1)
    event = door.world.ledger.last
    assert answer.json["request_id"] == event.request_id
    assert (event.server_id, event.tool_name, event.layer) == ("", "count", "caller")
    assert (event.caller, event.task_id, event.status) == ("alice", "writer", "ok")
    assert (event.output_bytes, event.duration_ms) == (4, 1.5)
    assert event.arguments == {"text": "string(6)"}
    assert event.token_id


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "x" * 513},
        {"name": "count", "code": "no_such_code"},
        {"name": "count", "duration_ms": -1},
        {"name": "count", "output_bytes": 10**12},
        {"name": "count", "arguments": [1]},
        {"name": "count", "server": "fs"},
        {},
    ],
)
async def test_what_makes_no_sense_of_an_own_tool_is_refused(door: Door, wrong: Any):
    answer = await door.own(await door.token(), wrong)
    assert (answer.status, answer.json["error"]["code"]) == (422, "invalid_record")
    assert door.world.ledger.calls() == []


async def test_only_clients_have_own_tools(door: Door):
    told = {"name": "count"}
    assert (await door.own(await door.token(role="admin"), told)).status == 403
    assert (await door.own({}, told)).status == 401
    assert (await door.own(await door.token(), told, query="task=other")).status == 400
    assert door.world.ledger.calls() == []


# --- listing


@pytest.mark.requirement("admin:tools:list")
async def test_a_client_sees_the_tools_of_its_task_and_no_others(door: Door):
    answer = await ask(door.app, "GET", "/api/v1/tools", await door.token("reader"))
    [tool] = answer.json["tools"]
    assert (tool["name"], tool["server"], tool["tool"]) == ("mcp__fs__read", "fs", "read")
    assert tool["description"] == "The read tool."
    assert tool["input_schema"]["type"] == "object"
    assert answer.json["revision"] == 1


async def test_a_server_that_cannot_list_is_a_warning(door: Door):
    door.world.caller.fails("fs", ServerUnavailable("it is down"))
    answer = await ask(door.app, "GET", "/api/v1/tools", await door.token())
    assert (answer.status, answer.json["tools"]) == (200, [])
    assert "it is down" in answer.json["warnings"][0]


async def test_a_narrowing_in_the_query_is_refused_not_dropped(door: Door):
    headers = await door.token()
    for query in ("enabled=false", "tool_denylist=read", "mcp.enabled=false", "Explain=true"):
        answer = await door.get(f"/api/v1/tools?{query}", headers)
        assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_request")
        body = {"name": "mcp__fs__read", "arguments": {"text": "x"}}
        answer = await door.call(headers, body, query=query)
        assert answer.status == 400
    assert not door.world.sent


# --- calling


@pytest.mark.requirement("admin:tools:call")
async def test_a_call_answers_with_the_whole_outcome(door: Door):
    door.world.caller.answers("read", text("hello", structuredContent={"n": 1}))
    answer = await door.call(
        await door.token(), {"name": "mcp__fs__read", "arguments": {"text": "x"}}
    )
    assert answer.status == 200
    assert answer.json == {
        "ok": True,
        "text": "hello",
        "structured": {"n": 1},
        "content": [{"type": "text", "text": "hello"}],
        "error": None,
        "truncated": None,
        "request_id": answer.json["request_id"],
        "revision": 1,
    }
    assert answer.json["request_id"]
    assert [sent.payload for sent in door.world.sent] == [b'{"text":"x"}']


@pytest.mark.parametrize(
    ("name", "arguments", "status", "code"),
    [
        ("mcp__fs__write", {"count": "many"}, 422, "mcp_invalid_arguments"),
        ("mcp__fs__missing", {}, 422, "mcp_invalid_arguments"),
        ("mcp__other__read", {}, 422, "mcp_invalid_arguments"),
    ],
)
async def test_a_refused_call_has_the_status_of_its_code(
    door: Door, name: str, arguments: Any, status: int, code: str
):
    answer = await door.call(await door.token(), {"name": name, "arguments": arguments})
    assert (answer.status, answer.code, answer.json["ok"]) == (status, code, False)
    assert door.world.sent == []


async def test_a_tools_own_failure_is_an_answer(door: Door):
    door.world.caller.answers("read", RemoteError(-32000, "no such file"))
    answer = await door.call(await door.token(), {"name": "fs/read"})
    assert (answer.status, answer.code) == (200, "mcp_tool_error")


async def test_a_call_that_needs_approval_does_not_run(door: Door):
    answer = await door.call(await door.token(), {"name": "fs/delete"})
    assert (answer.status, answer.code) == (409, "mcp_approval_required")
    assert door.world.sent == []


@pytest.mark.requirement("record:call-request:fields")
async def test_a_call_request_carries_its_target_arguments_and_limits(door: Door):
    door.world.caller.answers("read", text("x" * 1000))
    body = {
        "name": "fs/read",
        "arguments": {"text": "abc"},
        "timeout_ms": 1500,
        "max_output_bytes": 40,
    }
    answer = await door.call(await door.token(), body)
    [sent] = door.world.sent
    assert (sent.server, sent.tool, sent.payload) == ("fs", "read", b'{"text":"abc"}')
    assert 0 < sent.timeout <= 1.5
    assert answer.json["truncated"]["total"] == 1000
    assert answer.json["truncated"]["shown"] <= 40
    for arguments in ([], "{}", 1):
        refused = await door.call(await door.token(), {**body, "arguments": arguments})
        assert refused.status in {400, 422}
    assert len(door.world.sent) == 1


@pytest.mark.requirement("budgets:request-output")
@pytest.mark.parametrize(
    ("more", "headers"),
    [
        ({"max_output_bytes": 40}, {}),
        ({"max_tool_output_bytes": 40}, {}),
        ({"max_output_bytes": 4000, "max_tool_output_bytes": 40}, {}),
        ({}, {"X-Bascule-Max-Tool-Output-Bytes": "40"}),
        ({"max_tool_output_bytes": 4000}, {"X-Bascule-Max-Tool-Output-Bytes": "40"}),
    ],
)
async def test_a_caller_lowers_what_a_tool_may_say(
    door: Door, more: dict[str, int], headers: dict[str, str]
):
    door.world.caller.answers("read", text("x" * 1000))
    sent = {**await door.token(), **headers}
    answer = await door.call(sent, {"name": "fs/read", **more})
    assert (answer.status, answer.code) == (200, "mcp_output_too_large")
    assert answer.json["truncated"]["shown"] <= 40


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({}, 422, "name"),
        ({"name": 3}, 422, "name"),
        ({"name": ""}, 422, "name"),
        ({"name": "fs/read", "arguments": []}, 422, "arguments"),
        ({"name": "fs/read", "timeout_ms": 0}, 422, "timeout_ms"),
        ({"name": "fs/read", "timeout": 5}, 422, "timeout"),
        ({"name": "fs/read", "idle_timeout_ms": 0}, 422, "idle_timeout_ms"),
        ({"name": "fs/read", "max_output_bytes": -1}, 422, "max_output_bytes"),
        ({"name": "fs/read", "max_tool_output_bytes": 0}, 422, "max_tool_output_bytes"),
        (b'{"name": "fs/read", "name": "fs/write"}', 400, "name"),
        (b"nonsense", 400, "JSON"),
    ],
)
async def test_a_malformed_call_names_its_problem_and_sends_nothing(
    door: Door, body: Any, status: int, word: str
):
    answer = await door.call(await door.token(), body)
    assert answer.status == status
    assert word in answer.body.decode()
    assert door.world.sent == []


async def test_a_caller_who_hangs_up_ends_the_call(door: Door):
    doorman = Doorman()
    door.world.caller.answers("read", doorman)
    gone = asyncio.Event()
    messages = [{"type": "http.request", "body": b'{"name": "fs/read"}', "more_body": False}]
    headers = {"Content-Type": "application/json", "Content-Length": "19"}
    scope = http_scope("POST", "/api/v1/tools/call", raw_headers({**await door.token(), **headers}))

    async def receive() -> Any:
        if messages:
            return messages.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        pytest.fail(f"nobody is there to read {message}")

    async with asyncio.timeout(SOON_SECONDS):
        request = asyncio.create_task(door.app(scope, receive, send))
        await doorman.next()
        gone.set()
        await request
    assert doorman.inside == 0


# --- explaining


@pytest.mark.requirement("admin:tools:explain")
async def test_an_explanation_names_layer_and_reason(door: Door):
    answer = await explained(door, await door.token("reader"), "name=mcp__fs__write")
    assert answer.status == 200
    assert (answer.json["allowed"], answer.json["layer"]) == (False, "task")
    assert answer.json["meaning"]


async def test_an_explanation_needs_a_name(door: Door):
    assert (await explained(door, await door.token(), "")).status == 400


# --- who may


@pytest.mark.parametrize("role", ["admin", "operator", "approver", "viewer", "node"])
async def test_tools_are_for_client_tokens_alone(door: Door, role: Role):
    answer = await door.call(await door.token(role=role), {"name": "fs/read"})
    assert (answer.status, door.world.sent) == (403, [])


async def test_nobody_comes_in_without_a_token(door: Door):
    assert open_routes(GuardedApp(door.routes, door.tokens)) == ()
    assert (await door.call({}, {"name": "fs/read"})).status == 401
    assert (await ask(door.app, "GET", "/api/v1/identity")).status == 401


@pytest.mark.requirement("policy:task-required:network")
async def test_a_network_caller_without_a_task_opens_no_session(door: Door):
    nobody = Principal("alice", "client", None, "tok-1")
    with pytest.raises(SessionRefused):
        async with door.sessions.of(nobody):
            pass
    assert len(door.sessions) == 0


async def test_a_task_that_is_not_there_is_refused_without_naming_others(door: Door):
    answer = await door.call(await door.token("missing"), {"name": "fs/read"})
    assert (answer.status, answer.code) == (403, "session_refused")
    assert "writer" not in answer.body.decode()


async def test_a_task_without_mcp_has_no_tools(door: Door):
    answer = await door.call(await door.token("off"), {"name": "fs/read"})
    assert (answer.status, door.world.sent) == (403, [])


# --- sessions


async def test_requests_of_a_token_share_a_session_and_tokens_do_not(door: Door):
    alice, other = await door.token(), await door.token()
    for headers in (alice, alice, other):
        await door.call(headers, {"name": "fs/read"})
    first, second, third = (sent.session for sent in door.world.sent)
    assert first == second != third


async def test_an_idle_session_ends_and_the_next_call_has_a_new_one(door: Door):
    headers = await door.token()
    await door.call(headers, {"name": "fs/read"})
    await door.clock.advance(599)
    await door.sessions.sweep()
    assert len(door.sessions) == 1
    await door.clock.advance(1)
    await door.sessions.sweep()
    assert len(door.sessions) == 0
    assert door.world.caller.released == [door.world.sent[0].session]
    assert (await door.call(headers, {"name": "fs/read"})).status == 200


async def test_a_session_in_use_is_not_idle(door: Door):
    doorman = Doorman()
    door.world.caller.answers("read", doorman)
    calling = asyncio.create_task(door.call(await door.token(), {"name": "fs/read"}))
    let_go = await doorman.next()
    await door.clock.advance(10_000)
    await door.sessions.sweep()
    let_go.set()
    assert (await calling).status == 200
    assert len(door.sessions) == 1


async def test_a_revoked_token_loses_its_session(door: Door):
    headers = await door.token()
    await door.call(headers, {"name": "fs/read"})
    [record] = await door.tokens.records()
    await door.tokens.revoke(record.id)
    assert (await door.call(headers, {"name": "fs/read"})).status == 401
    await door.sessions.sweep()
    assert (len(door.sessions), len(door.world.caller.released)) == (0, 1)


async def test_a_session_follows_its_task(door: Door):
    headers = await door.token()
    assert (await door.call(headers, {"name": "fs/write"})).status == 200
    door.world.apply(tasks={**TASKS, "writer": TASKS["reader"]})
    answer = await door.call(headers, {"name": "fs/write"})
    assert (answer.status, answer.json["revision"]) == (403, 2)


# --- health


@pytest.mark.requirement("observability:healthz", "observability:readiness-uncoupled")
async def test_a_server_that_is_down_shows_in_health_and_the_process_stays_ready():
    states = ["connected", "down", "connected"]
    routes = health_routes(lambda: health_of(7, states, following=True), Metrics())
    app = GuardedApp(routes, make_tokens())
    assert (await ask(app, "GET", "/healthz")).json == {
        "status": "degraded",
        "revision": 7,
        "servers": {"connected": 2, "down": 1},
        "reasons": {"servers_unwell": "1 of 3 servers are not well"},
    }
    assert (await ask(app, "GET", "/readyz")).status == 200
    states.remove("down")
    assert (await ask(app, "GET", "/healthz")).json["status"] == "ok"


@pytest.mark.requirement("observability:readyz:store")
async def test_a_process_whose_store_refuses_writes_is_not_ready_and_says_why():
    refusals: list[str | None] = ["disk full", None]
    well = health_of(1, [], following=True)
    app = GuardedApp(health_routes(lambda: well, Metrics(), lambda: refusals.pop(0)), make_tokens())
    answer = await ask(app, "GET", "/readyz")
    assert (answer.status, answer.code) == (503, "store_unavailable")
    assert answer.header("retry-after") == "2"
    assert "disk full" in answer.json["error"]["message"]
    assert (await ask(app, "GET", "/readyz")).status == 200


async def test_a_node_that_cannot_follow_is_degraded():
    found = health_of(7, ["connected"], following=False)
    assert (found.status, [*found.reasons]) == ("degraded", ["not_following"])


@pytest.mark.requirement("observability:degraded")
async def test_what_is_wrong_is_said_in_health_and_counted_in_the_metrics(door: Door):
    troubles = {"registry_unwritable": "PostgreSQL at db.internal is away"}
    routes = health_routes(
        lambda: health_of(7, ["connected"], following=True, troubles=troubles), Metrics()
    )
    app = GuardedApp(routes, door.tokens)
    token = await door.token(role="viewer")
    answer = (await ask(app, "GET", "/healthz", token)).json
    assert (answer["status"], answer["reasons"]) == ("degraded", troubles)
    figures = (await ask(app, "GET", "/metrics", token)).body
    assert b'mcp_degraded{reason="registry_unwritable"} 1.0' in figures
    assert b"\nmcp_registry_revision 7.0\n" in figures
    assert (await ask(app, "GET", "/readyz")).status == 200
    troubles.clear()
    assert (await ask(app, "GET", "/healthz")).json["status"] == "ok"
    assert b"mcp_degraded{" not in (await ask(app, "GET", "/metrics", token)).body


@pytest.mark.requirement("observability:degraded:open")
async def test_without_a_token_health_says_the_kind_of_trouble_and_names_nothing(door: Door):
    codes = ("registry_unwritable", "ledger_unwritable", "ledger_behind", "files_differ")
    codes += ("backends_differ", "new")
    troubles: dict[str, str] = dict.fromkeys(codes, "of db.internal, /srv/data and replica 'b'")
    found = health_of(7, ["down"], following=False, troubles=troubles)
    app = GuardedApp(health_routes(lambda: found, Metrics()), door.tokens)
    for headers in ({}, await door.token()):
        told = (await ask(app, "GET", "/healthz", headers)).json
        assert (told["status"], set(told["reasons"])) == ("degraded", set(found.reasons))
        assert told["reasons"]["registry_unwritable"] == "the registry cannot be written to"
        for words in told["reasons"].values():
            assert words
            assert not any(name in words for name in ("db.internal", "/srv", "'b'"))
    for role in ("viewer", "admin"):
        told = (await ask(app, "GET", "/healthz", await door.token(role=role))).json
        assert told["reasons"] == found.reasons


async def test_metrics_need_a_token(door: Door):
    app = GuardedApp(
        health_routes(lambda: health_of(1, [], following=True), Metrics()), door.tokens
    )
    assert (await ask(app, "GET", "/metrics")).status == 401
    answer = await ask(app, "GET", "/metrics", await door.token(role="viewer"))
    assert answer.status == 200
    assert b"mcp_tool_call_total" in answer.body
