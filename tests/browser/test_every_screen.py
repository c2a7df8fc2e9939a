"""Every screen opens: empty and with the demo, light and dark, wide and on a phone."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.screen import COLOURS, DESK, PHONE, SCREENS
from tests.browser.site import Site
from tests.browser.visit import Visit


@pytest.mark.parametrize("place", SCREENS)
async def test_a_screen_with_the_demo_is_fit_for_everybody(visit: Visit, site: Site, place: str):
    await look(visit, site, place)


@pytest.mark.parametrize("place", SCREENS)
async def test_a_screen_with_nothing_to_show_is_too(visit: Visit, empty_site: Site, place: str):
    await look(visit, empty_site, place)


async def look(visit: Visit, site: Site, place: str) -> None:
    screen = await visit(site, size=PHONE)
    await screen.open(place)
    await screen.settled()
    await screen.fits()
    await screen.axe("light")
    await screen.resize(DESK)
    await expect(screen.page.get_by_role("navigation")).to_be_visible()
    await screen.fits()
    await screen.axe(*COLOURS)


async def test_the_list_of_screens_here_is_that_of_the_page(visit: Visit, site: Site):
    screen = await visit(site)
    await screen.open("servers")
    places = screen.page.get_by_role("navigation").get_by_role("listitem").get_by_role("link")
    found = [await one.get_attribute("href") for one in await places.all()]
    assert found == [f"#/{place}" for place in SCREENS]
