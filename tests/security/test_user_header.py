"""``X-Bascule-User`` at every route: from a token that may not name people it is never ignored."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from bascule.asgi.guard import OPEN, GuardedApp, GuardedRoute
from bascule.auth.tokens import Tokens
from bascule.model.role import ROLES, Role
from tests.asgi.caller import ask, make_tokens
from tests.control.api.desk import open_desk
from tests.doors.chat.site import Site

USER = "X-Bascule-User"
#: What says nothing of any person, so that an acting token need not name one there.
FOR_NOBODY = ("/api/v1/identity", "/v1/models", "/v1")


@pytest.fixture
async def routes() -> AsyncGenerator[list[GuardedRoute], None]:
    async with open_desk() as desk:
        yield [*Site().routes, *desk.app.routes]


async def bearer(tokens: Tokens, role: Role = "client", **options: object) -> dict[str, str]:
    task = {"task_id": "open"} if role == "client" else {}
    minted = await tokens.mint("n", role, **task, **options)  # pyright: ignore[reportArgumentType]
    return {"Authorization": f"Bearer {minted.token}"}


def places(routes: list[GuardedRoute]) -> list[tuple[str, str]]:
    guarded = [one for one in routes if one.access != OPEN]
    return [
        (method, re.sub(r"\{[^}]*\}", "x", one.path)) for one in guarded for method in one.verbs
    ]


@pytest.mark.requirement("security:people:header")
async def test_at_every_route_the_header_of_any_other_token_is_403(routes: list[GuardedRoute]):
    tokens = make_tokens()
    app = GuardedApp(routes, tokens)
    senders = [await bearer(tokens, role) for role in ROLES]
    senders.append(await bearer(tokens, person="alice"))
    for method, path in places(routes):
        for sender in senders:
            for name in ("alice", "", "a b"):
                answer = await ask(app, method, path, {**sender, USER: name})
                assert (answer.status, answer.code) == (403, "person_refused"), (method, path)


@pytest.mark.requirement("security:people:acting")
async def test_at_every_route_a_name_that_is_none_is_400(routes: list[GuardedRoute]):
    tokens = make_tokens()
    app = GuardedApp(routes, tokens)
    acting = await bearer(tokens, acts_for_users=True)
    for method, path in places(routes):
        for name in ("", "a b", "a" * 129, "al\u00efce"):
            answer = await ask(app, method, path, {**acting, USER: name})
            assert (answer.status, answer.code) == (400, "invalid_request"), (method, path)
        twice = [*acting.items(), (USER, "alice"), (USER, "alice")]
        answer = await ask(app, method, path, twice)
        assert (answer.status, answer.code) == (400, "invalid_request"), (method, path)


INITIALIZE = b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}'
#: A request of each route that does something for somebody: its query, and its body.
ASKED: dict[tuple[str, str], tuple[bytes, bytes]] = {
    ("GET", "/api/v1/tools"): (b"", b""),
    ("POST", "/api/v1/tools/call"): (b"", b'{"name": "fs/read"}'),
    ("POST", "/api/v1/tools/own"): (b"", b'{"name": "own"}'),
    ("GET", "/api/v1/tools/session"): (b"", b""),
    ("GET", "/api/v1/tools/explain"): (b"name=x", b""),
    ("GET", "/api/v1/tools/output"): (b"handle=x", b""),
    ("GET", "/api/v1/approvals/x"): (b"", b""),
    ("POST", "/v1/chat/completions"): (b"", b'{"model": "m", "messages": [], "user": "alice"}'),
    **{
        (method, path): (b"", body)
        for method, body in {"POST": INITIALIZE, "GET": b"", "DELETE": b""}.items()
        for path in ("/mcp", "/mcp/", "/mcp/servers/x", "/mcp/servers/x/")
    },
}


@pytest.mark.requirement("security:people:acting")
async def test_where_something_is_done_for_somebody_an_acting_token_must_say_for_whom():
    site = Site()
    acting = await bearer(site.tokens, acts_for_users=True)
    for_somebody = {place for place in places(site.routes) if not place[1].startswith(FOR_NOBODY)}
    assert for_somebody <= ASKED.keys(), "a new route: does it do anything for somebody?"
    for (method, path), (query, body) in ASKED.items():

        async def app(scope: Any, receive: Any, send: Any, query: bytes = query) -> None:
            await site.app({**scope, "query_string": query}, receive, send)

        sized = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        headers = {**acting, **(sized if body else {"Mcp-Session-Id": "x"})}
        answer = await ask(app, method, path, headers, chunks=[body])
        assert (answer.status, answer.code) == (400, "invalid_request"), (path, answer.body)
        assert answer.json["error"]["message"].startswith("X-Bascule-User: is required")
    assert (len(site.sessions), site.world.sent, site.upstream.asked) == (0, [], [])


async def test_models_and_identity_are_everybodys():
    site = Site()
    acting = await bearer(site.tokens, acts_for_users=True)
    for path in ("/api/v1/identity", "/v1/models"):
        assert (await ask(site.app, "GET", path, acting)).status == 200
        assert (await ask(site.app, "GET", path, {**acting, USER: "alice"})).status == 200
