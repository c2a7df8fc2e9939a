"""Tasks: servers by switch, tools by a click, and what that comes to before it is saved."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Locator, expect

from tests.browser.furniture import HOSTILE, RECORDS, SHOWN, lab, listed, standing
from tests.browser.screen import PHONE, Screen
from tests.browser.site import Site
from tests.browser.visit import Visit

TASKS = f"{RECORDS}/tasks"
POLICY = {"enabled": True, "default_server_ids": ["bench"], "read_only": True}


@pytest.fixture(scope="module")
async def furnished(site: Site, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    task = {"task_id": "essays", "name": f"Essays {HOSTILE}", "description": HOSTILE}
    servers = [lab(tmp_path_factory.mktemp("lab"), "bench")]
    async with standing(site, servers=servers, tasks=[{**task, "mcp": POLICY}]):
        await listed(site, "bench")
        await listed(site, "notes")
        yield site


def effective(screen: Screen) -> Locator:
    return screen.page.get_by_role("region", name="What this comes to")


async def saved(screen: Screen) -> None:
    await screen.button("Review and save").click()
    dialog = screen.dialog("What this changes")
    await dialog.get_by_role("button", name="Save", exact=True).click()
    await screen.says("Saved as revision")


@pytest.mark.requirement("admin:web:tasks")
async def test_a_task_is_made_by_keyboard_alone_and_reads_until_told_otherwise(
    screen: Screen, furnished: Site
):
    await screen.open("tasks/new")
    keyboard = screen.page.keyboard
    await screen.tab_to(screen.field("Id"))
    await keyboard.type("typed")
    await screen.press(screen.page.get_by_role("switch", name="Notes (demo)"), "Space")
    await expect(effective(screen)).to_contain_text("4 tools of 1 server")
    await screen.press(effective(screen).get_by_role("button", name="Notes (demo)"))
    await screen.press(screen.button("Let in write_note"))
    await expect(effective(screen)).to_contain_text("5 tools of 1 server, 1 of them writes")
    await screen.axe()
    await screen.press(screen.button("Review and save"))
    dialog = screen.dialog("What this changes")
    await expect(dialog).to_contain_text("typed")
    await screen.press(dialog.get_by_role("button", name="Save", exact=True))
    await expect(screen.heading).to_have_text("typed")
    await screen.leave()
    made = (await furnished.get(f"{TASKS}/typed"))["mcp"]
    assert made["default_server_ids"] == ["notes"]
    assert "notes/write_note" in made["tool_allowlist"]
    assert "notes/delete_note" not in made["tool_allowlist"]
    await furnished.ask("DELETE", f"{TASKS}/typed", token=furnished.admin)


async def test_numbers_that_nobody_touched_are_saved_as_they_were_written(
    screen: Screen, furnished: Site
):
    numbers = {"rate": 1.0, "tiny": 1e-7, "more": {"list": [2.0, 3, 9007199254740993]}}
    task = {"task_id": "exact", "config": numbers}
    async with standing(furnished, tasks=[task]):
        await screen.open("tasks/exact/edit")
        await screen.field("Description optional").fill("Another one")
        await screen.button("JSON").click()
        record = screen.field("Record")
        await record.fill((await record.input_value()).replace("3,", "4,"))
        await saved(screen)
        await screen.leave()
        found = await furnished.get(f"{TASKS}/exact")
    numbers["more"] = {"list": [2.0, 4, 9007199254740993]}
    assert found["description"] == "Another one"
    assert repr({name: found["config"][name] for name in numbers}) == repr(numbers)


@pytest.mark.requirement("admin:web:tasks")
async def test_servers_are_switched_and_tools_left_out_and_the_difference_is_shown_first(
    screen: Screen, furnished: Site
):
    record = {"task_id": "drafts", "mcp": POLICY}
    async with standing(furnished, tasks=[record]):
        await screen.open("tasks/drafts/edit")
        shown = effective(screen)
        await expect(shown).to_contain_text("2 tools of 1 server")
        await shown.get_by_role("button", name="Lab", exact=False).click()
        await screen.button("Leave out read_long").click()
        await expect(shown).to_contain_text("1 tool of 1 server")
        await screen.page.get_by_role("switch", name="Notes (demo)").click()
        await expect(shown).to_contain_text("5 tools of 2 servers")
        await screen.axe()
        await screen.button("Review and save").click()
        dialog = screen.dialog("What this changes")
        await expect(dialog).to_contain_text("bench/read_long")
        await dialog.get_by_role("button", name="Back to editing").click()
        await screen.button("Let in read_long").click()
        await expect(shown).to_contain_text("6 tools of 2 servers")
        await saved(screen)
        await screen.leave()
        made = (await furnished.get(f"{TASKS}/drafts"))["mcp"]
        assert made["default_server_ids"] == ["bench", "notes"]
        assert not made.get("tool_denylist")


async def test_what_is_not_valid_is_told_at_its_field_while_it_is_typed(
    screen: Screen, furnished: Site
):
    screen.watch.allow("status of 422")
    await screen.open("tasks/essays/edit")
    await expect(effective(screen)).to_contain_text("of 1 server")
    await screen.page.get_by_text("On request, by tag, by tool name").click()
    await screen.field("Only these").nth(1).check()
    tags = screen.field("Server tags").last
    await tags.fill("no tag!")
    await tags.press("Enter")
    await expect(tags).to_have_attribute("aria-invalid", "true")
    await expect(effective(screen)).to_contain_text("not valid yet: see the marked field")
    await screen.axe("light")
    await screen.button("Undo all changes").click()
    await expect(effective(screen)).not_to_contain_text("not valid yet")


@pytest.mark.requirement("admin:page:only-text")
async def test_a_task_of_hostile_words_is_shown_as_text_and_can_be_deleted(
    screen: Screen, furnished: Site
):
    extra = {"task_id": "doomed", "name": HOSTILE, "mcp": {"enabled": True}}
    async with standing(furnished, tasks=[extra]):
        await screen.open("tasks")
        await screen.field("Filter tasks").fill("doomed")
        await screen.link(SHOWN, exact=False).click()
        await expect(screen.heading).to_have_text(SHOWN)
        await screen.axe()
        await screen.button("Delete").click()
        await screen.dialog("Delete doomed?").get_by_role("button", name="Delete doomed").click()
        await screen.says("Deleted doomed.")
        assert (await furnished.ask("GET", f"{TASKS}/doomed", token=furnished.admin))[0] == 404


@pytest.mark.requirement("admin:page:roles")
async def test_a_task_fits_a_phone_and_a_viewer_sees_it_without_buttons(
    visit: Visit, furnished: Site
):
    screen = await visit(furnished, "viewer", size=PHONE, colours="dark")
    await screen.open("tasks/essays/edit")
    await expect(effective(screen)).to_contain_text("of 1 server")
    await screen.fits()
    await screen.axe("dark")
    await expect(screen.button("Review and save")).to_have_count(0)
    await expect(screen.page.get_by_role("switch", name="Notes (demo)")).to_be_disabled()
    await effective(screen).get_by_role("button", name="Lab", exact=False).click()
    await expect(screen.button("Leave out read_long")).to_have_count(0)
