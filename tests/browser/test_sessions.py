"""A session that ends under an open page: said, and nothing that was typed is lost."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import expect

from tests.browser.screen import Screen
from tests.browser.site import Site, serving
from tests.browser.test_sign_in import UNAUTHORISED
from tests.browser.visit import TOKEN, Visit

SERVERS = "/admin/api/mcp/servers"
LOST = "The connection to Bascule is lost."
UNREACHABLE = r"net::ERR_(CONNECTION_REFUSED|INCOMPLETE_CHUNKED_ENCODING|CONNECTION_RESET|EMPTY)"


async def sign_in_again(screen: Screen, site: Site) -> None:
    """Take a new link where the page asks for one."""
    asked = screen.dialog("Your session ended")
    await asked.get_by_label("Link or code").fill(site.link(await site.code()))
    await asked.get_by_role("button", name="Continue", exact=True).click()
    await asked.get_by_role("button", name="Continue as admin").click()
    await expect(asked).to_have_count(0)


@pytest.mark.requirement("admin:page:nothing-lost")
async def test_what_was_typed_stays_when_the_session_ends_and_is_saved_in_the_next(
    screen: Screen, site: Site
):
    screen.watch.allow(UNAUTHORISED)
    record = {"server_id": "typed", "transport": "stdio", "stdio": {"command": "true"}}
    status, made = await site.ask("POST", SERVERS, token=site.admin, body=record)
    assert status == 201, made
    await screen.open("servers/typed/edit")
    await screen.field("Name optional").fill("as it was typed")
    await site.end_session(await screen.stored(TOKEN))
    await expect(screen.dialog("Your session ended")).to_be_visible()
    await screen.axe()
    await sign_in_again(screen, site)
    await screen.button("Review and save").click()
    await screen.dialog("What this changes").get_by_role("button", name="Save").click()
    await screen.says("Saved as revision")
    found = await site.get(f"{SERVERS}/typed")
    assert found["display_name"] == "as it was typed"
    await screen.page.close()  # it would ask for what is gone
    await site.ask("DELETE", f"{SERVERS}/typed", token=site.admin)


@pytest.mark.requirement("admin:login:ends")
async def test_whoever_types_for_long_uses_the_session_though_nothing_is_sent(screen: Screen):
    await screen.open("tasks/new")
    name = screen.field("Id")
    await name.focus()
    await screen.page.clock.install()
    await screen.page.clock.fast_forward("06:00")
    async with screen.page.expect_request("**/api/v1/identity"):
        await name.press("a")


@pytest.mark.requirement("admin:page:comes-back")
async def test_a_page_says_that_its_process_is_gone_and_goes_on_with_the_next(
    visit: Visit, tmp_path: Path
):
    data = tmp_path / "data"
    async with serving(data) as first:
        screen = await visit(first)
        screen.watch.allow(UNREACHABLE)
        screen.watch.allow(UNAUTHORISED)
        await screen.open("servers")
        await screen.field("Filter by name, tag or state").fill("demo")
        await first.end()
        await screen.says(LOST)
    async with serving(data, port=urlsplit(first.url).port or 0) as second:
        await expect(screen.dialog("Your session ended")).to_be_visible()
        await sign_in_again(screen, second)
        await screen.says_not(LOST)
        await expect(screen.field("Filter by name, tag or state")).to_have_value("demo")
        await expect(screen.link("demo", exact=False)).to_be_visible()
