"""The audit trail: searched, followed, one call's life, verified, exported and signed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, expect

from tests.browser.screen import Screen
from tests.browser.site import Site
from tests.browser.visit import Visit

NOTES = "mcp__notes__"


async def caller(site: Site, name: str) -> tuple[str, dict[str, Any]]:
    """Make a client token, and call a tool with it that works and one that does not exist."""
    body = {"role": "client", "task_id": "demo", "name": name, "ttl_seconds": 600}
    _, made = await site.ask("POST", "/admin/api/tokens", token=site.admin, body=body)
    await site.call(made["token"], f"{NOTES}list_notes")
    await site.call(made["token"], f"{NOTES}nothing_like_this")
    return made["token"], made


def entries(screen: Screen) -> Locator:
    return screen.page.get_by_role("list", name="Entries of the audit trail").get_by_role(
        "listitem"
    )


@pytest.mark.requirement("admin:web:audit")
async def test_a_search_is_narrowed_by_filters_kept_in_the_address_and_cleared(screen: Screen):
    _, made = await caller(screen.site, "narrow")
    await screen.open(f"audit?token_id={made['id']}")
    await expect(entries(screen).filter(has_text="list_notes")).to_have_count(1)
    await expect(entries(screen).filter(has_text="nothing_like_this")).to_have_count(1)
    await expect(screen.field("Token id")).to_have_value(made["id"])
    await screen.field("Status").select_option("ok")
    await expect(entries(screen).filter(has_text="nothing_like_this")).to_have_count(0)
    assert "status=ok" in screen.page.url
    await screen.field("Tool").fill("no_such_tool")
    await screen.page.keyboard.press("Enter")
    await screen.says("Nothing matches")
    await screen.axe("light")
    await screen.page.go_back()
    await expect(entries(screen).filter(has_text="list_notes")).to_have_count(1)
    await screen.link("Clear").click()
    await expect(screen.field("Status")).to_have_value("")


async def test_times_are_chosen_from_a_list_or_given_exactly(screen: Screen):
    _, made = await caller(screen.site, "timed")
    await screen.open(f"audit?token_id={made['id']}")
    await screen.field("Time").select_option("The last 15 minutes")
    await expect(entries(screen).first).to_be_visible()
    await screen.field("Time").select_option("Exactly…")
    await screen.field("To").fill("2020-01-31T12:00:00")
    await screen.button("Search").click()
    await screen.says("Nothing matches")
    await expect(screen.button("Follow")).to_have_count(0)


@pytest.mark.requirement("admin:web:audit")
async def test_what_happens_appears_by_itself_until_it_is_paused(screen: Screen):
    token, made = await caller(screen.site, "followed")
    await screen.open(f"audit?token_id={made['id']}&event=call")
    await expect(entries(screen)).to_have_count(2)
    await screen.says("Following")
    await screen.site.call(token, f"{NOTES}current_time")
    await expect(entries(screen).first).to_contain_text("current_time")
    await screen.button("Pause").click()
    await screen.says("Paused")
    await screen.site.call(token, f"{NOTES}search_notes", query="milk")
    await screen.button("Follow").click()
    await expect(entries(screen).first).to_contain_text("search_notes")
    await expect(entries(screen)).to_have_count(4)


async def test_a_long_trail_is_read_page_by_page_and_few_rows_are_drawn(screen: Screen):
    token, made = await caller(screen.site, "long")
    for _ in range(130):
        await screen.site.call(token, f"{NOTES}current_time")
    await screen.open(f"audit?token_id={made['id']}&event=call")
    await screen.says("100 entries so far")
    assert await entries(screen).count() < 60
    await entries(screen).first.evaluate("node => node.closest('[role=list]').scrollTo(0, 1e6)")
    await screen.says("132 entries")
    await screen.says_not("so far")


@pytest.mark.requirement("admin:web:audit")
async def test_the_life_of_a_call_is_one_line_of_time_with_ways_to_what_it_is_about(
    screen: Screen,
):
    _, made = await caller(screen.site, "life")
    await screen.open(f"audit?token_id={made['id']}&status=ok&event=call")
    await screen.press(screen.page.get_by_role("link", name="list_notes"))
    await expect(screen.heading).to_have_text("One call")
    await expect(screen.heading).to_be_focused()
    steps = screen.page.get_by_role("heading", level=3)
    await expect(steps).to_have_text(["Call sent", "Call ended: ok"])
    tool = screen.link("list_notes")
    await expect(tool).to_have_attribute("href", "#/tools/notes/list_notes")
    await expect(screen.link("notes")).to_have_attribute("href", "#/servers/notes")
    await expect(screen.link("demo")).to_have_attribute("href", "#/tasks/demo")
    await screen.says("revision ")
    await screen.axe()
    await screen.link(made["id"]).click()
    await expect(screen.field("Token id")).to_have_value(made["id"])


async def test_a_call_of_which_nothing_is_written_says_so(screen: Screen):
    screen.watch.allow("status of 404")
    await screen.open("audit/0000000000000000-1")
    await screen.says("Nothing is written about this call")
    await screen.axe("light")


@pytest.mark.requirement("admin:web:audit")
async def test_the_chain_is_verified_and_a_checkpoint_signed(screen: Screen):
    await screen.open("audit")
    await screen.button("Verify").click()
    dialog = screen.dialog("Verify the ledger")
    await expect(dialog).to_contain_text("Nothing was changed in")
    await screen.axe()
    await dialog.get_by_role("button", name="Done").click()
    await screen.button("Sign a checkpoint").click()
    signing = screen.dialog("Sign a checkpoint")
    await signing.get_by_role("button", name="Sign", exact=True).click()
    # Bascule signs by itself too, now and then.
    await expect(signing).to_contain_text(re.compile("Keep this line elsewhere|Nothing is new"))
    await screen.page.keyboard.press("Escape")
    await expect(signing).to_have_count(0)


@pytest.mark.requirement("admin:web:audit")
async def test_what_was_searched_for_is_exported_as_a_file(screen: Screen, tmp_path: Path):
    _, made = await caller(screen.site, "exported")
    await screen.open(f"audit?token_id={made['id']}&event=call")
    async with screen.page.expect_download() as waiting:
        await screen.button("Export").click()
    download = await waiting.value
    assert download.suggested_filename.endswith(".jsonl")
    await download.save_as(tmp_path / "rows.jsonl")
    lines = (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    tools = [json.loads(json.loads(line)["body"])["tool_name"] for line in lines]
    assert (tools[0], len(tools)) == ("list_notes", 2)


@pytest.mark.requirement("admin:page:hostile-words")
async def test_hostile_names_in_the_trail_are_only_text(screen: Screen):
    token, made = await caller(screen.site, "<img src=x onerror=alert(1)>")
    await screen.site.call(token, "<script>alert(1)</script>\u202e" + "x" * 400)
    await screen.open(f"audit?token_id={made['id']}&event=call")
    await expect(entries(screen).first).to_contain_text("<script>alert(1)</script>\\u202e")
    await entries(screen).first.get_by_role("link").click()
    await screen.says("<img src=x onerror=alert(1)>")


@pytest.mark.requirement("admin:page:roles")
async def test_a_viewer_reads_and_verifies_and_signs_nothing(visit: Visit, site: Site):
    screen = await visit(site, "viewer")
    await screen.open("audit")
    await expect(screen.button("Verify")).to_be_visible()
    await expect(screen.button("Sign a checkpoint")).to_have_count(0)


async def test_the_life_of_a_call_that_was_denied_says_who_denied_it_and_why(screen: Screen):
    token, _ = await caller(screen.site, "asks")
    _, outcome = await screen.site.call(token, f"{NOTES}delete_note", name="welcome")
    approval = outcome["error"]["details"]["approval_id"]
    asked = await screen.site.get(f"/admin/api/approvals/{approval}")
    await screen.open(f"audit/{asked['request_id']}")
    steps = screen.page.get_by_role("heading", level=3)
    await expect(steps.filter(has_text="Approval asked for")).to_have_count(1)
    body = {"decision": "deny", "digest": asked["digest"], "reason": "not <b>today</b>"}
    path = f"/admin/api/approvals/{approval}/decision"
    status, answer = await screen.site.ask("POST", path, token=screen.site.admin, body=body)
    assert status == 200, answer
    await expect(steps.filter(has_text="Denied")).to_have_count(1)
    await screen.says("not <b>today</b>")
    await expect(screen.link(approval).first).to_have_attribute("href", f"#/approvals/{approval}")
    await screen.axe("dark")
