"""The welcome: what its steps remember, what it says where they cannot run, and its texts."""

from __future__ import annotations

import asyncio
import sys

import pytest
from playwright.async_api import Locator, expect

from bascule.model.json import JsonObject
from tests.browser.screen import PHONE, Screen
from tests.browser.site import Site
from tests.browser.visit import Visit

STEPS = (
    "See the demo\N{RIGHT SINGLE QUOTATION MARK}s tools",
    "Let a model call one",
    "Approve a call",
)


def answer(screen: Screen) -> Locator:
    return screen.page.get_by_role("article")


@pytest.mark.requirement("admin:web:welcome")
async def test_the_steps_go_by_keyboard_and_those_that_ran_are_remembered(screen: Screen):
    await screen.open()
    await expect(screen.heading).to_have_text("Welcome")
    await screen.press(screen.button("Start the server"))
    await screen.press(screen.button("Next"))
    await screen.press(screen.button("Send it"))
    await screen.press(screen.button("Next"))
    await screen.press(screen.button("Send it"))
    await expect(screen.button("Approve")).to_be_visible()
    await screen.resize(PHONE)
    await screen.fits()
    await screen.axe("light")
    await screen.press(screen.button("Approve"))
    await expect(screen.button("Next")).to_be_focused()
    await screen.page.keyboard.press("Enter")
    await screen.press(screen.button("Show the call"))
    await expect(screen.link("Open it in the audit")).to_be_visible()
    await screen.fits()
    await screen.axe("dark")
    await screen.open()
    for title in (*STEPS, "See what was written down"):
        await expect(screen.button(f"{title} (done)")).to_be_visible()
    await screen.button("See what was written down (done)").click()
    await screen.button("Run it again").click()
    await expect(screen.link("Open it in the audit")).to_be_visible()


async def test_a_call_that_is_denied_is_shown_and_can_be_asked_again(screen: Screen):
    await screen.open()
    await screen.button("Approve a call").click()
    await screen.button("Send it").click()
    await screen.button("Deny…").click()
    await screen.field("Why not", exact=False).fill("I need it")
    await screen.button("Deny").click()
    await expect(answer(screen)).to_contain_text("Denied")
    await screen.button("Run it again").click()
    await expect(screen.button("Approve")).to_be_visible()
    await screen.button("Stop").click()
    await expect(answer(screen)).to_contain_text("Stopped")


async def test_a_step_that_cannot_run_says_why(screen: Screen):
    address, off = "/admin/api/mcp/tasks/demo", {"mcp": {"enabled": False}}
    assert (await change(screen.site, address, off))[0] == 200
    try:
        await screen.open()
        await screen.button("Start the server").click()
        await screen.says("The task offers no tool")
        await screen.link("Look at the task").click()
        await expect(screen.heading).to_have_text("Demo")
    finally:
        await change(screen.site, address, {"mcp": {"enabled": True}})


async def change(site: Site, address: str, body: JsonObject) -> tuple[int, object]:
    return await site.ask("PATCH", address, token=site.admin, body=body)


async def test_dismissed_it_opens_no_more_and_clients_are_still_connected(screen: Screen):
    await screen.open()
    await screen.button("Dismiss").click()
    await expect(screen.heading).to_have_text("Overview")
    await expect(screen.nav.get_by_role("link", name="Welcome")).to_have_count(0)
    await screen.open()
    await expect(screen.heading).to_have_text("Overview")
    await screen.link("Connect a client").click()
    await expect(screen.heading).to_have_text("Connect a client")
    await screen.axe("light")


async def test_without_the_demo_it_leads_to_ones_own(visit: Visit, empty_site: Site):
    screen = await visit(empty_site)
    await screen.open()
    await screen.says("The demo is not here")
    await expect(screen.button(STEPS[0])).to_have_count(0)
    await screen.says("There is none yet")
    for name, place in (("Add a server", "new"), ("Import what you have", "import")):
        link = screen.link(name, exact=False)
        await expect(link).to_have_attribute("href", f"#/servers/{place}")


async def test_a_viewer_is_offered_nothing_that_makes_a_token(visit: Visit, site: Site):
    screen = await visit(site, "viewer")
    await screen.open()
    await screen.says("which your role cannot")
    await screen.says("bascule tokens create --role client --task demo")
    await expect(screen.button("Make a token")).to_have_count(0)
    await expect(screen.link("Add a server", exact=False)).to_have_count(0)


@pytest.mark.requirement("admin:web:connect")
async def test_a_token_is_made_shown_once_and_the_program_with_it_runs(screen: Screen):
    await screen.open()
    await screen.button("Make a token").click()
    await screen.says("It is shown this once")
    await screen.button("Claude Code").click()
    text = screen.page.locator("section", has=screen.page.locator("h2#connect")).locator("pre")
    await expect(text.last).to_contain_text(f"bascule {screen.site.url}/mcp --header")
    await expect(text.last).not_to_contain_text("TOKEN")
    await screen.button("Python").click()
    program = await text.last.inner_text()
    python = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(python.communicate(), 20)
    assert "mcp__notes__read_note" in out.decode()
    await screen.open()
    await screen.says("Bearer TOKEN")
