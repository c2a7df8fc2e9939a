"""The servers of agents, managed on the page; and what is said where no agents are served."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browser.screen import Screen
from tests.browser.site import Site, serving
from tests.browser.visit import Visit

FILE = f"""
[[defaults.mcp]]
name = "everywhere"
transport = "stdio"
command = "/nonexistent/<b>program</b>"

[[agents]]
id = "main"

[[agents.mcp]]
name = "notes"
transport = "stdio"
command = {json.dumps(sys.executable)}
args = ["-m", "bascule.demo.server"]
"""
AGENTS = "/api/agents/mcp?agent_id=main"


@pytest.fixture
async def agents_site(tmp_path: Path) -> AsyncIterator[Site]:
    """A process with agents."""
    agents = tmp_path / "agents.toml"
    agents.write_text(FILE, encoding="utf-8")
    async with serving(tmp_path / "data", "--empty", "--agents", str(agents)) as site:
        yield site


async def servers(site: Site) -> dict[str, dict[str, object]]:
    return {one["name"]: one for one in (await site.get(AGENTS))["servers"]}


@pytest.mark.requirement("manager:dashboard")
async def test_servers_of_an_agent_are_seen_added_edited_switched_off_and_removed(
    agents_site: Site, visit: Visit
):
    screen = await visit(agents_site)
    await screen.open("agents")
    rows = screen.page.get_by_role("listitem")
    notes = rows.filter(has=screen.link("Edit notes of main"))
    await expect(notes).to_contain_text("Connected")
    await expect(notes).to_contain_text("6 tools")
    await screen.says("/nonexistent/<b>program</b>")
    await screen.axe()
    await reconnected(screen)
    await added(screen)
    await edited(screen)
    await screen.button("Switch off added of main").click()
    await screen.says("added of main is switched off.")
    assert (await servers(agents_site))["added"]["enabled"] is False
    await screen.button("Remove added of main").click()
    await screen.dialog("Remove added?").get_by_role("button", name="Remove").click()
    await screen.says("Removed added of main.")
    assert "added" not in await servers(agents_site)


async def reconnected(screen: Screen) -> None:
    await screen.press(screen.button("Reconnect notes of main"))
    await screen.says("Connected notes of main.")
    screen.watch.allow("status of 503")
    await screen.button("Reconnect everywhere of main").click()
    await expect(screen.page.get_by_role("alert")).to_contain_text("command not found")


async def added(screen: Screen) -> None:
    screen.watch.allow("status of 422")
    await screen.link("Add a server to main").click()
    await screen.field("Name").fill("Not A Name")
    await screen.field("Command").fill("/nonexistent/program")
    await screen.button("Add", exact=True).last.click()
    await expect(screen.field("Name")).to_have_attribute("aria-invalid", "true")
    await screen.axe()
    await screen.field("Name").fill("added")
    await screen.button("Add", exact=True).last.click()
    await expect(screen.link("Edit added of main")).to_be_visible()


async def edited(screen: Screen) -> None:
    await screen.link("Edit added of main").click()
    await screen.field("Transport").select_option("A web address (streamable HTTP)")
    await screen.field("Address").fill("http://127.0.0.1:9/mcp")
    await screen.button("JSON").click()
    entry = json.loads(await screen.field("Entry").input_value())
    assert entry == {"name": "added", "transport": "http", "url": "http://127.0.0.1:9/mcp"}
    await screen.field("Entry").fill(json.dumps({**entry, "timeout_ms": 5000}))
    await screen.button("Save").click()
    await expect(screen.link("Edit added of main")).to_be_visible()
    config = (await servers(screen.site))["added"]["config"]
    assert config == {**entry, "timeout_ms": 5000}


async def test_where_no_agents_are_served_the_page_says_how_to_start_them(screen: Screen):
    await screen.open("agents")
    await screen.says("No agents are served here")
    await screen.says("bascule up --agents agents.toml")
