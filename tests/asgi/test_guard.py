"""What is refused before an endpoint runs, in process; every refusal is a line of a table."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bascule.asgi.guard import OPEN, BodyRule, GuardedApp, open_routes, route
from bascule.auth.identity import ALLOWED, PERMISSIONS, Permission, Principal
from bascule.model.role import ROLES, Role
from tests.asgi.caller import app_of, ask, bearer, echo, http_scope, make_tokens, ok_route, said_ok
from tests.waits import SOON_SECONDS

JSON = {"Content-Type": "application/json"}
OWN = "http://127.0.0.1:7070"
REFUSED_SOURCES: dict[str, tuple[str, list[tuple[str, str]], int, str]] = {
    "another name": ("GET", [("host", "evil.example")], 421, "host_refused"),
    "another name with our port": ("GET", [("host", "evil.example:7070")], 421, "host_refused"),
    "a name that begins like ours": (
        "GET",
        [("host", "localhost.evil.example")],
        421,
        "host_refused",
    ),
    "a user before the name": ("GET", [("host", "localhost@evil.example")], 421, "host_refused"),
    "no Host": ("GET", [("host", "-")], 421, "host_refused"),
    "an empty Host": ("GET", [("host", "")], 421, "host_refused"),
    "two Hosts": ("GET", [("host", "localhost"), ("host", "evil.example")], 400, "invalid_request"),
    "another origin reads": ("GET", [("origin", "http://evil.example")], 403, "origin_refused"),
    "another origin writes": ("POST", [("origin", "http://evil.example")], 403, "origin_refused"),
    "another port": ("POST", [("origin", "http://127.0.0.1:3000")], 403, "origin_refused"),
    "no origin at all": ("POST", [("origin", "null")], 403, "origin_refused"),
    "another scheme": ("POST", [("origin", "ftp://127.0.0.1:7070")], 403, "origin_refused"),
    "an origin that is none": ("POST", [("origin", "http://[")], 403, "origin_refused"),
    "two origins": ("POST", [("origin", OWN), ("origin", OWN)], 400, "invalid_request"),
    "another site writes": ("POST", [("sec-fetch-site", "cross-site")], 403, "origin_refused"),
    "the same site writes": ("POST", [("sec-fetch-site", "same-site")], 403, "origin_refused"),
    "another site embeds": (
        "GET",
        [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")],
        403,
        "origin_refused",
    ),
    "another site's form": (
        "POST",
        [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")],
        403,
        "origin_refused",
    ),
}
ADMITTED_SOURCES: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "the address": ("POST", [("host", "127.0.0.1:7070")]),
    "the name": ("POST", [("host", "LocalHost")]),
    "the IPv6 address": ("POST", [("host", "[::1]:7070")]),
    "our own page": ("POST", [("origin", OWN), ("sec-fetch-site", "same-origin")]),
    "our own page behind TLS": ("POST", [("origin", "https://127.0.0.1:7070")]),
    "the address bar": ("GET", [("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")]),
    "a link elsewhere": ("GET", [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]),
}


@pytest.mark.requirement("security:origin")
@pytest.mark.parametrize("source", REFUSED_SOURCES)
async def test_a_request_from_elsewhere_never_reaches_an_endpoint(source: str):
    method, headers, status, code = REFUSED_SOURCES[source]
    reached: list[str] = []

    async def endpoint(request: Request) -> Response:
        reached.append(request.method)
        return Response()

    app = app_of(route("/", endpoint, ["GET", "POST"], permission=OPEN))
    answer = await ask(app, method, "/", headers)
    assert (answer.status, answer.code, reached) == (status, code, [])


@pytest.mark.requirement("security:origin")
@pytest.mark.parametrize("source", ADMITTED_SOURCES)
async def test_a_request_from_here_is_answered(source: str):
    method, headers = ADMITTED_SOURCES[source]
    assert (await ask(app_of(), method, "/", headers)).status == 200


async def test_over_tls_an_origin_without_it_is_another_one():
    app = app_of()
    scope = http_scope("POST", "/", [(b"host", b"localhost"), (b"origin", b"http://localhost")])
    statuses: list[int] = []

    async def send(message: Any) -> None:
        statuses.append(message.get("status", 0))

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    await app({**scope, "scheme": "https"}, receive, send)
    assert statuses[0] == 403


@pytest.mark.requirement("security:origin")
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
@pytest.mark.parametrize("origin", [OWN, "http://evil.example"])
async def test_no_answer_ever_lets_another_site_read_it(method: str, origin: str):
    answer = await ask(app_of(), method, "/", {"origin": origin})
    assert not [name for name, _ in answer.headers if name.startswith("access-control")]


BODIES: dict[str, tuple[dict[str, str], list[bytes], int, str]] = {
    "no media type": ({"content-length": "2"}, [b"{}"], 415, "unsupported_media_type"),
    "a form": (
        {"content-length": "2", "content-type": "text/plain"},
        [b"{}"],
        415,
        "unsupported_media_type",
    ),
    "a compressed body": (
        {**JSON, "content-length": "2", "content-encoding": "gzip"},
        [b"{}"],
        415,
        "unsupported_media_type",
    ),
    "a body said to be large": ({**JSON, "content-length": "65"}, [b"1"], 413, "body_too_large"),
    "a body that becomes large": (
        {**JSON, "transfer-encoding": "chunked"},
        [b"1" * 33, b"1" * 33],
        413,
        "body_too_large",
    ),
    "nothing": (JSON, [b""], 400, "invalid_json"),
    "half an object": ({**JSON, "content-length": "1"}, [b"{"], 400, "invalid_json"),
    "a key twice": ({**JSON, "content-length": "13"}, [b'{"a":1,"a":2}'], 400, "invalid_json"),
    "not a number": ({**JSON, "content-length": "3"}, [b"NaN"], 400, "invalid_json"),
    "not UTF-8": ({**JSON, "content-length": "3"}, [b'"\xff"'], 400, "invalid_json"),
}


@pytest.mark.parametrize("body", BODIES)
async def test_a_body_that_is_not_plain_json_of_bounded_size_is_refused(body: str):
    headers, chunks, status, code = BODIES[body]
    small = route("/", echo, ["POST"], permission=OPEN, body=BodyRule(max_bytes=64))
    answer = await ask(app_of(small), "POST", "/", headers, chunks=chunks)
    assert (answer.status, answer.code) == (status, code)


async def test_a_body_comes_whole_however_it_is_cut():
    app = app_of(route("/", echo, ["POST"], permission=OPEN))
    headers = {"content-type": "Application/JSON; charset=utf-8", "transfer-encoding": "chunked"}
    answer = await ask(app, "POST", "/", headers, chunks=[b'{"a"', b":", b"[1]}"])
    assert answer.json == {"got": {"a": [1]}}


async def test_a_body_that_does_not_come_is_not_awaited_for_ever():
    hasty = route("/", echo, ["POST"], permission=OPEN, body=BodyRule(seconds=0.01))
    answer = await ask(
        app_of(hasty), "POST", "/", {**JSON, "transfer-encoding": "chunked"}, chunks=()
    )
    assert (answer.status, answer.code) == (408, "request_timeout")


@pytest.mark.parametrize(
    "credentials",
    [
        "Bearer bsc_" + "A" * 43,
        "Bearer bsc_short",
        "Bearer ",
        "Bearer",
        "Basic YWRtaW46YWRtaW4=",
        "",
        "Bearer a b",
        "Bearer \xff",
    ],
)
@pytest.mark.parametrize("access", [OPEN, "registry:read"])
async def test_a_token_that_is_not_valid_is_refused_at_every_route(credentials: str, access: Any):
    answer = await ask(app_of(ok_route("/", access)), "GET", "/", {"Authorization": credentials})
    assert (answer.status, answer.code) == (401, "unauthenticated")
    assert answer.header("www-authenticate") == "Bearer"


async def test_two_tokens_are_refused_though_both_are_valid():
    tokens = make_tokens()
    [pair] = (await bearer(tokens)).items()
    answer = await ask(app_of(tokens=tokens), "GET", "/", [pair, pair])
    assert (answer.status, answer.code) == (400, "invalid_request")


@pytest.mark.requirement("security:auth:roles")
@pytest.mark.parametrize("permission", PERMISSIONS)
async def test_a_token_may_do_what_its_role_allows_and_nothing_else(permission: Permission):
    tokens = make_tokens()
    app = app_of(ok_route("/", permission), tokens=tokens)
    assert (await ask(app, "GET", "/")).status == 401
    for role in ROLES:
        answer = await ask(app, "GET", "/", await bearer(tokens, role))
        if permission in ALLOWED[role]:
            assert answer.status == 200, role
        else:
            assert (answer.status, answer.code) == (403, "forbidden"), role


@pytest.mark.requirement("security:auth:roles")
def test_the_table_gives_dangerous_permissions_to_few():
    def holders(permission: Permission) -> set[Role]:
        return {role for role in ROLES if permission in ALLOWED[role]}

    assert holders("tokens:write") == holders("secrets:write") == {"admin"}
    assert holders("registry:write") == holders("servers:test") == {"admin", "operator"}
    assert holders("registry:read_secrets") == holders("status:write") == {"node"}
    assert holders("approvals:decide") == {"admin", "approver"}
    assert holders("tools:use") == {"client"}
    assert {permission for role in ROLES for permission in ALLOWED[role]} == set(PERMISSIONS)


def test_a_role_that_nobody_declared_may_do_nothing():
    stranger = Principal("x", "root", None, "t")  # pyright: ignore[reportArgumentType]
    assert not any(stranger.may(permission) for permission in PERMISSIONS)


async def test_an_endpoint_sees_who_asks():
    tokens = make_tokens()
    seen: list[Principal | None] = []

    async def endpoint(request: Request) -> Response:
        seen.append(request.scope["principal"])
        return Response()

    app = app_of(route("/", endpoint, ["GET"], permission=OPEN), tokens=tokens)
    await ask(app, "GET", "/", await bearer(tokens, "client"))
    await ask(app, "GET", "/")
    assert seen[0] is not None
    assert (seen[0].name, seen[0].role, seen[0].task_id) == ("client", "client", "t")
    assert seen[1] is None


def test_a_route_cannot_be_made_without_saying_who_may_use_it():
    with pytest.raises(TypeError, match="permission"):
        route("/", said_ok, ["GET"])  # pyright: ignore[reportCallIssue]
    with pytest.raises(ValueError, match="neither a permission"):
        route("/", said_ok, ["GET"], permission="everything")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="at least one method"):
        route("/", said_ok, [], permission=OPEN)
    plain: Any = Route("/", said_ok)
    with pytest.raises(TypeError, match="make it with route"):
        GuardedApp([plain], make_tokens())
    with pytest.raises(ValueError, match="two routes"):
        GuardedApp([ok_route(), ok_route("/", "registry:read")], make_tokens())


def test_the_open_routes_can_be_listed():
    app = app_of(
        route("/z", said_ok, ["GET"], permission=OPEN),
        route("/a", said_ok, ["POST", "GET"], permission=OPEN),
        route("/b", said_ok, ["GET"], permission="registry:read"),
    )
    assert open_routes(app) == ("GET /a", "GET /z", "POST /a")


async def test_a_wrong_method_is_told_all_the_right_ones():
    app = app_of(
        route("/x", said_ok, ["GET"], permission=OPEN),
        route("/x", echo, ["PUT"], permission="registry:write"),
    )
    answer = await ask(app, "DELETE", "/x")
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert answer.header("allow") == "GET, PUT"


async def test_every_answer_carries_the_headers_that_keep_browsers_in_bounds():
    for method, path in (("GET", "/"), ("GET", "/none"), ("DELETE", "/")):
        answer = await ask(app_of(), method, path)
        assert (answer.header("content-security-policy") or "").startswith("default-src 'self'")
        assert answer.header("x-content-type-options") == "nosniff"
        assert answer.header("x-frame-options") == "DENY"
        assert answer.header("cache-control") == "no-store"


async def test_an_endpoint_may_say_itself_how_long_its_answer_is_good():
    async def endpoint(request: Request) -> Response:
        return Response(headers={"Cache-Control": "max-age=60"})

    answer = await ask(app_of(route("/", endpoint, ["GET"], permission=OPEN)), "GET", "/")
    assert [v for k, v in answer.headers if k == "cache-control"] == ["max-age=60"]


async def test_every_request_has_an_id_of_its_own_that_the_caller_cannot_choose():
    ids = {
        (await ask(app_of(), "GET", "/", {"x-request-id": "mine"})).header("x-request-id")
        for _ in range(3)
    }
    assert len(ids) == 3
    assert "mine" not in ids


async def test_a_socket_is_refused():
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        raise AssertionError("nothing is read")

    async with asyncio.timeout(SOON_SECONDS):
        await app_of()({"type": "websocket", "path": "/"}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


async def test_half_an_answer_is_cut_rather_than_finished(caplog: pytest.LogCaptureFixture):
    async def endpoint(request: Request) -> Response:
        return Broken()

    app = app_of(route("/", endpoint, ["GET"], permission=OPEN))
    with caplog.at_level(logging.ERROR), pytest.raises(RuntimeError, match="half way"):
        await ask(app, "GET", "/")


class Broken(Response):
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("half way")
