"""Tools: the list, one of them, who can call it, and trying it as a task."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Locator, expect

from tests.browser.furniture import SHOWN, crowd, lab, listed, standing
from tests.browser.screen import Screen
from tests.browser.site import Site
from tests.browser.visit import Visit
from tests.scale import scaled

APPROVALS = "/admin/api/approvals"


@pytest.fixture(scope="module")
async def furnished(site: Site, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A task with a server that behaves badly, a task for others, and a person."""
    policy = {"enabled": True, "default_server_ids": ["lab"]}
    tasks = [
        {"task_id": "experiments", "name": "Experiments", "mcp": policy},
        {"task_id": "closed", "name": "Closed", "mcp": {**policy, "allowed_groups": ["a"]}},
    ]
    people = [{"user_id": "tess", "tool_denylist": ["lab/delete_all"]}]
    servers = [lab(tmp_path_factory.mktemp("lab"))]
    async with standing(site, servers=servers, tasks=tasks, users=people):
        await listed(site, "lab")
        await listed(site, "notes")
        yield site


def outcome(screen: Screen) -> Locator:
    return screen.page.get_by_label("What came of it")


@pytest.mark.requirement("admin:web:tools")
async def test_tools_are_filtered_and_opened_by_keyboard_alone(screen: Screen, furnished: Site):
    await screen.open("tools")
    lines = screen.page.get_by_role("list", name="Tools").get_by_role("listitem")
    await expect(lines.filter(has_text="write_note")).to_have_count(1)
    await screen.axe()
    await screen.press(screen.button("Writes", exact=False), "Space")
    await expect(lines.filter(has_text="read_note")).to_have_count(0)
    await expect(lines.filter(has_text="delete_note")).to_contain_text("asks")
    await screen.page.keyboard.press("/")
    await screen.page.keyboard.type("note write")
    await expect(lines).to_have_count(1)
    await screen.press(screen.link("write_note", exact=False))
    await expect(screen.heading).to_have_text("write_note")
    await screen.open("tools")
    await screen.field("Filter tools").fill("no such tool")
    await screen.button("Show all").click()
    await expect(lines.filter(has_text="read_note")).to_have_count(1)


@pytest.mark.requirement("admin:web:tools")
async def test_a_tool_shows_its_words_as_text_and_who_can_call_it_and_why(
    screen: Screen, furnished: Site
):
    await screen.open("tools/lab/delete_all")
    await screen.says("<script>alert(1)</script>")
    await screen.button("show", exact=False).click()
    await screen.axe()
    await screen.link("Who can call this").click()
    task = screen.page.get_by_role("listitem").filter(has=screen.link("experiments"))
    await expect(task.first).to_contain_text("may call it")
    tess = task.get_by_role("listitem").filter(has=screen.link("tess"))
    await expect(tess).to_contain_text("left out for this person")
    await screen.says("bascule tasks use demo lab")
    await screen.axe()
    await screen.open("tools/lab/file_issue")
    await screen.says("the server's own word")
    await screen.open("tools/lab/gone")
    await screen.says("This tool is not known")


@pytest.mark.requirement("admin:web:try")
async def test_arguments_that_do_not_fit_are_told_at_their_fields_and_others_are_sent(
    screen: Screen, furnished: Site
):
    await screen.open("tools/lab/file_issue/try")
    await screen.field("title").fill("A crash")
    await screen.page.get_by_label("count").fill("9")
    await screen.button("Call file_issue").click()
    await screen.says("Nothing was called: see the marked fields.")
    await expect(screen.page.get_by_label("count")).to_have_attribute("aria-invalid", "true")
    await screen.says("greater than the maximum of 5")
    await expect(screen.field("kind")).to_have_attribute("aria-invalid", "true")
    await screen.axe()
    await screen.page.get_by_label("count").fill("3")
    await screen.field("kind").select_option("bug")
    await screen.page.get_by_label("urgent").select_option("yes")
    await screen.page.get_by_label("labels").fill("new,")
    await screen.page.get_by_label("name", exact=False).last.fill("Ann")
    await screen.page.get_by_label("either").fill("7")
    await screen.button("Call file_issue").click()
    told = outcome(screen).get_by_label("Structured result")
    await expect(told).to_contain_text('"either": 7')
    for part in ('"urgent": true', '"labels": [\n    "new"', '"name": "Ann"', '"count": 3'):
        await expect(told).to_contain_text(part)
    await screen.button("Type the arguments as JSON").click()
    await expect(screen.field("Arguments")).to_have_value(re.compile('"title": "A crash"'))
    await screen.axe()


@pytest.mark.requirement("admin:web:try")
async def test_a_schema_too_wide_for_a_form_is_typed_as_json_and_checked(
    screen: Screen, furnished: Site
):
    await screen.open("tools/lab/write_wide/try")
    await screen.says("This schema has more than a form can show")
    await screen.field("Arguments").fill('{"p7": 1}')
    await screen.button("Call write_wide").click()
    await screen.says('p7 the value is not of type "string"')
    await screen.field("Arguments").fill('{"p7": ')
    await screen.says("This is not JSON yet")
    await screen.axe()


@pytest.mark.requirement("admin:page:hostile-words")
async def test_an_answer_of_a_megabyte_in_one_line_is_cut(screen: Screen, furnished: Site):
    await screen.open("tools/lab/read_long/try")
    await screen.button("Call read_long").click()
    await screen.says("980,000 more characters")
    await screen.fits()
    await screen.axe("light")


@pytest.mark.requirement("admin:web:try")
async def test_a_call_shows_its_progress_and_can_be_cancelled(screen: Screen, furnished: Site):
    await screen.open("tools/lab/read_slowly/try")
    await screen.page.get_by_label("text").fill("halfway <b>there</b>")
    await screen.button("Call read_slowly").click()
    await screen.says(": halfway <b>there</b>")
    await screen.axe("dark")
    await screen.button("Cancel").click()
    await screen.says("Cancelled: the call was ended at its server.")


@pytest.mark.requirement("admin:web:tools")
@pytest.mark.requirement("admin:web:try")
async def test_a_call_waits_for_approval_and_goes_on(screen: Screen, furnished: Site):
    await screen.open("tools/lab/delete_all/try")
    await screen.says("This tool writes")
    await screen.button("Call delete_all").click()
    await screen.says("It waits for somebody's approval")
    place = await screen.link("Look at the question").get_attribute("href") or ""
    id = place.rpartition("/")[2]
    asked = await furnished.get(f"{APPROVALS}/{id}")
    decision = {"decision": "approve", "digest": asked["digest"], "reason": ""}
    where = f"{APPROVALS}/{id}/decision"
    status, answer = await furnished.ask("POST", where, token=furnished.admin, body=decision)
    assert status == 200, answer
    await expect(outcome(screen)).to_contain_text("all gone")
    await screen.link("Its life in the audit").click()
    await expect(screen.heading).not_to_have_text("delete_all")


async def test_a_session_that_is_refused_says_why(screen: Screen, furnished: Site):
    screen.watch.allow("status of 403")
    await screen.open("tools/lab/read_long/try")
    await screen.field("As the task").select_option("Closed")
    await screen.button("Call read_long").click()
    await expect(screen.page.get_by_role("alert")).to_contain_text("group")


async def test_thousands_of_tools_stay_usable(visit: Visit, site: Site, tmp_path: Path):
    names = [f"crowd{n}" for n in range(scaled(20))]
    async with standing(site, servers=[crowd(tmp_path, 500, name) for name in names]):
        for name in names:
            await listed(site, name)
        screen = await visit(site)
        await screen.open("tools")
        await screen.field("Filter tools").fill("crowd thing")
        await screen.says(f"{500 * len(names):,} tools")
        lines = screen.page.get_by_role("list", name="Tools").get_by_role("listitem")
        assert await lines.count() < 60
        await screen.field("Filter tools").fill(f"{names[-1]} thing_00499")
        await expect(lines).to_have_count(1)
        await screen.axe("light")


@pytest.mark.requirement("admin:page:roles")
async def test_a_viewer_sees_tools_and_cannot_try_them(visit: Visit, furnished: Site):
    screen = await visit(furnished, "viewer")
    await screen.open("tools/lab/file_issue")
    await screen.says("Name for models")
    await expect(screen.link("Who can call this")).to_be_visible()
    await expect(screen.link("Try it")).to_have_count(0)
    await screen.open("tools")
    await expect(screen.page.get_by_text(SHOWN)).to_have_count(0)
