"""Every screen opens: empty and with the demo, light and dark, wide and on a phone."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.screen import DESK, PHONE, SCREENS, Screen
from tests.browser.site import Site
from tests.browser.visit import Visit


@pytest.mark.requirement("admin:page:for-everybody", "admin:page:own-host")
async def test_every_screen_with_the_demo_is_fit_for_everybody(visit: Visit, site: Site):
    await walk(await visit(site))


@pytest.mark.requirement("admin:page:for-everybody")
async def test_every_screen_with_nothing_to_show_is_too(visit: Visit, empty_site: Site):
    await walk(await visit(empty_site))


async def walk(screen: Screen) -> None:
    """Look at every screen; tell of all that are not as they should be."""
    found: dict[str, str] = {}
    for place in SCREENS:
        try:
            await look(screen, place)
        except AssertionError as error:
            found[place] = str(error)
    assert not found, "\n\n".join(f"{place}: {words}" for place, words in found.items())


async def look(screen: Screen, place: str) -> None:
    await screen.resize(PHONE)
    await screen.open(place)
    await screen.settled()
    await screen.fits()
    await screen.axe("dark")
    await screen.resize(DESK)
    await expect(screen.nav).to_be_visible()
    await screen.fits()
    await screen.axe("light")


async def test_the_list_of_screens_here_is_that_of_the_page(screen: Screen):
    await screen.open("servers")
    places = screen.nav.get_by_role("listitem").get_by_role("link")
    found = [await one.get_attribute("href") for one in await places.all()]
    assert found == [f"#/{place}" for place in SCREENS]
