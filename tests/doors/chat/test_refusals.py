"""What the chat door refuses: in OpenAI's shape, with an honest status, and nothing executed."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from bascule.loop.backend import UpstreamFailed
from tests.asgi.caller import ask
from tests.doors.chat.site import READ, TASKS, Site
from tests.loop.fakes import asks, call, pieces, says

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
SHAPE = {"message", "type", "param", "code"}
#: What the id of a call looks like whose turn is kept; nobody was given this one.
KEPT_ID = f"call_bsc{'0' * 24}_0"


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": HELLO, **fields}).encode()


@pytest.fixture
def door() -> Site:
    """A door that is not served: requests reach it in this process."""
    return Site()


async def refused(
    site: Site, sent: bytes, task: str | None = "writer", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    """Send what must be refused, before anything was sent or executed."""
    given = {"Content-Type": "application/json", "Content-Length": str(len(sent))}
    if task is not None:
        given["Authorization"] = f"Bearer {await site.token(task)}"
    path = "/v1/chat/completions"
    answer = await ask(site.app, "POST", path, {**given, **(headers or {})}, chunks=[sent])
    error = answer.json["error"]
    assert error.keys() == SHAPE
    assert (site.upstream.asked, site.upstream.forwarded, site.world.sent) == ([], [], [])
    return answer.status, error


def calls(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [call("own", None, one) for one in ids]}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "x"}


def made(**fields: Any) -> dict[str, Any]:
    """Return an assistant's message with one call, parts of which are given."""
    return {"role": "assistant", "tool_calls": [{**call("own"), **fields}]}


def choosing(tools: Any) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools}}


ABSURD_BYTES: list[tuple[bytes, str | None]] = [
    (body()[:-1], None),
    (body() + b"x", None),
    (body() * 2, None),
    (b"\xef\xbb\xbf" + body(), None),
    (b"null", None),
    (b"1", None),
    (b'"model"', None),
    (b'{"model": "m", "messages": [], "seed": 1e999}', None),
    (b'{"model": "m", "user": "\\ud800"}', None),
    (b'{"model": "m\x01"}', None),
    (b"{'model': 'm'}", None),
    (b"model=m&messages=hello", None),
    (b"\x1f\x8b\x08\x00", None),
]
ABSURD_FIELDS: list[tuple[bytes, str | None]] = [
    (body(model=""), "model"),
    (body(model=None), "model"),
    (body(model=["m"]), "model"),
    (body(stream=1), "stream"),
    (body(stream=[]), "stream"),
    (body(stream_options=True), "stream_options"),
    (body(response_format="json"), "response_format"),
    (body(response_format=[]), "response_format"),
    (body(parallel_tool_calls=0), "parallel_tool_calls"),
    (body(n=0), "n"),
    (body(n=-1), "n"),
    (body(n=1.0), "n"),
    (body(n=[1]), "n"),
    (body(functions=[{"name": "own"}]), "functions"),
    (body(function_call="auto"), "function_call"),
    (body(tools={}), "tools"),
    (body(tools=[None]), "tools[0]"),
    (body(tools=[[]]), "tools[0]"),
    (body(tools=[{"type": "function", "function": {"name": ""}}]), "tools[0]"),
    (body(tools=[{"type": "function", "function": {"name": 3}}]), "tools[0]"),
    (body(tools=[{"type": ["function"], "function": {"name": "own"}}]), "tools[0]"),
    (body(tools=[{"type": "function", "function": {"name": "own"}}] * 1025), "tools"),
    (body(tool_choice=1), "tool_choice"),
    (body(tool_choice=True), "tool_choice"),
    (body(tool_choice=""), "tool_choice"),
    (body(tool_choice={}), "tool_choice"),
    (body(tool_choice={"type": ["function"]}), "tool_choice"),
    (body(tool_choice={"type": "function", "function": {"name": 3}}), "tool_choice"),
    (body(tool_choice=choosing("x")), "tool_choice"),
    (body(tool_choice=choosing([1])), "tool_choice"),
    (body(tool_choice=choosing([{"type": "function"}])), "tool_choice"),
]
ABSURD_HISTORIES: list[tuple[bytes, str | None]] = [
    (body(messages={}), "messages"),
    (body(messages=[None]), "messages[0]"),
    (body(messages=[[]]), "messages[0]"),
    (body(messages=[*HELLO, {}]), "messages[1].role"),
    (body(messages=[{"role": None}]), "messages[0].role"),
    (body(messages=[{"role": "user", "content": {}}]), "messages[0].content"),
    (body(messages=[{"role": "user", "content": True}]), "messages[0].content"),
    (body(messages=[result("c1"), calls("c1")]), "messages[0].tool_call_id"),
    (body(messages=[calls("c1"), result("c1"), result("c1")]), "messages[2].tool_call_id"),
    (
        body(messages=[calls("c1"), {**result("c1"), "tool_call_id": []}]),
        "messages[1].tool_call_id",
    ),
    (
        body(messages=[calls("c1"), {**result("c1"), "tool_call_id": {}}]),
        "messages[1].tool_call_id",
    ),
    (body(messages=[calls("c1"), {"role": "tool", "content": "x"}]), "messages[1].tool_call_id"),
    (body(messages=[calls("c1"), calls("c2"), result("c1"), result("c2")]), "messages"),
    (body(messages=[calls("c1", "c1"), result("c1")]), "messages[0].tool_calls"),
    (body(messages=[{"role": "assistant", "tool_calls": {}}]), "messages[0].tool_calls"),
    (body(messages=[{"role": "assistant", "tool_calls": [None]}]), "messages[0].tool_calls"),
    (body(messages=[made(id=None)]), "messages[0].tool_calls"),
    (body(messages=[made(id=["c1"])]), "messages[0].tool_calls"),
    (body(messages=[made(function=None)]), "messages[0].tool_calls"),
    (body(messages=[made(function={"name": "own"})]), "messages[0].tool_calls"),
    (body(messages=[made(function={"name": 3, "arguments": "{}"})]), "messages[0].tool_calls"),
    (body(messages=[made(function={"name": "own", "arguments": {}})]), "messages[0].tool_calls"),
    (body(messages=[calls(KEPT_ID), result(KEPT_ID)]), "messages"),
]


@pytest.mark.requirement("chat:openai-errors")
@pytest.mark.parametrize(
    ("sent", "param"),
    [
        (b"", None),
        (b"nonsense", None),
        (b"[]", None),
        (b'{"model": "m", "model": "n"}', None),
        (b'{"model": "m", "x": NaN}', None),
        (b'{"model":"m","messages":' + b"[" * 100 + b"]" * 100 + b"}", None),
        (b"\xff\xfe", None),
        (b"{}", "model"),
        (body(model=3), "model"),
        (body(messages=None), "messages"),
        (body(messages=[]), "messages"),
        (body(messages="hello"), "messages"),
        (body(messages=["hello"]), "messages[0]"),
        (body(messages=[{"content": "x"}]), "messages[0].role"),
        (body(messages=[{"role": "wizard", "content": "x"}]), "messages[0].role"),
        (body(messages=[{"role": ["user"], "content": "x"}]), "messages[0].role"),
        (body(messages=[{"role": "user", "content": 3}]), "messages[0].content"),
        (body(messages=HELLO * 10_001), "messages"),
        (body(messages=[*HELLO, result("c1")]), "messages[1].tool_call_id"),
        (body(messages=[*HELLO, calls("c1"), result("c2")]), "messages[2].tool_call_id"),
        (body(messages=[*HELLO, calls("c1"), *HELLO]), "messages"),
        (body(messages=[*HELLO, calls("c1", "c2"), result("c1")]), "messages"),
        (body(messages=[{**calls("c1"), "role": "user"}]), "messages[0].tool_calls"),
        (body(messages=[{"role": "assistant", "tool_calls": "x"}]), "messages[0].tool_calls"),
        (body(messages=[{"role": "assistant", "tool_calls": [{}]}]), "messages[0].tool_calls"),
        (body(messages=[{**calls(), "tool_calls": [{"id": "x"}]}]), "messages[0].tool_calls"),
        (body(tools="x"), "tools"),
        (body(tools=[{"type": "function"}]), "tools[0]"),
        (body(tools=["x"]), "tools[0]"),
        (body(tools=[{"type": "function", "function": {"name": READ}}]), "tools"),
        (body(tool_choice="perhaps"), "tool_choice"),
        (body(tool_choice=["auto"]), "tool_choice"),
        (body(tool_choice={"type": "function"}), "tool_choice"),
        (body(tool_choice={"type": "allowed_tools", "allowed_tools": 1}), "tool_choice"),
        (body(stream="yes"), "stream"),
        (body(stream_options=[]), "stream_options"),
        (body(parallel_tool_calls="yes"), "parallel_tool_calls"),
        (body(n=2), "n"),
        (body(n=True), "n"),
        (body(n="1"), "n"),
        (body(mcp=[]), "mcp"),
        (body(mcp={"server_ids": "fs"}), "mcp"),
        (body(mcp={"allowlist": ["read"]}), "mcp"),
        (body(mcp={"show_activity": 1}), "mcp"),
        (body(mcp={"max_iterations": 0}), "mcp"),
        (body(mcp="fs"), "mcp"),
        (body(mcp=True), "mcp"),
        (body(mcp={"enabled": "yes"}), "mcp"),
        (body(mcp={"server_ids": [1]}), "mcp"),
        (body(mcp={"server_ids": {"fs": True}}), "mcp"),
        (body(mcp={"tool_allowlist": ["read", None]}), "mcp"),
        (body(mcp={"tool_denylist": 0}), "mcp"),
        (body(mcp={"read_only": 1}), "mcp"),
        (body(mcp={"max_iterations": True}), "mcp"),
        (body(mcp={"max_iterations": 1.5}), "mcp"),
        (body(mcp={"max_total_tool_calls": -1}), "mcp"),
        (body(mcp={"": 1}), "mcp"),
        (body(mcp={"mcp": {"enabled": True}}), "mcp"),
        *ABSURD_BYTES,
        *ABSURD_FIELDS,
        *ABSURD_HISTORIES,
    ],
)
async def test_what_makes_no_sense_is_a_bad_request(door: Site, sent: bytes, param: str | None):
    status, error = await refused(door, sent)
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert error["param"] == param
    assert error["message"]


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Bascule-Enabled": "perhaps"},
        {"X-Bascule-Tools-Allow": "*/read"},
        {"X-Bascule-Server": "fs"},
        {"X-Bascule-Read-Only": ""},
    ],
)
async def test_headers_that_make_no_sense_are_a_bad_request(door: Site, headers: dict[str, str]):
    status, error = await refused(door, body(), headers=headers)
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert next(iter(headers)).lower() in error["message"].lower()


@pytest.mark.requirement("chat:openai-errors")
async def test_an_unknown_model_is_not_found(door: Site):
    status, error = await refused(door, body(model="other"))
    assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")


async def test_a_body_that_is_too_large_is_refused(door: Site):
    status, error = await refused(door, body(user="x" * (10 * 1024 * 1024)))
    assert (status, error["code"]) == (413, "body_too_large")


@pytest.mark.requirement("chat:openai-errors")
async def test_what_the_guard_refuses_has_the_same_shape(door: Site):
    status, error = await refused(door, body(), task=None)
    assert (status, error["type"], error["code"]) == (
        401,
        "authentication_error",
        "unauthenticated",
    )
    wrong = {"Authorization": "Bearer nonsense"}
    assert (await refused(door, body(), task=None, headers=wrong))[0] == 401
    admin = (await door.tokens.mint("root", "admin")).token
    headers = {"Authorization": f"Bearer {admin}"}
    status, error = await refused(door, body(), task=None, headers=headers)
    assert (status, error["type"]) == (403, "permission_error")
    status, error = await refused(door, body(), headers={"Content-Type": "text/plain"})
    assert (status, error["code"]) == (415, "unsupported_media_type")


async def test_other_routes_keep_our_own_shape(door: Site):

    answer = await ask(door.app, "GET", "/api/v1/tools")
    assert answer.json["error"].keys() == {"code", "message", "details"}


@pytest.mark.requirement("chat:session-params:too-much")
@pytest.mark.parametrize(
    ("task", "sent", "headers"),
    [
        ("writer", body(mcp={"server_ids": ["git"]}), {}),
        ("writer", body(), {"X-Bascule-Servers": "git"}),
        ("off", body(mcp={"enabled": True}), {}),
        ("off", body(), {"X-Bascule-Enabled": "true"}),
        ("nowhere", body(), {}),
    ],
)
async def test_more_than_the_task_allows_is_refused_with_the_reason(
    door: Site, task: str, sent: bytes, headers: dict[str, str]
):
    status, error = await refused(door, sent, task=task, headers=headers)
    assert (status, error["type"]) == (403, "permission_error")
    assert "task" in error["message"]


@pytest.mark.requirement("chat:session-params:too-much")
async def test_a_session_that_its_task_now_refuses_is_refused(site: Site):
    site.script(says("Hi."))
    task = {"enabled": True, "default_server_ids": ["fs"], "allowed_server_ids": ["fs", "git"]}
    site.world.apply(tasks={**TASKS, "writer": task})
    token = {"Authorization": f"Bearer {await site.token()}"}
    sent = body(mcp={"server_ids": ["git"]})
    assert (await site.post(sent, task=None, headers=token))[0] == 200
    site.world.apply(tasks=TASKS)
    assert (await site.post(sent, task=None, headers=token))[0] == 403


@pytest.mark.requirement("chat:task-lists-read-only")
@pytest.mark.parametrize(
    "field",
    [
        "task_tool_allowlist",
        "task_tool_denylist",
        "mcp.task_tool_allowlist",
        "mcp.task_tool_denylist",
        "default_server_ids",
        "allowed_server_ids",
        "task_id",
    ],
)
async def test_a_caller_cannot_set_what_belongs_to_its_task(door: Site, field: str):
    status, error = await refused(door, body(mcp={field: ["*"]}), task="reader")
    assert (status, error["param"]) == (400, "mcp")
    assert field in error["message"]


@pytest.mark.requirement("chat:task-lists-read-only")
@pytest.mark.parametrize(
    ("fields", "headers"),
    [
        ({"mcp": {"tool_allowlist": ["*", "fs/write"]}}, {}),
        ({"mcp": {"tool_allowlist": ["*"], "tool_denylist": []}}, {}),
        ({"tool_allowlist": ["*"], "task": "writer"}, {}),
        ({}, {"X-Bascule-Tools-Allow": "*"}),
    ],
)
async def test_what_a_caller_asks_for_leaves_the_lists_of_its_task(
    door: Site, fields: dict[str, Any], headers: dict[str, str]
):
    door.script(says("Hi."))
    sent = body(**fields)
    given = {
        "Content-Type": "application/json",
        "Content-Length": str(len(sent)),
        "Authorization": f"Bearer {await door.token('reader')}",
    }
    path = "/v1/chat/completions"
    answer = await ask(door.app, "POST", path, given | headers, chunks=[sent])
    offered = [tool["function"]["name"] for one in door.upstream.asked for tool in one["tools"]]
    assert (answer.status, offered) == (200, [READ]), answer.body


@pytest.mark.requirement("chat:tool-choice:forced-outside")
async def test_a_forced_tool_outside_the_effective_set_is_forbidden(door: Site):
    choice = {"type": "function", "function": {"name": "mcp.fs.write"}}
    status, error = await refused(door, body(tool_choice=choice), task="reader")
    assert (status, error["code"]) == (403, "mcp_policy_denied")
    assert "task_not_allowlisted" in error["message"]
    sent = body(tool_choice=choice, stream=True)
    assert (await refused(door, sent, task="reader"))[0] == 403


# --- upstreams in trouble


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("failure", "status", "kind"),
    [
        ({"status": 429, "retry_after": 2.5}, 429, openai.RateLimitError),
        ({"status": 400, "error": {"message": "no such field"}}, 400, openai.BadRequestError),
        ({"status": 401, "error": {"message": "bad key sk-1"}}, 502, openai.InternalServerError),
        ({"status": 500}, 502, openai.InternalServerError),
        ({"status": 503}, 503, openai.InternalServerError),
        ({}, 502, openai.InternalServerError),
        ({"timed_out": True}, 504, openai.InternalServerError),
    ],
)
async def test_an_upstreams_failure_is_told_with_an_honest_status(
    site: Site, stream: bool, failure: Any, status: int, kind: type[openai.APIStatusError]
):
    site.script(UpstreamFailed("it failed", **failure))
    async with site.client() as client:
        with pytest.raises(kind) as caught:
            await client.chat.completions.create(model="m", messages=HELLO, stream=stream)
    answer = caught.value.response
    assert answer.status_code == status
    assert answer.headers.get("retry-after") == ("3" if failure.get("retry_after") else None)
    assert "sk-1" not in answer.text
    assert "fake" in caught.value.message  # whose failure it is
    if status == 429:
        assert caught.value.code == "rate_limit_exceeded"
        assert caught.value.type == "rate_limit_error"
    if status == 400:
        assert "no such field" in caught.value.message


@pytest.mark.parametrize("stream", [False, True])
async def test_a_backends_own_code_for_too_much_is_kept(site: Site, stream: bool):
    own = {"message": "no credit", "type": "tokens", "param": None, "code": "insufficient_quota"}
    site.script(UpstreamFailed("it failed", status=429, error=own))
    async with site.client() as client:
        with pytest.raises(openai.RateLimitError) as caught:
            await client.chat.completions.create(model="m", messages=HELLO, stream=stream)
    assert (caught.value.code, caught.value.type) == ("insufficient_quota", "tokens")
    assert "backend fake: no credit" in caught.value.message


@pytest.mark.requirement("chat:unknown-paths")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/responses"),
        ("GET", "/v1/responses/r_1"),
        ("POST", "/v1/embeddings"),
        ("POST", "/v1/completions"),
        ("POST", "/v1/audio/transcriptions"),
        ("DELETE", "/v1/files/f"),
        ("GET", "/v1"),
        ("GET", "/v1/"),
        ("POST", "/v1/chat/completions/"),
    ],
)
async def test_what_is_not_served_below_v1_is_told_in_openais_shape(
    door: Site, method: str, path: str
):
    headers = {"Authorization": f"Bearer {await door.token('writer')}"}
    headers |= {"Content-Type": "multipart/form-data; boundary=x", "Content-Length": "1"}
    answer = await ask(door.app, method, path, headers, chunks=[b"x"])
    error = answer.json["error"]
    assert (answer.status, error["code"], error.keys()) == (404, "unknown_url", SHAPE)
    assert error["type"] == "invalid_request_error"
    assert f"{method} {path}" in error["message"]
    assert "POST /v1/chat/completions" in error["message"]
    nobody = await ask(door.app, method, path, {}, chunks=[])
    assert (nobody.status, nobody.json["error"]["type"]) == (401, "authentication_error")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/v1/models/m"])
async def test_a_wrong_method_is_told_with_the_right_one(door: Site, path: str):
    headers = {"Authorization": f"Bearer {await door.token('writer')}"}
    answer = await ask(door.app, "DELETE", path, headers, chunks=[])
    assert (answer.status, answer.json["error"]["code"]) == (405, "method_not_allowed")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_after_tools_have_run_says_so_and_is_not_retried_by_the_client(
    site: Site, stream: bool
):
    site.script(asks(call(READ)), UpstreamFailed("no", status=400))
    token = await site.token()
    async with openai.AsyncOpenAI(
        base_url=f"{site.url}/v1", api_key=token, max_retries=2, timeout=10
    ) as client:
        with pytest.raises(openai.APIError) as caught:
            await ask_to_the_end(client, stream=stream)
    assert "tools had run already" in str(caught.value)
    assert len(site.world.sent) == 1


async def test_a_stream_that_breaks_ends_with_an_error_the_client_raises(site: Site):
    site.script([*pieces(says("Half an"))[:-1], {"fail": "the upstream hung up"}])
    async with site.client() as client:
        stream = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
        said: list[str] = []
        with pytest.raises(openai.APIError, match="the upstream hung up"):
            await listen(stream, said)
    assert "".join(said) == "Half an"


async def ask_to_the_end(client: openai.AsyncOpenAI, *, stream: bool) -> None:
    if stream:
        await listen(
            await client.chat.completions.create(model="m", messages=HELLO, stream=True), []
        )
    else:
        await client.chat.completions.create(model="m", messages=HELLO)


async def listen(stream: openai.AsyncStream[ChatCompletionChunk], said: list[str]) -> None:
    async for chunk in stream:
        said += [chunk.choices[0].delta.content or ""]
