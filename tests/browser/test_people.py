"""People: who there is, what each may use, and in which task."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.furniture import HOSTILE, RECORDS, SHOWN, listed, standing
from tests.browser.screen import PHONE, Screen
from tests.browser.site import Site
from tests.browser.visit import Visit

USERS = f"{RECORDS}/users"


@pytest.mark.requirement("admin:web:people")
async def test_a_person_is_added_narrowed_and_looked_at_in_a_task(screen: Screen, site: Site):
    await listed(site, "notes")
    await screen.open("people/new")
    await screen.field("Id").fill("ada")
    await screen.page.get_by_label("Name").fill("Ada A.")
    await screen.page.get_by_label("Groups").fill("writers,")
    await screen.field("Only these").first.check()
    await screen.page.get_by_role("switch", name="Notes (demo)").first.click()
    await screen.page.get_by_role("switch", name="Read only").first.click()
    await screen.axe()
    await screen.button("Review and save").click()
    dialog = screen.dialog("What this changes")
    await dialog.get_by_role("button", name="Save", exact=True).click()
    await expect(screen.heading).to_have_text("Ada A.")
    made = await site.get(f"{USERS}/ada")
    assert (made["enabled_server_ids"], made["read_only"], made["groups"]) == (
        ["notes"],
        True,
        ["writers"],
    )
    await screen.field("In the task").select_option("demo")
    await screen.says("4 tools of 1 server")
    await screen.button("Notes (demo)", exact=False).click()
    await screen.button("write_note", exact=False).click()
    await screen.says("bascule users set ada read_only=false")
    await screen.axe()
    await screen.open("people")
    line = screen.link("Ada A.", exact=False)
    await expect(line).to_contain_text("read only")
    await expect(line).to_contain_text("notes")
    await screen.leave()
    await site.ask("DELETE", f"{USERS}/ada", token=site.admin)


@pytest.mark.requirement("admin:page:hostile-words")
async def test_people_of_hostile_names_are_text_and_one_who_is_off_is_marked(
    visit: Visit, site: Site
):
    people = [
        {"user_id": "eve", "display_name": HOSTILE, "enabled": False},
        {"user_id": "max", "own": {"enabled_server_ids": []}},
    ]
    async with standing(site, users=people):
        screen = await visit(site, "operator", size=PHONE)
        await screen.open("people")
        await expect(screen.link(SHOWN, exact=False)).to_contain_text("off")
        await expect(screen.link("max", exact=False)).to_contain_text("nothing switched on")
        await expect(screen.link("Add a person")).to_have_count(0)
        await screen.fits()
        await screen.axe()
        await screen.link(SHOWN, exact=False).click()
        await screen.says("is disabled")
        await screen.link("Record").click()
        await expect(screen.button("Review and save")).to_have_count(0)
        await screen.fits()
        await screen.axe("dark")
        await screen.leave()
