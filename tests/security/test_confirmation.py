"""Beyond loopback, a page shows a fresh code with what would outlive it, and with nothing else."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from bascule.app.settings import ServerSettings
from bascule.asgi.guard import GuardedApp
from bascule.auth.links import Links, make_confirmation, make_link
from bascule.auth.token_request import TokenRequest
from bascule.control.api.secrets import secret_routes
from bascule.control.registry.store import Author
from bascule.control.secrets import open_secrets
from bascule.wire.api.addresses import ADMIN, SECRETS, TOKENS
from tests.asgi.caller import Answer
from tests.control.api.desk import Desk, open_desk

pytestmark = pytest.mark.requirement("admin:confirm")
SERVER = {
    "server_id": "s",
    "transport": "stdio",
    "stdio": {"command": "true"},
    "allowed_tools": ["read"],
    "approval_policy": {"default": "always"},
}


class Beyond:
    """A desk that serves beyond loopback, and two pages of administrators."""

    def __init__(self, desk: Desk, links: Links) -> None:
        self.desk = desk
        self.links = links
        self.page: dict[str, str] = {}
        self.other: dict[str, str] = {}

    async def log_in(self) -> dict[str, str]:
        wanted = TokenRequest(name="page of admin", role="admin", process=self.desk.tokens.process)
        return {"Authorization": f"Bearer {(await self.desk.tokens.keep(wanted, by='x')).token}"}

    async def code(self) -> dict[str, str]:
        minted = await make_confirmation(self.desk.tokens, by="cli:anna")
        return {"X-Bascule-Confirm": minted.token}

    async def ask(
        self, method: str, path: str, body: Any = None, code: dict[str, str] | None = None
    ) -> Answer:
        headers = {**self.page, **(code or {})}
        return await self.desk.ask(method, path, body or {}, role=None, headers=headers)


@pytest.fixture
async def beyond(tmp_path: Path) -> AsyncGenerator[Beyond]:
    async with open_desk() as desk, open_secrets(tmp_path, records=desk.service.snapshot) as kept:
        links = Links(desk.tokens)
        routes = [*desk.app.routes, *secret_routes(kept)]
        desk.app = GuardedApp(routes, desk.tokens, confirms=links.confirms)
        by = Author("owner")
        await desk.service.create("server", SERVER, by)
        await desk.service.create("task", {"task_id": "t"}, by)
        await desk.service.create("user", {"user_id": "ann"}, by)
        found = Beyond(desk, links)
        found.page, found.other = await found.log_in(), await found.log_in()
        use = kept.use("server", "s")
        assert use is not None
        await kept.set("kept", "v", by="cli:anna", bind=[use])
        yield found


ACTS = {
    "making a token": ("POST", TOKENS, {"role": "viewer"}),
    "writing a secret": ("PUT", f"{SECRETS}/s", {"value": "v"}),
    "binding a secret": ("POST", f"{SECRETS}/kept/bind", {"server": "s"}),
    "the platform": ("PUT", f"{ADMIN}/platform", {"default_approval": "always"}),
    "a person": ("PUT", f"{ADMIN}/users/bob", {"user_id": "bob"}),
    "a person's end": ("DELETE", f"{ADMIN}/users/ann", None),
    "approval": ("PATCH", f"{ADMIN}/servers/s", {"approval_policy": {"default": "never"}}),
    "a tool": ("PATCH", f"{ADMIN}/servers/s", {"allowed_tools": ["read", "write"]}),
    "a program": ("PATCH", f"{ADMIN}/servers/s", {"stdio": {"command": "sh"}}),
    "a new program": (
        "POST",
        f"{ADMIN}/servers",
        {"server_id": "n", "transport": "stdio", "stdio": {"command": "sh"}},
    ),
    "a task": ("PATCH", f"{ADMIN}/tasks/t", {"mcp": {"enabled": True}}),
    "a backend": ("PUT", f"{ADMIN}/backends/b", {"base_url": "https://models.example"}),
    "an import": ("POST", f"{ADMIN}/import", [{**SERVER, "server_id": "i"}]),
}


@pytest.mark.parametrize("act", ACTS)
async def test_what_would_outlive_a_page_takes_a_code(beyond: Beyond, act: str):
    method, path, body = ACTS[act]
    revision = beyond.desk.service.view.revision
    refused = await beyond.ask(method, path, body)
    assert (refused.status, refused.code) == (403, "confirmation_required")
    assert refused.json["error"]["details"]["command"] == "bascule web --confirm"
    assert beyond.desk.service.view.revision == revision
    done = await beyond.ask(method, path, body, await beyond.code())
    assert done.status in {200, 201}, done.body


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", TOKENS, None),
        ("GET", SECRETS, None),
        ("PATCH", f"{ADMIN}/servers/s", {"display_name": "S"}),
        ("PATCH", f"{ADMIN}/servers/s", {"allowed_tools": []}),
        ("PATCH", f"{ADMIN}/servers/s", {"enabled": False}),
        ("DELETE", f"{ADMIN}/tasks/t", None),
        ("PATCH", f"{ADMIN}/tasks/t", {"name": "T"}),
        ("POST", f"{ADMIN}/import?mode=preview", [{**SERVER, "server_id": "i"}]),
    ],
)
async def test_reading_and_narrowing_take_none(beyond: Beyond, method: str, path: str, body: Any):
    done = await beyond.ask(method, path, body)
    assert done.status == 200, done.body


async def test_going_back_to_what_was_looser_takes_a_code(beyond: Beyond):
    before = beyond.desk.service.view.revision
    await beyond.desk.service.patch("server", "s", {"allowed_tools": []}, Author("owner"))
    back = ("POST", f"{ADMIN}/rollback", {"revision": before})
    assert (await beyond.ask(*back)).code == "confirmation_required"
    assert (await beyond.ask("POST", f"{ADMIN}/rollback?dry_run=true", back[2])).status == 200
    assert (await beyond.ask(*back, await beyond.code())).status == 200


async def test_a_link_confirms_nothing_and_is_still_there(beyond: Beyond):
    wanted = TokenRequest(name="link", role="admin")
    link = await make_link(beyond.desk.tokens, wanted, by="cli:anna")
    shown = {"X-Bascule-Confirm": link.token}
    refused = await beyond.ask("POST", TOKENS, {"role": "viewer"}, shown)
    assert refused.code == "confirmation_required"
    assert (await beyond.links.look(link.token)).grants == "admin"


async def test_a_draft_is_tried_with_a_code_and_a_server_that_is_stored_without(beyond: Beyond):
    draft, stored = f"{ADMIN}/servers/test", f"{ADMIN}/servers/s/test"
    assert (await beyond.ask("POST", draft, SERVER)).code == "confirmation_required"
    tried = await beyond.ask("POST", draft, SERVER, await beyond.code())
    assert tried.code == (await beyond.ask("POST", stored)).code == "no_node"


async def test_a_secret_is_unbound_and_removed_without_a_code(beyond: Beyond):
    unbound = await beyond.ask("POST", f"{SECRETS}/kept/unbind", {"server": "s"})
    assert (unbound.status, unbound.json["bound"]) == (200, [])
    assert (await beyond.ask("DELETE", f"{SECRETS}/kept")).status == 200


async def test_a_proposal_is_refused_without_a_code_and_accepted_with_one(beyond: Beyond):
    wanted = {**SERVER, "stdio": {"command": "true", "env_from": ["TOKEN"]}}
    for server in ("p", "q"):
        body = {**wanted, "server_id": server}
        await beyond.desk.ask("POST", f"{ADMIN}/servers", body, role="operator")
    accept, refuse = f"{ADMIN}/servers/p/accept", f"{ADMIN}/servers/q/refuse"
    assert (await beyond.ask("POST", accept)).code == "confirmation_required"
    assert (await beyond.ask("POST", accept, code=await beyond.code())).status == 201
    assert (await beyond.ask("POST", refuse)).status == 200
    assert (await beyond.ask("GET", f"{ADMIN}/proposals")).json == {"proposals": []}


async def test_a_token_is_ended_without_a_code(beyond: Beyond):
    made = await beyond.desk.tokens.mint("stolen", "admin")
    done = await beyond.ask("DELETE", f"{TOKENS}/{made.record.id}")
    assert done.status == 200


async def test_a_code_is_good_for_the_page_that_shows_it_first(beyond: Beyond):
    code = await beyond.code()
    for _ in range(2):
        assert (await beyond.ask("POST", TOKENS, {"role": "viewer"}, code)).status == 201
    beyond.page = beyond.other
    refused = await beyond.ask("POST", TOKENS, {"role": "viewer"}, code)
    assert refused.code == "confirmation_required"


async def test_a_code_gives_a_page_nothing_that_its_role_has_not(beyond: Beyond):
    wanted = TokenRequest(name="page", role="operator", process=beyond.desk.tokens.process)
    token = (await beyond.desk.tokens.keep(wanted, by="x")).token
    beyond.page = {"Authorization": f"Bearer {token}"}
    refused = await beyond.ask("POST", TOKENS, {"role": "viewer"}, await beyond.code())
    assert (refused.status, refused.code) == (403, "forbidden")


async def test_a_token_that_is_no_pages_is_asked_nothing(beyond: Beyond):
    made = await beyond.desk.ask("POST", TOKENS, {"role": "viewer"}, role="admin")
    assert made.status == 201


async def test_two_codes_in_one_request_are_refused(beyond: Beyond):
    one, other = await beyond.code(), await beyond.code()
    both = {**one, "x-bascule-confirm": other["X-Bascule-Confirm"]}
    refused = await beyond.ask("POST", TOKENS, {"role": "viewer"}, both)
    assert (refused.status, refused.code) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("settings", "asks"),
    [
        ({}, False),
        ({"host": "localhost"}, False),
        ({"host": "127.8.8.8"}, False),
        ({"host": "::1"}, False),
        ({"host": "0.0.0.0"}, True),  # noqa: S104 - nothing is bound
        ({"host": "::"}, True),
        ({"host": "10.0.0.1"}, True),
        ({"host": "bascule.example"}, True),
        ({"hosts": ("bascule.example",)}, True),
    ],
)
def test_beyond_loopback_is_what_others_can_reach_through_a_proxy_too(
    settings: dict[str, Any], *, asks: bool
):
    assert ServerSettings(**settings).beyond_loopback is asks
