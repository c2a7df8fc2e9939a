"""The platform's record and the backends: edited, reviewed, undone."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import expect

from tests.browser.screen import Screen
from tests.browser.site import Site
from tests.browser.visit import Visit

PLATFORM = "/admin/api/mcp/platform"


@pytest.fixture
async def platform(site: Site) -> AsyncIterator[None]:
    """The platform as it is, again after the test."""
    yield
    await site.ask("PUT", PLATFORM, token=site.admin, body={})


@pytest.mark.requirement("admin:web:platform")
async def test_a_rule_is_written_moved_refused_next_to_its_field_and_saved(
    screen: Screen, platform: None
):
    screen.watch.allow("status of 422")
    await screen.open("platform")
    await screen.field("Denied tools").fill("drop_*")
    await screen.page.keyboard.press("Enter")
    await screen.button("Add a rule").click()
    first = screen.page.get_by_role("listitem", name="Rule 1")
    await first.get_by_label("When").fill("args.name ==")
    await screen.button("Review and save").click()
    await expect(first.get_by_label("When")).to_have_attribute("aria-invalid", "true")
    await first.get_by_label("When").fill('args.name == "diary"')
    await screen.button("Add a rule").click()
    second = screen.page.get_by_role("listitem", name="Rule 2")
    await second.get_by_label("Then").select_option("Deny")
    await screen.button("Move rule 2 up").click()
    await expect(first.get_by_label("Then")).to_have_value("deny")
    await screen.axe()
    await screen.button("Review and save").click()
    await screen.dialog("What this changes").get_by_role("button", name="Save").click()
    await screen.says("Saved as revision")
    found = await screen.site.get(PLATFORM)
    assert found["tool_denylist"] == ["drop_*"]
    assert [rule["effect"] for rule in found["rules"]] == ["deny", "require_approval"]
    assert found["rules"][1]["when"] == 'args.name == "diary"'
    await screen.link("History").click()
    await screen.says("Revision ")
    await screen.axe("light")


@pytest.mark.requirement("admin:web:conflict")
async def test_what_somebody_else_wrote_meanwhile_is_shown_beside_ones_own(
    screen: Screen, platform: None
):
    screen.watch.allow("status of 412")
    await screen.open("platform")
    await screen.field("One call, in ms").fill("5000")
    body = {"tool_denylist": ["theirs"]}
    await screen.site.ask("PUT", PLATFORM, token=screen.site.admin, body=body)
    await screen.button("Review and save").click()
    conflict = screen.dialog("Somebody else changed this record")
    await expect(conflict).to_contain_text("theirs")
    await expect(conflict).to_contain_text("5000")
    await conflict.get_by_role("button", name="Take theirs").click()
    await expect(screen.field("One call, in ms")).to_have_value("")
    await screen.says("theirs")


@pytest.mark.requirement("admin:web:platform")
async def test_a_backend_is_added_changed_and_deleted(screen: Screen):
    await screen.open("platform/backends")
    await screen.link("Add a backend").click()
    await screen.field("Name").fill("of-the-page")
    await screen.field("Address").fill("http://127.0.0.1:9/v1")
    await screen.button("Review and save").click()
    await screen.dialog("What this changes").get_by_role("button", name="Save").click()
    await screen.link("of-the-page").click()
    await screen.field("Answers for").fill("small")
    await screen.page.keyboard.press("Enter")
    await screen.axe()
    await screen.button("Review and save").click()
    await screen.dialog("What this changes").get_by_role("button", name="Save").click()
    await screen.says("Saved as revision")
    await screen.link("History").click()
    await screen.button("Go back to this").click()
    await screen.button("Cancel").click()
    await screen.button("Go back to this").click()
    await screen.button("Go back", exact=True).click()
    await screen.says("Back as it was")
    await screen.button("Delete").click()
    await screen.button("Delete of-the-page").click()
    await screen.says("Deleted of-the-page.")
    await expect(screen.row("of-the-page")).to_have_count(0)


@pytest.mark.requirement("admin:page:roles")
async def test_who_may_not_write_policy_reads_it(visit: Visit, site: Site):
    screen = await visit(site, "operator")
    await screen.open("platform")
    await screen.says("Only an administrator changes these.")
    await expect(screen.button("Review and save")).to_have_count(0)
    await screen.axe("light")
