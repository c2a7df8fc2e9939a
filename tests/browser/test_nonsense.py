"""Answers that are not Bascule's, and storage that is not the page's: said, and nothing is lost."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Route, expect

from bascule.wire.api.addresses import ADMIN
from tests.browser.screen import SCREENS, Screen
from tests.browser.site import Site
from tests.browser.visit import TOKEN, Visit

pytestmark = pytest.mark.requirement("admin:page:nonsense")
EVERYTHING = "**/admin/api/**"
SIGN_IN = "<!doctype html><title>Proxy</title><p>Sign in to the network"
NOT_OURS = "is not one of Bascule's"
UNSHOWN = "This screen could not be shown"
SERVERS = f"{ADMIN}/servers"
STATUS = r"Failed to load resource: the server responded with a status of 50\d"


@asynccontextmanager
async def answering(
    screen: Screen,
    body: str,
    *,
    at: str = EVERYTHING,
    status: int = 200,
    kind: str = "application/json",
    method: str = "",
) -> AsyncGenerator[None]:
    """Let somebody between the page and Bascule answer for a while."""

    async def answer(route: Route) -> None:
        if method in ("", route.request.method):
            await route.fulfill(status=status, body=body, content_type=kind)
        else:
            await route.fallback()

    await screen.page.route(at, answer)
    try:
        yield
    finally:
        await screen.page.unroute(at, answer)


async def test_a_page_of_a_proxy_is_not_taken_for_an_answer(screen: Screen):
    async with answering(screen, SIGN_IN, at=f"**{SERVERS}**", kind="text/html"):
        await screen.open("servers")
        await screen.says(NOT_OURS)
    await screen.button("Try again").first.click()
    await screen.says_not(NOT_OURS)
    await expect(screen.link("notes", exact=False).first).to_be_visible()


SHAPES = ("{}", json.dumps({"servers": [None], "tools": {}, "total": "x"}))


@pytest.mark.parametrize("body", SHAPES)
async def test_no_screen_goes_blank_for_an_answer_of_another_shape(screen: Screen, body: str):
    await screen.open("servers")
    async with answering(screen, body):
        for place in SCREENS:
            await screen.run(f"location.hash = '#/{place}'")
            name = await screen.nav.locator(f"a[href='#/{place}']").inner_text()
            await expect(screen.heading).to_have_text(re.compile(f"{name}|{UNSHOWN}"))
            await screen.settled()
            await expect(screen.heading).to_be_visible()
    await screen.run("location.hash = '#/tasks'")
    await expect(screen.heading).to_have_text("Tasks")
    await expect(screen.link("demo", exact=False).first).to_be_visible()


async def test_a_save_that_a_proxy_answers_keeps_what_was_typed(screen: Screen, site: Site):
    screen.watch.allow(STATUS)
    record = {"server_id": "kept", "transport": "stdio", "stdio": {"command": "true"}}
    await site.ask("POST", SERVERS, token=site.admin, body=record)
    before = await site.get(f"{SERVERS}/kept")
    await screen.open("servers/kept/edit")
    await screen.field("Name optional").fill("typed")
    async with answering(screen, SIGN_IN, status=502, kind="text/html", method="PUT"):
        await screen.button("Review and save").click()
        await screen.says(f"The answer (status 502) {NOT_OURS}")
    await expect(screen.field("Name optional")).to_have_value("typed")
    assert (await site.get(f"{SERVERS}/kept"))["revision"] == before["revision"]
    await screen.page.close()  # it would ask for what is gone
    await site.ask("DELETE", f"{SERVERS}/kept", token=site.admin)


async def test_a_page_says_why_it_does_not_open_and_opens_when_it_can(screen: Screen):
    async with answering(screen, '{"role": "admin"}', at="**/api/v1/identity"):
        await screen.page.goto(f"{screen.site.url}/admin/#/tasks")
        await screen.says(NOT_OURS)
    await expect(screen.heading).to_have_text("Tasks")


async def test_a_token_that_no_header_can_hold_leads_to_the_way_in(visit: Visit, site: Site):
    screen = await visit(site, role=None)
    await screen.page.goto(f"{site.url}/admin/")
    await screen.run(f"localStorage.setItem('{TOKEN}', 'left by another ☃\\n')")
    await screen.page.reload()
    await screen.says("Sign in with a link")


async def test_a_garbled_code_does_not_stay_in_the_address(visit: Visit, site: Site):
    screen = await visit(site, role=None)
    screen.watch.allow(r"status of 401 \(Unauthorized\)")
    await screen.page.goto(site.link(f"{await site.code()}%20."))
    await screen.says("make a new link with: bascule web")
    assert "code" not in screen.page.url
