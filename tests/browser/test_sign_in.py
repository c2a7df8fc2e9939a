"""The way into the page: a link that works once, and what is said of one that does not."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.screen import Screen
from tests.browser.site import Site
from tests.browser.visit import TOKEN, Visit

NO_GOOD = "make a new link with: bascule web"
UNAUTHORISED = r"status of 401 \(Unauthorized\)"


@pytest.mark.requirement("admin:login:shown-first")
async def test_a_link_says_whose_session_it_opens_and_opens_it(visit: Visit, site: Site):
    screen = await visit(site, role=None)
    await screen.page.goto(site.link(await site.code("operator")))
    await screen.says("This link signs you in as operator")
    assert "code" not in screen.page.url
    assert await screen.stored(TOKEN) is None
    await screen.axe()
    await screen.button("Continue as operator").click()
    await expect(screen.heading).to_be_visible()
    await expect(screen.nav).to_contain_text("operator")
    await screen.page.reload()
    await expect(screen.heading).to_be_visible()


async def test_a_link_that_is_typed_opens_the_page_by_keyboard_alone(visit: Visit, site: Site):
    screen = await visit(site, role=None)
    await screen.page.goto(f"{site.url}/")
    await screen.says("Sign in with a link")
    await screen.axe()
    await screen.tab_to(screen.field("Link or code"))
    await screen.page.keyboard.type(site.link(await site.code()))
    await screen.page.keyboard.press("Enter")
    await screen.press(screen.button("Continue as admin"))
    await expect(screen.heading).to_be_visible()


@pytest.mark.requirement("admin:login:one-answer")
@pytest.mark.parametrize("how", ["used", "ended", "garbled"])
async def test_a_code_that_opens_nothing_is_told_in_one_sentence(
    visit: Visit, site: Site, how: str
):
    code = await site.code()
    if how == "used":
        await site.ask("POST", "/admin/api/login", body={"code": code})
    elif how == "ended":
        await site.revoke(code)
    else:
        code = f"{code[:-4]}gone"
    screen = await visit(site, role=None)
    screen.watch.allow(UNAUTHORISED)
    await screen.page.goto(site.link(code))
    await screen.says(NO_GOOD)
    await expect(screen.field("Link or code")).to_be_visible()
    await screen.axe()


@pytest.mark.requirement("admin:login:once")
async def test_a_code_that_comes_again_ends_the_session_that_it_gave(visit: Visit, site: Site):
    code = await site.code()
    first, second = await visit(site, role=None), await visit(site, role=None)
    for screen in (first, second):
        screen.watch.allow(UNAUTHORISED)
    await first.page.goto(site.link(code))
    await first.button("Continue as admin").click()
    await expect(first.heading).to_be_visible()
    await second.page.goto(site.link(code))
    await second.says(NO_GOOD)
    await expect(first.dialog("Your session ended")).to_be_visible()


async def test_signing_out_ends_the_token_and_forgets_it(screen: Screen):
    await screen.open("servers")
    token = await screen.stored(TOKEN)
    screen.watch.allow(UNAUTHORISED)
    await screen.button("Sign out").click()
    await screen.says("Sign in with a link")
    assert await screen.stored(TOKEN) is None
    status, _ = await screen.site.ask("GET", "/api/v1/identity", token=token)
    assert status == 401


async def test_a_link_that_is_opened_in_an_open_page_loses_nothing_that_was_typed(screen: Screen):
    await screen.open("profiles/new")
    await screen.field("Name").fill("typed-before")
    await screen.run(f"location.hash = '#code={await screen.site.code()}'")
    await screen.button("Continue as admin").click()
    await screen.says_not("Continue as admin")
    await expect(screen.field("Name")).to_have_value("typed-before")
    await screen.run(f"location.hash = '#code={await screen.site.code('viewer')}'")
    await screen.button("Continue as viewer").click()
    await expect(screen.nav).to_contain_text("viewer")
