"""The form of a server: a new one by keyboard alone, every way to edit one, and no loss."""

from __future__ import annotations

import sys

import pytest
from playwright.async_api import expect

from tests.browser.screen import Screen
from tests.browser.servers import REGISTRY, SERVERS, Register, notes
from tests.browser.site import Site

REFUSED = "status of (412|422|400)"


async def review_and_save(screen: Screen) -> None:
    await screen.button("Review and save").click()
    await screen.dialog("What this changes").get_by_role("button", name="Save").click()
    await screen.says("Saved as revision")


@pytest.mark.requirement("admin:web:form")
async def test_a_server_is_added_by_keyboard_alone(register: Register, screen: Screen, site: Site):
    register.knows(f"{SERVERS}/typed")
    keyboard = screen.page.keyboard
    await screen.open("servers/new")
    await screen.tab_to(screen.field("Command line or address"))
    await keyboard.type(f"LOG='all of it' {sys.executable} -m bascule.demo.server")
    await screen.press(screen.button("Fill in the form"))
    await expect(screen.field("Id")).to_be_focused()
    await keyboard.press("ControlOrMeta+a")
    await keyboard.type("typed")
    await screen.press(screen.button("Test these settings"))
    await screen.says("It works: 6 tools")
    await screen.press(screen.page.get_by_role("switch", name="Allow list_notes"), "Space")
    reads = screen.page.get_by_label("only reads: list_notes")
    await screen.press(reads, "Space")
    await expect(reads).to_be_focused()
    await screen.press(screen.page.get_by_role("switch", name="Allow write_note"), "Space")
    await screen.axe("light")
    await screen.press(screen.button("Review and save"))
    await screen.press(screen.dialog("What this changes").get_by_role("button", name="Save"))
    await expect(screen.heading).to_have_text("typed")
    record = await site.get(f"{SERVERS}/typed")
    stdio = record["stdio"]
    assert [stdio["command"], *stdio["args"]] == [sys.executable, "-m", "bascule.demo.server"]
    assert list(stdio["env"]) == ["LOG"]
    assert (record["sharing"], record["sandbox"]["level"]) == ("task", "best")
    assert (record["allowed_tools"], record["effects"]["read"]) == (
        ["list_notes", "write_note"],
        ["list_notes"],
    )


@pytest.mark.requirement("admin:web:form")
async def test_a_record_of_http_is_made_with_budgets_and_approval(
    register: Register, screen: Screen, site: Site
):
    screen.watch.allow(REFUSED)
    register.knows(f"{SERVERS}/docs")
    await screen.open("servers/new")
    await screen.field("Command line or address").fill("https://mcp.docs.example/mcp")
    await screen.button("Fill in the form").click()
    await expect(screen.field("Id")).to_have_value("docs")
    await screen.field("Authentication").select_option("A bearer token")
    await screen.field("Token", exact=True).fill("${ENV:DOCS_TOKEN}")
    await screen.field("Ask a person before a call").select_option("Always")
    await screen.page.get_by_text("Budgets").click()
    await screen.field("Calls at once").fill("many")
    await screen.button("Review and save").click()
    await expect(screen.field("Calls at once")).to_be_focused()
    await expect(screen.field("Calls at once")).to_have_attribute("aria-invalid", "true")
    await screen.field("Calls at once").fill("3")
    await review_and_save(screen)
    record = await site.get(f"{SERVERS}/docs")
    assert (record["transport"], record["http"]["url"]) == (
        "streamable_http",
        "https://mcp.docs.example/mcp",
    )
    assert record["http"]["auth_ref"] == "${ENV:DOCS_TOKEN}"
    assert record["budgets"]["max_concurrency"] == 3
    assert record["approval_policy"]["default"] == "always"


async def test_another_transport_keeps_what_was_typed_until_it_is_saved_and_then_only_the_one(
    register: Register, screen: Screen, site: Site
):
    at = await register(notes("moved"))
    await screen.open("servers/moved/edit")
    transport = screen.field("Transport")
    await transport.select_option("A web address (streamable HTTP)")
    await screen.field("Address").fill("https://moved.example/mcp")
    await transport.select_option("A local command (stdio)")
    await expect(screen.field("Command")).to_have_value(sys.executable)
    await transport.select_option("A web address (older servers, SSE)")
    await expect(screen.field("Address")).to_have_value("https://moved.example/mcp")
    await review_and_save(screen)
    record = await site.get(at)
    assert record["transport"] == "http_sse_legacy"
    assert record["http"]["url"] == "https://moved.example/mcp"
    assert record.get("stdio") is None


async def test_values_that_are_hidden_survive_an_edit(
    register: Register, screen: Screen, site: Site
):
    record = notes("secretive")
    record["stdio"]["env"] = {"API_TOKEN": "not to be seen"}
    at = await register(record)
    await screen.open("servers/secretive/edit")
    await expect(screen.field("Value of API_TOKEN")).to_have_value("***")
    await screen.field("Name optional").fill("Secretive")
    await review_and_save(screen)
    record = await site.get(at)
    assert record["display_name"] == "Secretive"
    past = await site.get(f"{REGISTRY}/history?kind=server&id=secretive&limit=1")
    assert [one["field"] for one in past["changes"][0]["fields"]] == ["display_name"]


@pytest.mark.requirement("admin:web:conflict")
async def test_both_versions_are_shown_where_somebody_else_wrote_first(
    register: Register, screen: Screen, site: Site
):
    screen.watch.allow(REFUSED)
    at = await register(notes("shared"))
    await screen.open("servers/shared/edit")
    await screen.field("Name optional").fill("Mine")
    await site.ask("PATCH", at, token=site.admin, body={"display_name": "Theirs", "tags": ["new"]})
    await screen.button("Review and save").click()
    conflict = screen.dialog("Somebody else changed this record")
    await expect(conflict.get_by_label("Your version")).to_contain_text("Mine")
    await expect(conflict.get_by_label("Their version")).to_contain_text("Theirs")
    await screen.axe("light")
    await conflict.get_by_role("button", name="Go on with mine").click()
    await review_and_save(screen)
    assert (await site.get(at))["display_name"] == "Mine"


@pytest.mark.requirement("admin:web:history")
async def test_the_past_of_a_record_is_shown_and_the_way_back(
    register: Register, screen: Screen, site: Site
):
    at = await register(notes("older", display_name="First"))
    await site.ask("PATCH", at, token=site.admin, body={"display_name": "Second"})
    await screen.open("servers/older/history")
    await screen.says("Second")
    await screen.button("Go back to this").click()
    asked = screen.page.get_by_role("dialog")
    await expect(asked.get_by_label("All that changes")).to_contain_text("older")
    await asked.get_by_role("button", name="Go back").click()
    await screen.says("Back as it was")
    await expect(screen.heading).to_have_text("First")
    assert (await site.get(at))["display_name"] == "First"
    await screen.link("TOML").click()
    await expect(screen.page.get_by_label("The record as TOML")).to_contain_text(
        'server_id = "older"'
    )


async def test_what_is_changed_stays_from_tab_to_tab_and_leaving_asks(
    register: Register, screen: Screen, site: Site
):
    screen.watch.allow("dialog: confirm Leave without saving")
    await register(notes("held"))
    await screen.open("servers/held/edit")
    await screen.field("Name optional").fill("kept")
    await screen.link("History").click()
    await screen.says("Revision")
    await screen.nav.get_by_role("link", name="Tasks").click()
    await expect(screen.heading).to_have_text("held")
    await screen.link("Edit").click()
    await expect(screen.field("Name optional")).to_have_value("kept")
    await screen.button("Undo all changes").click()
    await screen.nav.get_by_role("link", name="Tasks").click()
    await expect(screen.heading).to_have_text("Tasks")
