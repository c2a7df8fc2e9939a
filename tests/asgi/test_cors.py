"""Routes shared with other origins: whose pages may use them, and read what is answered."""

from __future__ import annotations

import pytest
from starlette.types import Receive, Scope, Send

from bascule.asgi.cors import preflight_route, shared_routes
from bascule.asgi.errors import error_response
from bascule.asgi.guard import GuardedApp, direct_route
from bascule.asgi.json import read_body, send_json
from bascule.auth.tokens import Tokens
from tests.asgi.caller import Answer, app_of, ask, bearer, make_tokens, ok_route

PAGE, OTHER = "https://inspector.example", "https://evil.example"
VERBS = ("POST", "GET", "DELETE")
NAMES = ("Authorization", "Content-Type", "Mcp-Session-Id", "Mcp-Param-*", "X-Bascule-*")
JSON = {"Content-Type": "application/json", "Content-Length": "2"}


async def hot(scope: Scope, receive: Receive, send: Send) -> None:
    await send_json(scope, send, {"got": len(await read_body(receive))})


def site(tokens: Tokens, *origins: str) -> GuardedApp:
    return app_of(
        direct_route("/mcp", hot, VERBS, permission="tools:use").shared_with(origins),
        direct_route("/mcp/servers/{id}", hot, VERBS, permission="tools:use").shared_with(origins),
        preflight_route("/mcp", VERBS, NAMES, origins=origins, errors=error_response),
        ok_route("/open"),
        ok_route("/tools", "tools:use"),
        tokens=tokens,
    )


def shared(answer: Answer) -> dict[str, str]:
    return {name: value for name, value in answer.headers if name.startswith("access-control-")}


READABLE = {
    "access-control-allow-origin": PAGE,
    "access-control-expose-headers": "Mcp-Session-Id, WWW-Authenticate, Retry-After, X-Request-Id",
}


@pytest.mark.requirement("security:cors")
@pytest.mark.parametrize("path", ["/mcp", "/mcp/servers/notes"])
async def test_a_page_of_a_listed_origin_uses_the_route_and_reads_the_answer(path: str):
    tokens = make_tokens()
    headers = {**JSON, **await bearer(tokens, "client"), "origin": PAGE}
    foreign = {**headers, "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
    answer = await ask(site(tokens, PAGE), "POST", path, foreign, chunks=[b"{}"])
    assert (answer.status, answer.json) == (200, {"got": 2})
    assert shared(answer) == READABLE
    assert answer.header("vary") == "Origin"
    policies = [v for name, v in answer.headers if name == "cross-origin-resource-policy"]
    assert policies == ["cross-origin"]
    assert answer.header("cache-control") == "no-store"


@pytest.mark.requirement("security:cors")
@pytest.mark.parametrize(
    ("method", "changed", "status"),
    [
        ("POST", {"authorization": "Bearer bsc_no"}, 401),
        ("POST", {"authorization": ""}, 401),
        ("PUT", {}, 405),
        ("POST", {"content-type": "text/plain"}, 415),
        ("POST", {"content-length": "99999999"}, 413),
        ("POST", {"host": "elsewhere.example"}, 421),
        ("POST", {"x-bascule-user": "bob"}, 403),
    ],
)
async def test_it_reads_what_the_guard_refuses_too(
    method: str, changed: dict[str, str], status: int
):
    tokens = make_tokens()
    usual = {**JSON, **await bearer(tokens, "client"), "origin": PAGE}
    headers = {name.lower(): value for name, value in usual.items()} | changed
    answer = await ask(site(tokens, PAGE), method, "/mcp", headers, chunks=[b"{}"])
    assert (answer.status, shared(answer)) == (status, READABLE)


@pytest.mark.requirement("security:cors")
@pytest.mark.parametrize("path", ["/open", "/tools", "/nothing"])
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
async def test_at_every_other_route_the_same_origin_is_refused(method: str, path: str):
    tokens = make_tokens()
    headers = {**await bearer(tokens, "client"), "origin": PAGE}
    answer = await ask(site(tokens, PAGE), method, path, headers)
    assert (answer.status, answer.code, shared(answer)) == (403, "origin_refused", {})


@pytest.mark.requirement("security:cors")
@pytest.mark.parametrize(
    "origins",
    [
        [OTHER],
        ["null"],
        [PAGE + ":8443"],
        [PAGE.upper()],
        [PAGE + "/"],
        [PAGE.replace("https", "http")],
        [PAGE + ".evil.example"],
        [PAGE, PAGE],
        [PAGE, OTHER],
        [f"{PAGE}, {OTHER}"],
        ["*"],
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["POST", "OPTIONS"])
async def test_any_other_origin_is_refused_and_reads_nothing(method: str, origins: list[str]):
    tokens = make_tokens()
    headers = [*(await bearer(tokens, "client")).items(), *(("origin", one) for one in origins)]
    answer = await ask(site(tokens, PAGE), method, "/mcp", headers)
    assert answer.status == (403 if len(origins) == 1 else 400)
    assert shared(answer) == {}
    assert answer.header("cross-origin-resource-policy") == "same-origin"


@pytest.mark.requirement("security:cors")
async def test_without_an_origin_in_the_settings_none_is_admitted():
    tokens = make_tokens()
    headers = {**await bearer(tokens, "client"), "origin": PAGE}
    for method in ("POST", "OPTIONS"):
        answer = await ask(site(tokens), method, "/mcp", headers)
        assert (answer.status, shared(answer)) == (403, {})


async def test_who_says_no_origin_is_told_nothing_of_origins():
    tokens = make_tokens()
    answer = await ask(site(tokens, PAGE), "GET", "/mcp", await bearer(tokens, "client"))
    assert (answer.status, shared(answer), answer.header("vary")) == (200, {}, None)


@pytest.mark.requirement("security:cors")
async def test_a_browser_may_ask_first_without_a_token():
    asked = {
        "origin": PAGE,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,mcp-param-region, X-Bascule-Servers,"
        "cookie,mcp-param-,x-mcp-param-a,mcp-param-\xe9,mcp-param-a b",
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "cors",
    }
    answer = await ask(site(make_tokens(), PAGE), "OPTIONS", "/mcp", asked)
    assert (answer.status, answer.body) == (204, b"")
    assert shared(answer) == READABLE | {
        "access-control-allow-methods": "POST, GET, DELETE",
        "access-control-allow-headers": "Authorization, Content-Type, Mcp-Session-Id, "
        "mcp-param-region, X-Bascule-Servers",
        "access-control-max-age": "600",
    }


# --- many routes at once


def many(tokens: Tokens, *origins: str) -> GuardedApp:
    routes = [
        direct_route("/call", hot, ["POST"], permission="tools:use"),
        ok_route("/tools", "tools:use"),
        ok_route("/tools/{name:path}", "tools:use"),
        direct_route("/{rest:path}", hot, ["GET", "OPTIONS"], permission="tools:use"),
    ]
    return app_of(*shared_routes(routes, NAMES, origins=origins), tokens=tokens)


@pytest.mark.requirement("security:cors")
@pytest.mark.parametrize(
    ("path", "methods"), [("/call", "POST"), ("/tools", "GET, POST"), ("/tools/a/b", "GET, POST")]
)
async def test_browsers_are_told_which_of_many_routes_are_shared(path: str, methods: str):
    app = many(make_tokens(), PAGE)
    asked = {"origin": PAGE, "access-control-request-method": "POST"}
    answer = await ask(app, "OPTIONS", path, asked)
    assert answer.status == 204
    assert answer.header("access-control-allow-methods") == methods
    assert answer.header("access-control-allow-origin") == PAGE
    assert "access-control-allow-credentials" not in shared(answer)
    refused = await ask(app, "OPTIONS", path, {**asked, "origin": OTHER})
    assert (refused.status, shared(refused)) == (403, {})


@pytest.mark.requirement("security:cors")
async def test_a_route_that_answers_options_itself_is_not_shared():
    tokens = make_tokens()
    headers = {**await bearer(tokens, "client"), "origin": PAGE}
    refused = await ask(many(tokens, PAGE), "GET", "/other", headers)
    assert (refused.status, shared(refused)) == (403, {})


async def test_without_origins_there_is_nothing_to_ask_before():
    answer = await ask(many(make_tokens()), "OPTIONS", "/call", {})
    assert answer.status == 401
