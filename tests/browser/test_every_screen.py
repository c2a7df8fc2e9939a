"""Every screen, form and dialog: empty and with the demo, light and dark, wide and on a phone."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.asking import asking
from tests.browser.furniture import standing
from tests.browser.screen import DESK, PHONE, SCREENS, Screen
from tests.browser.site import Site
from tests.browser.visit import Visit

pytestmark = pytest.mark.requirement("admin:page:for-everybody")
SERVER = {"server_id": "seen", "transport": "stdio", "stdio": {"command": "true"}}
SECRET = "/admin/api/secrets/seen"
TRANSPORTS = ("stdio", "streamable_http", "http_sse_legacy")
FORMS = (
    *("tasks/new", "tasks/demo/edit", "profiles/new", "people/new", "platform/new-backend"),
    *("servers/import", "servers/rescan", "servers/proposals", "tools/notes/write_note/try"),
)
#: Where a dialog is opened, and with which button.
DIALOGS = (
    ("secrets", "Add a secret"),
    ("secrets", "Set a new value of seen"),
    ("secrets", "Bind seen"),
    ("secrets", "Remove seen"),
    ("tokens", "Make a token"),
    ("tokens", "Revoke seen"),
    ("audit", "Verify"),
    ("audit", "Sign a checkpoint"),
    ("servers/seen", "Delete"),
)


@pytest.mark.requirement("admin:page:own-host")
async def test_every_screen_with_the_demo_is_fit_for_everybody(visit: Visit, site: Site):
    assert await walked(await visit(site)) == []


async def test_every_screen_with_nothing_to_show_is_too(visit: Visit, empty_site: Site):
    assert await walked(await visit(empty_site)) == []


async def walked(screen: Screen) -> list[str]:
    """Look at every screen; tell of all that are not as they should be."""
    await screen.open(SCREENS[-1])
    found: list[str] = []
    for place in SCREENS:
        await screen.go(place)
        await look(screen, found)
    return found


async def look(screen: Screen, found: list[str]) -> None:
    try:
        await screen.resize(PHONE)
        await screen.settled()
        await screen.fits()
        await screen.axe("dark")
        await screen.resize(DESK)
        await expect(screen.nav).to_be_visible()
        await screen.fits()
        await screen.axe("light")
    except AssertionError as error:
        found.append(str(error))


async def test_every_form_and_every_dialog_is_too(visit: Visit, site: Site):
    await site.ask("PUT", SECRET, token=site.admin, body={"value": "not to be seen"})
    found: list[str] = []
    screen = await visit(site)
    async with standing(site, servers=[SERVER]), asking(site, "seen") as one:
        await one.delete("seen")
        await screen.open("overview")
        await forms(screen, found)
        await dialogs(screen, found)
        await screen.leave()
    await site.ask("DELETE", SECRET, token=site.admin)
    assert found == []


async def forms(screen: Screen, found: list[str]) -> None:
    for place in FORMS:
        await screen.go(place)
        await unfolded(screen)
        await look(screen, found)
    await screen.go("servers/seen/edit")
    for transport in TRANSPORTS:
        await screen.field("Transport").select_option(transport)
        await unfolded(screen)
        await look(screen, found)
    await screen.field("Address").fill("https://seen.example/mcp")
    await screen.button("Review and save").click()
    await closed(screen, found)
    await screen.button("JSON").click()
    await look(screen, found)
    await screen.button("Undo all changes").click()
    await screen.go("approvals")
    await screen.button("Deny…").click()
    await look(screen, found)


async def dialogs(screen: Screen, found: list[str]) -> None:
    here = ""
    for place, button in DIALOGS:
        if place != here:
            await screen.go(place)
        here = place
        await screen.button(button, exact=button != "Revoke seen").click()
        await closed(screen, found)


async def unfolded(screen: Screen) -> None:
    """Open whatever is folded."""
    await screen.settled()
    await screen.run("for (const one of document.querySelectorAll('details')) one.open = true")


async def closed(screen: Screen, found: list[str]) -> None:
    """Look at the dialog that is open, and close it."""
    dialog = screen.page.get_by_role("dialog")
    await expect(dialog).to_be_visible()
    await look(screen, found)
    await screen.page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)


async def test_the_list_of_screens_here_is_that_of_the_page(screen: Screen):
    await screen.open("servers")
    places = screen.nav.get_by_role("listitem").get_by_role("link")
    found = [await one.get_attribute("href") for one in await places.all()]
    assert found == [f"#/{place}" for place in SCREENS]
