"""A person's own page: what their task offers, switched off and on for themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Locator, expect

from tests.browser.furniture import RECORDS, SHOWN, lab, listed, standing
from tests.browser.screen import PHONE, Screen
from tests.browser.site import Site
from tests.browser.visit import TOKEN, Visit

TASK = "household"


@pytest.fixture(scope="module")
async def home(site: Site, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A task of two servers, for people of whom one is narrowed and one is off."""
    task = {"task_id": TASK, "mcp": {"enabled": True, "default_server_ids": ["notes", "shed"]}}
    people = [
        {"user_id": "pia"},
        {"user_id": "kim", "enabled_server_ids": ["shed"], "tool_denylist": ["shed/delete_all"]},
        {"user_id": "leo", "enabled": False},
    ]
    servers = [lab(tmp_path_factory.mktemp("lab"), "shed")]
    async with standing(site, servers=servers, tasks=[task], users=people):
        await listed(site, "shed")
        await listed(site, "notes")
        yield site


async def own_of(site: Site, person: str) -> dict[str, Any]:
    """Return what a person chose, without what says nothing."""
    own = (await site.get(f"{RECORDS}/users/{person}")).get("own") or {}
    return {name: value for name, value in own.items() if value not in (None, [], False)}


def notes(screen: Screen) -> Locator:
    return screen.page.get_by_role("article", name="Notes (demo)")


def switch(screen: Screen, name: str) -> Locator:
    return screen.page.get_by_role("switch", name=name, exact=True)


@pytest.mark.requirement("admin:web:by-server")
async def test_a_person_switches_integrations_and_tools_off_and_on_by_keyboard_alone(
    visit: Visit, home: Site
):
    screen = await visit(home, "client", person="pia", task=TASK)
    await screen.open()
    await expect(screen.heading).to_have_text("Your integrations")
    await expect(notes(screen)).to_contain_text("reads: 4 tools")
    await expect(notes(screen)).to_contain_text("writes: 2 tools")
    await screen.axe()
    await screen.press(switch(screen, "Use Notes (demo)"), "Space")
    await expect(notes(screen)).to_contain_text("reads: 0 of 4 tools")
    assert await own_of(home, "pia") == {"enabled_server_ids": ["shed"]}
    await screen.press(switch(screen, "Use Notes (demo)"), "Space")
    await expect(notes(screen)).to_contain_text("reads: 4 tools")
    assert await own_of(home, "pia") == {}

    await screen.press(notes(screen).get_by_role("button", name="Choose its tools one by one"))
    writes = screen.page.get_by_role("region", name="Writes of Notes (demo)")
    await expect(writes.get_by_role("switch")).to_have_count(2)
    await screen.press(writes.get_by_role("switch", name="delete_note"), "Space")
    await expect(notes(screen)).to_contain_text("writes: 1 of 2 tools")
    assert await own_of(home, "pia") == {"tool_denylist": ["notes/delete_note"]}
    await screen.axe()
    await screen.press(writes.get_by_role("switch", name="delete_note"), "Space")
    await expect(notes(screen)).to_contain_text("writes: 2 tools")

    await screen.press(switch(screen, "Read only, everywhere"), "Space")
    await expect(notes(screen)).to_contain_text("writes: 0 of 2 tools")
    await screen.says("Left out: you chose read only")
    assert await own_of(home, "pia") == {"read_only": True}
    await screen.press(switch(screen, "Read only, everywhere"), "Space")
    await expect(notes(screen)).to_contain_text("writes: 2 tools")


@pytest.mark.requirement("admin:web:by-server")
async def test_what_an_administrator_left_out_is_said_and_cannot_be_switched_on(
    visit: Visit, home: Site
):
    screen = await visit(home, "client", person="kim", task=TASK, size=PHONE, colours="dark")
    await screen.open()
    left = screen.page.get_by_role("region", name="Left out by an administrator")
    await expect(left).to_contain_text("Notes (demo)")
    await expect(switch(screen, "Use Notes (demo)")).to_have_count(0)
    await expect(screen.page.get_by_role("article")).to_contain_text(SHOWN)
    await screen.button("Choose its tools one by one").click()
    writes = screen.page.get_by_role("region", name="Writes of Lab", exact=False)
    await expect(writes.get_by_role("switch", name="file_issue")).to_be_checked()
    await expect(writes.get_by_role("switch", name="delete_all")).to_have_count(0)
    await expect(writes).to_contain_text("Left out by an administrator")
    await screen.fits()
    await screen.axe("dark")


async def test_patterns_of_ones_own_are_told_and_taken_back(visit: Visit, home: Site):
    token = await home.sign_in("client", person="pia", task=TASK)
    choice = {"tool_denylist": ["delete_*"]}
    await home.ask("PATCH", "/api/v1/me", token=token, body=choice)
    screen = await visit(home, "client", person="pia", task=TASK)
    await screen.open()
    await expect(notes(screen)).to_contain_text("writes: 1 of 2 tools")
    await notes(screen).get_by_role("button", name="Choose its tools one by one").click()
    await switch(screen, "delete_note").click()
    await expect(switch(screen, "delete_note")).not_to_be_checked()
    await screen.button("Take them back").click()
    await expect(switch(screen, "delete_note")).to_be_checked()
    assert await own_of(home, "pia") == {}


async def test_a_token_of_nobody_sees_the_task_and_has_nothing_to_switch(visit: Visit, home: Site):
    screen = await visit(home, "client", task=TASK)
    await screen.open()
    await screen.says("This token speaks for nobody")
    await expect(notes(screen)).to_contain_text("reads: 4 tools")
    await expect(screen.page.get_by_role("switch")).to_have_count(0)
    await screen.axe("light")


async def test_somebody_who_is_off_reads_why_and_signs_out(visit: Visit, home: Site):
    screen = await visit(home, "client", person="leo", task=TASK)
    await screen.open()
    await screen.says("user 'leo' is disabled")
    await screen.button("Colours: system").click()
    await expect(screen.button("Colours: light")).to_be_visible()
    await screen.button("Sign out").click()
    await screen.says("Sign in with a link")
    assert await screen.stored(TOKEN) is None


async def test_a_choice_that_is_refused_changes_no_switch(visit: Visit, home: Site):
    screen = await visit(home, "client", person="pia", task=TASK)
    screen.watch.allow("status of 404")
    await screen.open()
    await expect(switch(screen, "Use Notes (demo)")).to_be_checked()
    await home.ask("DELETE", f"{RECORDS}/users/pia", token=home.admin)
    await switch(screen, "Use Notes (demo)").click()
    await expect(screen.page.get_by_role("alert")).to_contain_text("there is no user")
    await expect(switch(screen, "Use Notes (demo)")).to_be_checked()
    made = await home.ask("PUT", f"{RECORDS}/users/pia", token=home.admin, body={"user_id": "pia"})
    assert made[0] == 201
