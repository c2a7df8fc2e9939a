"""What is refused before the gateway: JSON-RPC errors with our codes, and pages in browsers."""

from __future__ import annotations

import json

import pytest
from starlette.types import Receive, Scope, Send

from bascule.asgi.guard import OPEN, GuardedApp, direct_route
from bascule.doors.gateway.api import gateway_routes
from bascule.doors.gateway.errors import rpc_error
from tests.asgi.caller import Answer, app_of, ask
from tests.doors.door import Door
from tests.doors.gateway.mcp_caller import McpCaller, in_process

PATHS = ("/mcp", "/mcp/servers/fs")
PAGE = "http://localhost:6274"
INITIALIZE = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}'
JSON = {"Content-Type": "application/json"}
REFUSED, REQUEST = -32000, -32600
HOW = "bascule tokens create --role client --task T"
#: method, headers (instead of the usual), status, JSON-RPC code, our code, and a part of the words
TABLE: dict[str, tuple[str, dict[str, str], int, int, str, str]] = {
    "no token": ("POST", {"Authorization": "-"}, 401, REFUSED, "unauthenticated", HOW),
    "a token that is none": ("POST", {"Authorization": "Bearer bsc_x"}, 401, REFUSED,
                             "unauthenticated", HOW),
    "a viewer's token": ("POST", {"Authorization": "viewer"}, 403, REFUSED, "forbidden", HOW),
    "another person": ("POST", {"X-Bascule-User": "bob"}, 403, REFUSED, "person_refused", "speaks"),
    "another origin": ("POST", {"Origin": "https://evil.example"}, 403, REFUSED, "origin_refused",
                       "gateway.origins"),
    "another name": ("POST", {"Host": "evil.example"}, 421, REFUSED, "host_refused",
                     "server.hosts"),
    "another method": ("PUT", {}, 405, REQUEST, "method_not_allowed", "POST"),
    "no method of MCP": ("HEAD", {}, 405, REQUEST, "method_not_allowed", "POST"),
    "a form": ("POST", {"Content-Type": "text/plain"}, 415, REQUEST, "unsupported_media_type",
               "application/json"),
    "too much": ("POST", {"Content-Length": "99999999"}, 413, REQUEST, "body_too_large", "bytes"),
    "a misspelt narrowing": ("POST", {"X-Bascule-Server": "fs"}, 400, REQUEST, "invalid_request",
                             "X-Bascule-Servers"),
}  # fmt: skip


@pytest.mark.requirement("gateway:errors")
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("case", TABLE)
async def test_a_refusal_is_an_error_of_json_rpc_with_an_empty_id(case: str, path: str):
    method, changed, status, rpc_code, code, words = TABLE[case]
    door = Door()
    usual = {**JSON, **await door.token(), "Content-Length": str(len(INITIALIZE)), **changed}
    if usual["Authorization"] == "viewer":
        usual |= await door.token(role="viewer")
    headers = {name: value for name, value in usual.items() if value != "-"}
    answer = await ask(door.app, method, path, headers, chunks=[INITIALIZE])
    assert answer.status == status
    assert answer.header("www-authenticate") == ("Bearer" if status == 401 else None)
    assert answer.header("content-type") == "application/json"
    said = answer.json
    assert (said.keys(), said["jsonrpc"], said["id"]) == ({"jsonrpc", "id", "error"}, "2.0", "")
    assert (said["error"]["code"], said["error"]["data"]["code"]) == (rpc_code, code)
    assert said["error"]["data"]["request_id"] == answer.header("x-request-id")
    assert words in said["error"]["message"]
    assert len(door.sessions) == 0


@pytest.mark.requirement("gateway:errors")
async def test_what_goes_wrong_inside_is_logged_and_not_told(caplog: pytest.LogCaptureFixture):
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise KeyError("secret path /etc/x")

    route = direct_route("/mcp", broken, ["POST"], permission=OPEN, errors=rpc_error)
    answer = await ask(app_of(route), "POST", "/mcp")
    assert (answer.status, answer.json["error"]["code"], answer.code) == (500, -32603, "internal")
    assert "/etc/x" not in answer.body.decode()
    assert "/etc/x" in caplog.text


def shared(door: Door) -> GuardedApp:
    return GuardedApp(gateway_routes(door.gateway, (PAGE,)), door.tokens)


@pytest.mark.requirement("security:cors")
@pytest.mark.parametrize("path", PATHS)
async def test_a_page_of_a_listed_origin_asks_first_and_then_connects(path: str):
    door = Door()
    app, origin = shared(door), {"Origin": PAGE, "Sec-Fetch-Site": "cross-site"}
    wanted = "authorization,content-type,mcp-protocol-version,mcp-method,mcp-name,mcp-session-id"
    asked = {
        **origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": f"{wanted},accept,last-event-id,mcp-param-a,cookie",
    }
    before = await ask(app, "OPTIONS", path, asked)
    allowed = (before.header("access-control-allow-headers") or "").lower().split(", ")
    assert (before.status, before.header("access-control-allow-origin")) == (204, PAGE)
    assert before.header("access-control-allow-methods") == "POST, GET, DELETE"
    assert {*wanted.split(","), "accept", "last-event-id", "mcp-param-a"} <= set(allowed)
    assert "cookie" not in allowed
    assert before.header("access-control-allow-credentials") is None
    for modern in (True, False):
        caller = McpCaller(in_process(app), await door.minted(), path, modern, dict(origin))
        told = await caller.open()
        assert (told["status"], bool(caller.session)) == (200, not modern)
        answer = await caller.ask("tools/list")
        assert (answer.status, answer.header("access-control-allow-origin")) == (200, PAGE)
        assert "Mcp-Session-Id" in (answer.header("access-control-expose-headers") or "")
        assert len(json.loads(answer.body)["result"]["tools"]) > 0


@pytest.mark.requirement("security:cors")
async def test_a_page_can_read_that_its_token_is_no_good():
    headers = {**JSON, "Origin": PAGE, "Authorization": "Bearer bsc_x"}
    answer: Answer = await ask(shared(Door()), "POST", "/mcp", headers)
    assert (answer.status, answer.code) == (401, "unauthenticated")
    assert answer.header("access-control-allow-origin") == PAGE
    assert answer.header("www-authenticate") == "Bearer"
