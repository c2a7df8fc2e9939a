"""Logging in and out over HTTP, as the admin page does it."""

from __future__ import annotations

from typing import Any, Unpack

import pytest

from bascule.auth.links import Links, make_link
from bascule.auth.page_uses import IDLE_SECONDS
from bascule.auth.token_request import TokenOptions, TokenRequest
from bascule.control.api.login import login_routes
from bascule.control.api.rest import registry_routes
from bascule.control.api.tokens import token_routes
from bascule.control.registry.service import open_registry
from bascule.model.role import Role
from bascule.testing.clock import FakeClock
from bascule.wire.api.addresses import LOGIN, LOGOUT, ME, TOKENS, WATCH
from tests.asgi.caller import Answer, make_tokens
from tests.control.api.desk import ADMIN, Counter, Stream
from tests.control.registry.memory_store import MemoryStore


class Counters(Counter):
    """Asks as pages do."""

    async def code(self, role: Role = "admin", **options: Unpack[TokenOptions]) -> str:
        wanted = TokenRequest(name=role, role=role, **options)
        return (await make_link(self.tokens, wanted, by="cli:anna")).token

    async def login(self, code: str, **more: Any) -> Answer:
        return await self.ask("POST", LOGIN, {"code": code, **more}, role=None)

    async def page(self, role: Role = "admin") -> dict[str, str]:
        answer = await self.login(await self.code(role))
        assert answer.status == 200
        return {"Authorization": f"Bearer {answer.json['token']}"}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def desk(clock: FakeClock):
    tokens = make_tokens(clock)
    async with open_registry(MemoryStore(clock=clock), clock=clock) as service:
        routes = [
            *registry_routes(service, clock=clock),
            *token_routes(tokens, service),
            *login_routes(tokens, Links(tokens)),
        ]
        yield await Counters(routes, tokens).ready()


@pytest.mark.requirement("admin:login:once")
async def test_a_page_sees_whose_session_it_will_be_and_then_takes_it(desk: Counters):
    code = await desk.code("operator", person="ann")
    for _ in range(2):
        shown = await desk.login(code, look=True)
        assert shown.status == 200
        assert shown.json["role"] == "operator"
        assert (shown.json["person"], shown.json["made_by"]) == ("ann", "cli:anna")
        assert set(shown.json) == {"role", "person", "task_id", "made_by", "expires_at"}
    taken = await desk.login(code)
    assert taken.status == 200
    assert (taken.json["role"], taken.json["person"]) == ("operator", "ann")
    assert taken.json["idle_seconds"] == 1800
    bearer = {"Authorization": f"Bearer {taken.json['token']}"}
    assert (await desk.ask("GET", ME, role=None, headers=bearer)).json["person"] == "ann"
    listed = (await desk.ask("GET", TOKENS)).json["tokens"][-1]
    assert (listed["id"], listed["page"]) == (taken.json["token_id"], True)


@pytest.mark.requirement("admin:login:one-answer")
async def test_codes_that_open_nothing_have_one_answer(desk: Counters):
    used = await desk.code()
    await desk.login(used)
    codes = (used, "x", "")
    answers = [await desk.login(code, look=look) for code in codes for look in (False, True)]
    assert {(one.status, one.code) for one in answers} == {(401, "invalid_code")}
    assert len({one.body for one in answers}) == 1
    assert "bascule web" in answers[0].json["error"]["message"]


async def test_a_link_opens_nothing_but_the_page(desk: Counters):
    bearer = {"Authorization": f"Bearer {await desk.code()}"}
    for method, path in (("GET", ME), ("GET", TOKENS), ("POST", LOGOUT)):
        refused = await desk.ask(method, path, role=None, headers=bearer)
        assert (refused.status, refused.code) == (401, "unauthenticated")


async def test_a_page_logs_out_itself_and_nobody_else(desk: Counters):
    page, other = await desk.page(), await desk.page()
    done = await desk.ask("POST", LOGOUT, role=None, headers=page)
    assert (done.status, list(done.json)) == (200, ["deleted"])
    assert (await desk.ask("GET", ME, role=None, headers=page)).status == 401
    assert (await desk.ask("GET", ME, role=None, headers=other)).status == 200
    refused = await desk.ask("POST", LOGOUT, role="viewer")
    assert (refused.status, refused.code) == (403, "forbidden")
    assert "bascule tokens revoke tok-" in refused.json["error"]["message"]


@pytest.mark.requirement("admin:login:streams")
async def test_logging_out_ends_what_a_page_watches(desk: Counters):
    page = await desk.page("viewer")
    async with desk.stream(f"{WATCH}?since=0", headers=page) as stream:
        await desk.ask("PUT", f"{ADMIN}/tasks/seen", {})
        assert b"seen" in (await stream.next()).data
        await desk.ask("POST", LOGOUT, role=None, headers=page)
        await desk.ask("PUT", f"{ADMIN}/tasks/unseen", {})
        last = await stream.next()
        assert (last.event, b"unseen" in last.data) == ("error", False)


async def news(stream: Stream) -> Any:
    """Return the next event that is more than a sign of life."""
    while (event := await stream.next()).event == "bookmark":
        pass
    return event


@pytest.mark.requirement("admin:login:ends")
async def test_what_a_page_watches_does_not_keep_it_from_ending_and_its_requests_do(
    desk: Counters, clock: FakeClock
):
    watching, asking = await desk.page("viewer"), await desk.page("viewer")
    async with (
        desk.stream(f"{WATCH}?since=0", headers=watching) as idle,
        desk.stream(f"{WATCH}?since=0", headers=asking) as used,
    ):
        for task in ("first", "second"):
            await desk.ask("PUT", f"{ADMIN}/tasks/{task}", {})
            for stream in (idle, used):
                assert task.encode() in (await news(stream)).data
            await clock.advance(IDLE_SECONDS / 2 - 1)
            await desk.ask("GET", f"{ADMIN}/tasks", role=None, headers=asking)
        await clock.advance(2)
        await desk.ask("PUT", f"{ADMIN}/tasks/third", {})
        assert (await news(idle)).event == "error"
        assert b"third" in (await news(used)).data
    refused = await desk.ask("GET", f"{ADMIN}/tasks", role=None, headers=watching)
    assert (refused.status, refused.code) == (401, "unauthenticated")


async def test_a_page_makes_no_link_and_an_operators_no_token(desk: Counters):
    admin, operator = await desk.page("admin"), await desk.page("operator")
    link = await desk.ask("POST", TOKENS, {"role": "link"}, role=None, headers=admin)
    assert (link.status, link.code) == (422, "invalid_record")
    token = await desk.ask("POST", TOKENS, {"role": "admin"}, role=None, headers=operator)
    assert (token.status, token.code) == (403, "forbidden")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "null"},
    ],
)
async def test_no_other_site_logs_a_browser_in(desk: Counters, headers: dict[str, str]):
    code = await desk.code()
    refused = await desk.ask("POST", LOGIN, {"code": code}, role=None, headers=headers)
    assert (refused.status, refused.code) == (403, "origin_refused")
    assert (await desk.login(code)).status == 200
