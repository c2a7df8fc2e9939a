"""The overview: whatever needs attention stands there, each with the one button that helps."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Locator, Route, expect

from bascule.wire.api.addresses import OVERVIEW
from tests.browser.asking import asker
from tests.browser.screen import Screen
from tests.browser.servers import SERVERS, notes
from tests.browser.site import Site, serving
from tests.browser.visit import Visit

pytestmark = pytest.mark.requirement("admin:overview:attention")


@pytest.fixture
async def troubled(tmp_path: Path) -> AsyncIterator[Site]:
    """A process with the demo, files that cannot be read, a server that is down, a question."""
    folder = tmp_path / "mcp.d"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.toml").write_text("server_id = 3", encoding="utf-8")
    async with serving(tmp_path / "data", "--registry-dir", str(folder)) as site:
        down = {"server_id": "gone", "transport": "stdio", "stdio": {"command": "/none/program"}}
        await site.ask("POST", SERVERS, token=site.admin, body=down)
        await site.ask("POST", f"{SERVERS}/gone/test", token=site.admin)
        waiting = notes("github")
        waiting["stdio"]["env_from"] = ["GITHUB_TOKEN"]
        operator = await site.sign_in("operator")
        assert (await site.ask("POST", SERVERS, token=operator, body=waiting))[0] == 403
        yield site


def entry(screen: Screen, words: str) -> Locator:
    attention = screen.page.get_by_role("region", name="Needs attention")
    return attention.get_by_role("listitem").filter(has_text=words)


async def follow(screen: Screen, words: str, button: str, heading: str) -> None:
    """Press the one button of an entry, and come where it says."""
    await screen.run("location.hash = '#/overview'")
    one = entry(screen, words).first
    await expect(one.locator("a, button")).to_have_count(1)
    await one.get_by_text(button, exact=True).click()
    await expect(screen.heading).to_have_text(heading)


async def test_each_entry_has_one_button_that_leads_to_what_helps(troubled: Site, visit: Visit):
    await (await asker(troubled)).delete("welcome")
    screen = await visit(troubled)
    await screen.page.route(f"**{OVERVIEW}", with_a_node_that_does_not_follow)
    await screen.open("overview")
    for file in ("one.toml", "two.toml"):
        await expect(entry(screen, file)).to_have_count(1)
    await screen.axe()
    await follow(screen, "gone is ", "Test it", "gone")
    await expect(screen.button("Test")).to_be_visible()
    await follow(screen, "1 call waits", "Decide", "Approvals")
    await expect(screen.button("Approve")).to_be_visible()
    await follow(screen, "1 change waits", "Look at them", "Proposals")
    await expect(screen.button("Accept github")).to_be_visible()
    await follow(screen, "one.toml", "Load the files again", "Rescan the files")
    await screen.says("Left out: one.toml")
    await follow(screen, "node far", "Look at nodes", "Nodes")
    await follow(screen, "setup token", "Make a token", "Tokens")
    await screen.field("Role").select_option("admin")
    await screen.button("Make the token").click()
    await screen.button("I have copied it").click()
    await screen.run("location.hash = '#/overview'")
    await expect(entry(screen, "gone is ")).to_be_visible()
    await expect(entry(screen, "setup token")).to_have_count(0)
    await screen.page.unroute_all(behavior="wait")


async def with_a_node_that_does_not_follow(route: Route) -> None:
    answer = await route.fetch()
    body = await answer.json()
    told = {"code": "node_not_following", "subject": "far", "action": "open_nodes"}
    body["attention"].append({**told, "message": "node far does not follow the registry"})
    await route.fulfill(response=answer, body=json.dumps(body))


@pytest.mark.requirement("admin:page:roles")
async def test_a_viewer_reads_what_is_down_and_has_no_button(troubled: Site, visit: Visit):
    screen = await visit(troubled, "viewer")
    await screen.open("overview")
    await expect(entry(screen, "gone is ")).to_be_visible()
    await expect(entry(screen, "").locator("a, button")).to_have_count(0)
