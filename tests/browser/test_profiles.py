"""Profiles: made, changed, taken back and deleted on the page."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.furniture import HOSTILE, RECORDS, SHOWN, listed, standing
from tests.browser.screen import Screen
from tests.browser.site import Site
from tests.browser.visit import Visit

PROFILES = f"{RECORDS}/profiles"


async def save(screen: Screen) -> None:
    await screen.button("Review and save").click()
    dialog = screen.dialog("What this changes")
    await dialog.get_by_role("button", name="Save", exact=True).click()
    await screen.says("Saved as revision")


@pytest.mark.requirement("admin:web:profiles")
async def test_a_profile_is_made_changed_taken_back_and_deleted(screen: Screen, site: Site):
    await listed(site, "notes")
    await screen.open("profiles")
    await screen.says("No profiles yet")
    await screen.link("Add a profile").click()
    await screen.field("Name").fill("readers")
    await screen.field("Only these").first.check()
    await screen.page.get_by_role("switch", name="Notes (demo)").click()
    await screen.page.get_by_role("switch", name="Read only").click()
    await screen.says("4 tools of 1 server")
    await screen.axe()
    await save(screen)
    await expect(screen.heading).to_have_text("readers")
    await screen.says("What a task with this profile alone may use")
    await screen.axe()
    made = await site.get(f"{PROFILES}/readers")
    assert (made["default_server_ids"], made["read_only"]) == (["notes"], True)

    await screen.link("Edit").click()
    await screen.page.get_by_label("Description").fill("Who only reads")
    await save(screen)
    await screen.link("History").click()
    await screen.button("Go back to this").click()
    back = screen.page.get_by_role("dialog")
    await expect(back).to_contain_text("Who only reads")
    await back.get_by_role("button", name="Go back", exact=True).click()
    await screen.says("Back as it was at revision")
    assert not (await site.get(f"{PROFILES}/readers")).get("description")

    await screen.link("TOML").click()
    await screen.says('name = "readers"')
    await screen.button("Delete").click()
    await screen.dialog("Delete readers?").get_by_role("button", name="Delete readers").click()
    await screen.says("No profiles yet")
    assert (await site.ask("GET", f"{PROFILES}/readers", token=site.admin))[0] == 404


@pytest.mark.requirement("admin:page:hostile-words")
async def test_a_name_that_will_not_do_is_told_at_its_field_and_hostile_words_are_text(
    visit: Visit, site: Site
):
    screen = await visit(site)
    screen.watch.allow("status of 422")
    await screen.open("profiles/new")
    await screen.field("Name").fill("not a name")
    await screen.button("Review and save").click()
    await expect(screen.field("Name")).to_have_attribute("aria-invalid", "true")
    await screen.axe("dark")
    await screen.button("Undo all changes").click()
    record = {"name": "hostile", "description": HOSTILE, "default_server_ids": ["notes"]}
    async with standing(site, profiles=[record]):
        await screen.open("profiles/hostile")
        await screen.says(SHOWN)
        await screen.axe("light")
        await screen.leave()
