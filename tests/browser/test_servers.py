"""The servers: their list, the tools of one, its test, and who may use it."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from playwright.async_api import expect

from bascule.testing.server import ScriptedServer, do, tool
from tests.browser.screen import PHONE, Screen
from tests.browser.servers import Register, notes, scripted
from tests.browser.site import Site
from tests.browser.visit import Visit
from tests.flow.processes import traces

HOSTILE = '<img src=x onerror="alert(1)">\u202e\u200bgnp.exe'
SHOWN = '<img src=x onerror="alert(1)">\\u202e\\u200bgnp.exe'


@pytest.mark.requirement("admin:web:list")
async def test_a_server_stands_in_the_list_with_all_that_is_known_of_it(
    register: Register, screen: Screen, site: Site
):
    at = await register(notes("listed", tags=["kitchen"], display_name="Listed"))
    await site.ask("POST", f"{at}/test", token=site.admin)
    await screen.open("servers")
    row = screen.page.get_by_role("listitem").filter(has_text="Listed")
    for word in ("listed", "kitchen", "Connected", "Local", "6"):
        await expect(row.get_by_text(word, exact=True)).to_be_visible()
    await expect(row).to_contain_text(re.compile("just now|ago"))
    await screen.field("Filter by name, tag or state").fill("kitchen connected")
    await screen.says("1 of 2 servers")
    await screen.button("State").click()
    await expect(screen.button("State")).to_have_attribute("aria-pressed", "true")
    await row.get_by_role("link").click()
    await expect(screen.heading).to_have_text("Listed")


@pytest.mark.requirement("admin:web:live")
async def test_a_server_that_dies_is_seen_to_be_down_where_it_is_watched(
    register: Register, screen: Screen, site: Site, tmp_path: Path
):
    script = tmp_path / "script.json"
    server = ScriptedServer().saved_to(script)
    await register(scripted("mortal", server))
    await screen.open("servers/mortal/test")
    await screen.button("Test").click()
    await screen.says("It works: 1 tool")
    state = screen.page.locator("header .state")
    await expect(state).to_have_text("Connected")
    script.unlink()
    for pid in traces(str(script)):
        os.kill(pid, signal.SIGKILL)
    await expect(state).not_to_have_text("Connected")
    await screen.link("Tools").last.click()
    await expect(screen.page.get_by_role("alert")).to_be_visible()


@pytest.mark.requirement("admin:web:test")
async def test_a_test_shows_its_steps_and_what_the_program_said(
    register: Register, screen: Screen, site: Site
):
    last = do("stderr", text=f"{HOSTILE}\nno such database\n", then=do("die", code=3))
    await register(scripted("broken", ScriptedServer(at_start=[last])))
    await screen.open("servers/broken/test")
    await screen.button("Test").click()
    steps = screen.page.get_by_role("list", name="Steps").get_by_role("listitem")
    await expect(steps.filter(has_text="failed")).to_contain_text("ms")
    await expect(steps.filter(has_text="List the tools")).to_contain_text("not reached")
    said = screen.page.get_by_label("The last lines of stderr")
    await expect(said).to_contain_text("<img src=x")
    await expect(said).to_contain_text("no such database")
    await screen.axe()


async def test_a_test_that_takes_long_is_cancelled(register: Register, screen: Screen, site: Site):
    screen.watch.allow("ERR_ABORTED")
    never = ScriptedServer(on={"initialize": "never", "server/discover": "never"})
    await register(scripted("silent", never))
    await screen.open("servers/silent/test")
    await screen.button("Test").click()
    waiting = screen.page.get_by_role("listitem").filter(has_text="under way")
    await expect(waiting).to_contain_text("Agree on the protocol")
    await screen.button("Cancel").click()
    await screen.says("Cancelled.")


@pytest.mark.requirement("admin:web:preview")
async def test_tools_are_allowed_one_by_one_and_the_difference_is_shown_first(
    register: Register, screen: Screen, site: Site
):
    at = await register(notes("mine", allowed_tools=["list_*"]))
    await screen.open("servers/mine/tools")
    await screen.says("Its tools are not known yet")
    await screen.axe("light")
    await screen.button("Start it and list its tools").click()
    await screen.says("1 of 6 tools allowed")
    await screen.says("allowed by list_*")
    await expect(screen.page.get_by_role("switch", name="Allow list_notes")).to_be_disabled()
    await screen.page.get_by_role("switch", name="Allow write_note").check()
    await screen.page.get_by_label("only reads: read_note").check()
    await screen.button("Allow all that read").click()
    await screen.says("3 of 6 tools allowed")
    await screen.button("Take the server's word that 3 only read").click()
    await expect(screen.page.get_by_role("heading", name="Read")).to_be_visible()
    await screen.axe()
    await screen.button("Review and save").click()
    review = screen.dialog("What this changes")
    await expect(review.get_by_label("All that changes")).to_contain_text("mcp__mine__write_note")
    await review.get_by_role("button", name="Save").click()
    await screen.says("Saved as revision")
    record = await site.get(at)
    assert record["allowed_tools"] == ["list_*", "write_note", "read_note"]
    assert sorted(record["effects"]["read"]) == [
        *("current_time", "list_notes", "read_note", "search_notes"),
    ]


@pytest.mark.requirement("admin:page:hostile-words")
async def test_a_servers_own_words_are_only_ever_text_and_a_name_is_no_pattern(
    register: Register, screen: Screen, site: Site
):
    tools = [tool("*", description=HOSTILE), tool(HOSTILE, title=HOSTILE), tool("long")]
    tools[2]["description"] = "word " * 2_000
    record = scripted("hostile", ScriptedServer(tools=tools), display_name=HOSTILE)
    at = await register(record)
    await site.ask("POST", f"{at}/test", token=site.admin)
    await screen.open("servers/hostile/tools")
    await expect(screen.heading).to_have_text(SHOWN)
    await screen.says("of 3 tools allowed")
    await expect(screen.page.get_by_role("switch", name="Allow *", exact=True)).to_be_disabled()
    await screen.says("no pattern names it alone")
    await screen.says("more characters")
    await screen.resize(PHONE)
    await screen.fits()
    await screen.axe("dark")


@pytest.mark.requirement("admin:web:delete-confirmed")
async def test_deleting_asks_and_says_which_tasks_lose_what(
    register: Register, screen: Screen, site: Site
):
    at = await register(notes("doomed", allowed_tools=["list_notes"]))
    task = {"task_id": "needy", "mcp": {"enabled": True, "default_server_ids": ["doomed"]}}
    await register(task, "tasks")
    await site.ask("POST", f"{at}/test", token=site.admin)
    await screen.open("servers/doomed/access")
    await expect(
        screen.page.get_by_role("listitem").filter(has_text="needy").first
    ).to_contain_text("1 tool")
    await screen.button("Why needy").click()
    await screen.says("Server's record")
    await screen.axe("dark")
    await screen.button("Delete").click()
    asked = screen.dialog("Delete doomed?")
    await expect(asked.get_by_label("All that changes")).to_contain_text("needy")
    await asked.get_by_role("button", name="Cancel").click()
    await site.get(at)
    await screen.button("Delete").click()
    await asked.get_by_role("button", name="Delete doomed").click()
    await screen.says("Deleted doomed.")
    status, _ = await site.ask("GET", at, token=site.admin)
    assert status == 404


@pytest.mark.requirement("admin:page:roles")
async def test_a_viewer_sees_all_of_it_and_no_button_that_is_not_theirs(
    register: Register, visit: Visit, site: Site
):
    screen = await visit(site, "viewer")
    await register(notes("seen"))
    await screen.open("servers")
    await screen.says("Servers")
    for name in ("Add a server", "Import", "Rescan files"):
        await expect(screen.link(name)).to_have_count(0)
    await screen.open("servers/seen/edit")
    await expect(screen.field("Command")).to_have_attribute("readonly", "")
    for name in ("Delete", "Review and save", "Test these settings"):
        await expect(screen.button(name)).to_have_count(0)
    await expect(screen.link("Test")).to_have_count(0)
