"""The tools API: narrowing by headers, the sessions behind it, identity, progress, outputs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bascule.auth.identity import ALLOWED
from bascule.model.call import Progress
from bascule.model.role import ROLES, Role
from bascule.wire.sse import SseReader
from tests.asgi.caller import Answer, ask, http_scope, raw_headers
from tests.doors.door import TASKS, Door
from tests.node.fakes import Doorman, Sent, text
from tests.waits import SOON_SECONDS

TOOLS = "/api/v1/tools"


@pytest.fixture
def door() -> Door:
    return Door()


def names(answer: Answer) -> list[str]:
    assert answer.status == 200, answer.body
    return [tool["tool"] for tool in answer.json["tools"]]


def events(answer: Answer) -> list[tuple[str, Any]]:
    assert answer.header("content-type") == "text/event-stream; charset=utf-8"
    return [(event.event, json.loads(event.data)) for event in SseReader().feed(answer.body)]


# --- narrowing


@pytest.mark.parametrize(
    ("headers", "left"),
    [
        ({}, ["delete", "read", "write"]),
        ({"X-Bascule-Tools-Allow": "read, fs/wri*"}, ["read", "write"]),
        ({"X-Bascule-Tools-Allow": ""}, []),
        ({"X-Bascule-Tools-Deny": "delete"}, ["read", "write"]),
        ({"X-Bascule-Tools-Deny": ""}, ["delete", "read", "write"]),
        ({"X-Bascule-Read-Only": "true"}, ["read"]),
        ({"X-Bascule-Servers": "fs"}, ["delete", "read", "write"]),
        ({"X-Bascule-Servers": ""}, []),
        ({"X-Bascule-Enabled": "false"}, []),
    ],
)
async def test_headers_narrow_what_a_request_may_use(
    door: Door, headers: dict[str, str], left: list[str]
):
    token = await door.token()
    assert names(await door.get(TOOLS, {**token, **headers})) == left
    answer = await door.call({**token, **headers}, {"name": "fs/write"})
    assert (answer.status == 200) == ("write" in left)
    assert len(door.world.sent) == ("write" in left)
    why = await door.get(f"{TOOLS}/explain?name=fs/write", {**token, **headers})
    assert why.json["allowed"] == ("write" in left)


async def test_headers_never_widen(door: Door):
    token = await door.token("reader")
    headers = {**token, "X-Bascule-Tools-Allow": "*", "X-Bascule-Servers": "fs"}
    assert names(await door.get(TOOLS, headers)) == ["read"]
    assert (await door.call(headers, {"name": "fs/write"})).status == 403


@pytest.mark.parametrize(
    ("headers", "reason"),
    [({"X-Bascule-Servers": "db"}, "not_allowed"), ({"X-Bascule-Enabled": "true"}, None)],
)
async def test_more_than_the_task_allows_is_refused_with_the_reason(
    door: Door, headers: dict[str, str], reason: str | None
):
    token = await door.token("bound" if reason else "off")
    for answer in (
        await door.get(TOOLS, {**token, **headers}),
        await door.get(f"{TOOLS}/session", {**token, **headers}),
        await door.get(f"{TOOLS}/explain?name=fs/read", {**token, **headers}),
        await door.call({**token, **headers}, {"name": "fs/read"}),
        await door.call({**token, **headers, "Accept": "text/event-stream"}, {"name": "fs/read"}),
    ):
        assert (answer.status, answer.code) == (403, "session_refused")
        assert answer.json["error"]["details"]["reason"] == (reason or "task_disabled")
    assert (len(door.sessions), door.world.sent) == (0, [])


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("X-Bascule-Enabled", "perhaps"),
        ("X-Bascule-Read-Only", ""),
        ("X-Bascule-Tools-Allow", "fs/"),
        ("X-Bascule-Tools-Deny", "100%"),
        ("X-Bascule-Tools-Deny", "%FF"),
        ("X-Bascule-Tools", "read"),
    ],
)
async def test_a_header_that_cannot_be_read_is_named(door: Door, header: str, value: str):
    answer = await door.get(TOOLS, {**await door.token(), header: value})
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert answer.json["error"]["details"]["header"].lower() == header.lower()


# --- sessions


async def test_each_narrowing_has_a_session_of_its_own(door: Door):
    token = await door.token()
    narrow = {**token, "X-Bascule-Read-Only": "true"}
    for headers in (token, narrow, token, narrow):
        assert (await door.call(headers, {"name": "fs/read"})).status == 200
    first, second, third, fourth = (sent.session for sent in door.world.sent)
    assert first == third != second == fourth
    assert len(door.sessions) == 2


async def test_a_token_has_so_many_sessions_and_the_idlest_makes_room():
    door = Door(max_per_person=2)
    token, other = await door.token(), await door.token()
    for narrow in ("a*", "b*", "a*", "c*"):
        await door.clock.advance(1)
        await door.get(TOOLS, {**token, "X-Bascule-Tools-Deny": narrow})
    await door.get(TOOLS, other)
    assert len(door.sessions) == 3
    opened = [event.session_id for event in door.world.ledger.opened()]
    assert door.world.caller.released == [opened[1]]  # b*: a* was used after it


async def test_a_session_in_use_makes_room_for_nobody():
    door = Door(max_per_person=1)
    token, doorman = await door.token(), Doorman()
    door.world.caller.answers("read", doorman)
    calling = asyncio.create_task(door.call(token, {"name": "fs/read"}))
    let_go = await doorman.next()
    answer = await door.get(TOOLS, {**token, "X-Bascule-Read-Only": "true"})
    assert (answer.status, answer.code) == (429, "mcp_budget_exceeded")
    let_go.set()
    assert (await calling).status == 200
    assert (await door.get(TOOLS, {**token, "X-Bascule-Read-Only": "true"})).status == 200


# --- identity


@pytest.mark.parametrize("role", ROLES)
async def test_every_token_may_ask_whose_it_is(door: Door, role: Role):
    answer = await ask(door.app, "GET", "/api/v1/identity", await door.token(role=role))
    task = "writer" if role == "client" else None
    shown = answer.json
    assert set(shown.pop("permissions")) == ALLOWED[role]
    assert (answer.status, shown) == (
        200,
        {
            "name": "alice",
            "role": role,
            "task": task,
            "store_id": "",
            "revision": 1,
            "mark": "",
            "person": None,
            "acts_for_users": False,
            "serves": [],
            "node_url": None,
        },
    )


async def test_a_persons_token_and_one_that_acts_for_people_say_so(door: Door):
    hers = await door.tokens.mint("laptop", "client", task_id="writer", person="alice")
    shown = [
        (await ask(door.app, "GET", "/api/v1/identity", headers)).json
        for headers in ({"Authorization": f"Bearer {hers.token}"}, await door.acting())
    ]
    assert [(one["person"], one["acts_for_users"]) for one in shown] == [
        ("alice", False),
        (None, True),
    ]


# --- what a list may carry besides


async def test_a_list_tells_more_of_a_tool_and_all_of_it_when_asked(door: Door):
    token = await door.token("reader")
    [tool] = (await door.get(TOOLS, token)).json["tools"]
    assert set(tool) == {
        *("name", "description", "input_schema", "server", "tool"),
        *("output_schema", "annotations", "digest"),
    }
    [tool] = (await door.get(f"{TOOLS}?definitions=true", token)).json["tools"]
    assert tool["definition"]["inputSchema"] == tool["input_schema"]


async def test_a_list_explains_everything_when_asked(door: Door):
    token = await door.token("reader")
    assert "explanations" not in (await door.get(TOOLS, token)).json
    explanations = (await door.get(f"{TOOLS}?explain=true", token)).json["explanations"]
    assert {line["name"]: line["reason"] for line in explanations} == {
        "fs": "allowed",
        "mcp__fs__delete": "task_not_allowlisted",
        "mcp__fs__read": "allowed",
        "mcp__fs__write": "task_not_allowlisted",
    }
    assert (await door.get(f"{TOOLS}?explain=perhaps", token)).status == 400


# --- limits and outputs


async def test_a_callers_limits_reach_the_call_and_a_cut_output_can_be_read(door: Door):
    token = await door.token()
    door.world.caller.answers("read", text("x" * 100))
    body = {"name": "fs/read", "max_output_bytes": 20, "idle_timeout_ms": 500}
    cut = (await door.call(token, body)).json
    assert (cut["ok"], cut["error"]["code"]) == (True, "mcp_output_too_large")
    assert (cut["truncated"]["total"], cut["text"]) == (100, "x" * 20)
    path = f"{TOOLS}/output?handle={cut['truncated']['handle']}"
    assert (await door.get(f"{path}&start=90", token)).json["text"] == "x" * 10
    assert (await door.get(f"{path}&start=1&end=3", token)).json["text"] == "xx"
    for query, status in (("&start=-1", 400), ("&end=all", 400), ("&start=1&start=2", 400)):
        assert (await door.get(path + query, token)).status == status
    assert (await door.get(f"{TOOLS}/output", token)).status == 400
    strangers = await door.token()
    assert (await door.get(path, strangers)).status == 404


@pytest.mark.requirement("hygiene:same-at-every-door", "hygiene:leaks:results")
async def test_what_a_large_output_hides_far_from_its_start_is_masked_when_it_is_read(door: Door):
    token, key = await door.token(), "AKIA" + "Q3ZK7WXN5PLM2RTV"
    door.world.caller.answers("read", text("a line\n" * 30_000 + f"{key}\n" + "a line\n" * 30_000))
    cut = (await door.call(token, {"name": "fs/read"})).json
    assert "warnings" not in cut
    path = f"{TOOLS}/output?handle={cut['truncated']['handle']}&start=209_993&end=210_030"
    read = (await door.get(path.replace("_", ""), token)).json["text"]
    assert read == "a line\n[masked:aws-access-key]\na line"


async def test_an_outcome_with_warnings_shows_them(door: Door):
    door.world.caller.answers("read", text("a\u202eb"))
    outcome = (await door.call(await door.token(), {"name": "fs/read"})).json
    assert "harmless" in outcome["warnings"][0]


# --- progress


async def test_a_caller_who_accepts_a_stream_is_told_of_progress(door: Door):
    async def works(sent: Sent) -> Any:
        assert sent.on_progress is not None
        sent.on_progress(Progress(1, 2, "half"))
        sent.on_progress(Progress(2, 2))
        return text("done")

    door.world.caller.answers("read", works)
    headers = {**await door.token(), "Accept": "text/event-stream"}
    first, second, (kind, outcome) = events(await door.call(headers, {"name": "fs/read"}))
    assert first == ("progress", {"progress": 1, "total": 2, "message": "half"})
    assert second == ("progress", {"progress": 2, "total": 2, "message": None})
    assert (kind, outcome["text"]) == ("outcome", "done")


async def test_a_failure_is_an_outcome_in_a_stream_too(door: Door):
    headers = {**await door.token(), "Accept": "text/event-stream"}
    [(kind, outcome)] = events(await door.call(headers, {"name": "fs/missing"}))
    assert (kind, outcome["error"]["code"]) == ("outcome", "mcp_invalid_arguments")


async def test_a_reader_who_is_slow_misses_steps_and_not_the_outcome(door: Door):
    async def works(sent: Sent) -> Any:
        assert sent.on_progress is not None
        for step in range(1000):
            sent.on_progress(Progress(step))
        return text("done")

    door.world.caller.answers("read", works)
    headers = {**await door.token(), "Accept": "text/event-stream"}
    *steps, (kind, _) = events(await door.call(headers, {"name": "fs/read"}))
    assert kind == "outcome"
    assert [step["progress"] for _, step in steps] == list(range(936, 1000))


async def test_a_reader_who_hangs_up_ends_the_call(door: Door):
    doorman = Doorman()
    door.world.caller.answers("read", doorman)
    gone = asyncio.Event()
    messages = [{"type": "http.request", "body": b'{"name": "fs/read"}', "more_body": False}]
    headers = {
        **await door.token(),
        "Content-Type": "application/json",
        "Content-Length": "19",
        "Accept": "text/event-stream",
    }
    scope = http_scope("POST", f"{TOOLS}/call", raw_headers(headers))

    async def receive() -> Any:
        if messages:
            return messages.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        del message

    async with asyncio.timeout(SOON_SECONDS):
        request = asyncio.create_task(door.app(scope, receive, send))
        await doorman.next()
        gone.set()
        await request
    assert doorman.inside == 0


async def test_a_server_that_drains_lets_a_streamed_call_finish(door: Door):
    doorman, draining = Doorman(), asyncio.Event()
    door.world.caller.answers("read", doorman)
    headers = {**await door.token(), "Accept": "text/event-stream"}
    served = door.app

    async def marked(scope: Any, receive: Any, send: Any) -> None:
        await served({**scope, "draining": draining}, receive, send)

    door.app = marked  # pyright: ignore[reportAttributeAccessIssue]
    calling = asyncio.create_task(door.call(headers, {"name": "fs/read"}))
    let_go = await doorman.next()
    draining.set()
    await door.clock.settle()
    let_go.set()
    assert events(await calling)[-1][1]["ok"]


async def test_outputs_are_kept_for_a_token_within_one_bound_whatever_its_narrowing(door: Door):
    token = await door.token()
    handles: list[tuple[dict[str, str], str]] = []
    for number in range(4):
        door.world.caller.answers("read", text("x " * 6 * 1024 * 1024))
        headers = {**token, "X-Bascule-Tools-Deny": f"none-{number}"}
        cut = (await door.call(headers, {"name": "fs/read"})).json
        handles.append((headers, f"{TOOLS}/output?end=3&handle={cut['truncated']['handle']}"))
        await door.clock.advance(1)
    found = [(await door.get(path, headers)).status for headers, path in handles]
    assert found == [404, 404, 200, 200]


@pytest.mark.requirement("call:decide-again")
async def test_a_call_that_waits_for_its_server_is_refused_when_its_token_was_revoked(door: Door):
    token = await door.token()
    assert names(await door.get(TOOLS, token))
    gate = door.world.caller.hold_connecting("fs")
    waiting = asyncio.create_task(door.call(token, {"name": "fs/write"}))
    while "connect" not in door.world.caller.trace:
        await asyncio.wait({waiting}, timeout=0.001)
    (record,) = [each for each in await door.tokens.records() if each.role == "client"]
    assert await door.tokens.revoke(record.id)
    gate.set()
    answer = await waiting
    assert (answer.status, answer.json["error"]["code"]) == (403, "mcp_policy_denied")
    assert (door.world.sent, door.world.ledger.intents()) == ([], [])


@pytest.mark.requirement("people:disabled", "people:unknown")
@pytest.mark.parametrize(
    ("users", "reason"), [({}, "unknown_user"), ({"ann": {"enabled": False}}, "user_disabled")]
)
async def test_whoever_is_switched_off_is_refused_whether_or_not_a_session_is_open(
    door: Door, users: dict[str, Any], reason: str
):
    minted = await door.tokens.mint("ann", "client", task_id="writer", person="ann")
    headers = {"Authorization": f"Bearer {minted.token}"}
    door.world.apply(tasks=TASKS, users={"ann": {}})
    assert (await door.get("/api/v1/tools", headers)).status == 200
    door.world.apply(tasks=TASKS, users=users)
    places = ("tools", "tools/explain?name=fs", "tools/output?handle=x", "approvals/x")
    for path in places:
        answer = await door.get(f"/api/v1/{path}", headers)
        assert (answer.status, answer.code) == (403, "session_refused"), path
        assert answer.json["error"]["details"]["reason"] == reason
    called = await door.call(headers, {"name": "fs/read"})
    assert (called.status, called.code) == (403, "mcp_policy_denied")
    assert called.json["error"]["details"] == {"reason": reason}
