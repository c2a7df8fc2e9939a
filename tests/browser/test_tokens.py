"""Tokens and nodes on the page: made once, shown once, revoked after a question."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.screen import PHONE, Screen
from tests.browser.site import Site
from tests.browser.visit import Visit


@pytest.mark.requirement("admin:web:tokens")
async def test_a_token_is_made_shown_once_used_and_revoked(screen: Screen):
    await screen.open("tokens")
    await screen.button("Make a token").click()
    await screen.field("Role").select_option("client")
    await expect(screen.field("Task")).to_have_value("demo")
    await screen.dialog("Make a token").get_by_label("Name").fill("made on the page")
    await screen.axe()
    await screen.button("Make the token").click()
    made = screen.dialog("New token: made on the page")
    token = await made.locator("pre").first.inner_text()
    for client in ("Claude Code", "Claude Desktop"):
        await made.get_by_role("button", name=client).click()
        await expect(made.locator("pre").last).to_contain_text(f"{screen.site.url}/mcp")
        await expect(made.locator("pre").last).to_contain_text(f"Bearer {token}")
    await screen.axe()
    await screen.button("I have copied it").click()
    status, _ = await screen.site.ask("GET", "/api/v1/tools", token=token)
    assert status == 200
    assert token not in await screen.page.content()
    row = screen.row("made on the page")
    await expect(row).to_contain_text("valid")
    await row.get_by_role("button").click()
    await screen.dialog("Revoke made on the page?").get_by_role("button", name="Revoke").click()
    await expect(row).to_have_count(0)
    status, _ = await screen.site.ask("GET", "/api/v1/tools", token=token)
    assert status == 401


async def test_what_is_wrong_with_a_token_stands_next_to_its_field(screen: Screen):
    screen.watch.allow("status of 422")
    await screen.open("tokens")
    await screen.press(screen.button("Make a token"))
    await screen.field("Role").select_option("approver")
    person = screen.dialog("Make a token").get_by_label("Person")
    await person.fill("no such name")
    await screen.field("Lasts").select_option("Other…")
    await screen.field("Seconds").fill("0")
    await screen.button("Make the token").click()
    await expect(screen.field("Seconds")).to_have_attribute("aria-invalid", "true")
    await screen.field("Seconds").fill("60")
    await screen.press(screen.button("Make the token"))
    await expect(person).to_have_attribute("aria-invalid", "true")
    await person.fill("")
    await screen.field("Only these tasks").fill("demo")
    await screen.button("Make the token").click()
    await screen.button("I have copied it").click()
    await expect(screen.row("only demo")).to_contain_text("approver")


async def test_the_tokens_of_pages_are_among_them_and_one_is_found_by_its_name(screen: Screen):
    await screen.open("tokens")
    await expect(screen.row("this web page").first).to_be_visible()
    await screen.field("Filter by name, role, task or person").fill("nothing like this")
    await screen.says("No token matches")
    await screen.button("Show all").click()
    await expect(screen.row("this web page").first).to_be_visible()


async def test_a_node_is_shown_with_its_revision_and_its_servers(visit: Visit, site: Site):
    screen = await visit(site, "viewer", size=PHONE)
    await screen.open("nodes")
    row = screen.page.get_by_role("row").filter(has_text="local")
    await expect(row).to_contain_text("Connected")
    await screen.fits()
    await screen.axe()
