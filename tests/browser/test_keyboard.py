"""Without a mouse: the ways through the page that no other test goes by keyboard alone."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest
from playwright.async_api import Locator, expect

from bascule.wire.api.addresses import TOKENS
from tests.browser.asking import asking
from tests.browser.furniture import RECORDS, listed, standing
from tests.browser.screen import Screen
from tests.browser.servers import SERVERS, Register

TASK = {"task_id": "walked", "mcp": {"enabled": True, "read_only": True}}
CLIENT = {"mcpServers": {"walked": {"command": "true"}, "other": {"command": "true"}}}


async def go(screen: Screen, name: str) -> None:
    """Go to a screen through the list of screens."""
    await screen.press(screen.nav.get_by_role("link", name=name))
    await expect(screen.heading).to_have_text(name)
    await expect(screen.heading).to_be_focused()


async def write(screen: Screen, target: Locator, text: str) -> None:
    """Reach a field, or a list of choices, and type."""
    await screen.tab_to(target)
    await screen.page.keyboard.type(text)


async def imports_a_server(screen: Screen) -> None:
    await go(screen, "Servers")
    await screen.press(screen.link("Import"))
    await expect(screen.heading).to_be_focused()
    await write(screen, screen.field("Or paste it"), json.dumps(CLIENT))
    await screen.press(screen.button("Preview"))
    await screen.press(screen.page.get_by_role("checkbox", name="other"), "Space")
    await screen.press(screen.button("Import 1 server without trying"))
    await screen.says("Next: start each, and allow its tools")
    ids = {one["server_id"] for one in (await screen.site.get(SERVERS))["servers"]}
    assert "walked" in ids
    assert "other" not in ids


async def edits_a_task(screen: Screen) -> None:
    await go(screen, "Tasks")
    await screen.press(screen.link("walked", exact=False))
    await screen.press(screen.link("Edit"))
    await screen.press(screen.page.get_by_role("switch", name="Notes (demo)"), "Space")
    await screen.press(screen.button("Review and save"))
    review = screen.dialog("What this changes")
    await screen.press(review.get_by_role("button", name="Save", exact=True))
    await screen.says("Saved as revision")
    task = await screen.site.get(f"{RECORDS}/tasks/walked")
    assert task["mcp"]["default_server_ids"] == ["notes"]


async def approves_in_the_playground(screen: Screen) -> None:
    await go(screen, "Playground")
    await write(screen, screen.field("Task"), "demo")
    await write(screen, screen.field("Message"), 'call notes.delete_note with {"name": "walked"}')
    await screen.page.keyboard.press("Enter")
    await screen.press(screen.button("Approve"))
    await screen.says('mcp__notes__delete_note said: {"name":"walked","deleted":true}')


async def finds_a_call_in_the_audit(screen: Screen) -> None:
    await go(screen, "Audit")
    await write(screen, screen.field("Tool"), "delete_note")
    await screen.page.keyboard.press("Enter")
    await write(screen, screen.field("Status"), "ok")
    found = screen.page.get_by_role("main").get_by_role("link", name="delete_note")
    await screen.press(found.first)
    await expect(screen.heading).to_have_text("One call")
    await expect(screen.heading).to_be_focused()


async def makes_a_token_and_ends_it(screen: Screen) -> None:
    await go(screen, "Tokens")
    await screen.press(screen.button("Make a token"))
    await write(screen, screen.field("Role"), "View")
    await write(screen, screen.dialog("Make a token").get_by_label("Name"), "walked")
    await screen.press(screen.button("Make the token"))
    await screen.press(screen.button("I have copied it"))
    await screen.press(screen.row("walked").get_by_role("button"))
    asked = screen.dialog("Revoke walked?")
    await screen.press(asked.get_by_role("button", name="Revoke"))
    await expect(screen.row("walked")).to_have_count(0)
    assert "walked" not in {one["name"] for one in (await screen.site.get(TOKENS))["tokens"]}


async def keeps_a_secret_and_removes_it(screen: Screen) -> None:
    await go(screen, "Secrets")
    await screen.press(screen.button("Add a secret"))
    await write(screen, screen.field("Name"), "walked")
    await write(screen, screen.field("Value"), "not to be seen")
    await screen.page.keyboard.press("Enter")
    await screen.press(screen.button("Bind walked"))
    await write(screen, screen.field("To"), "server notes")
    await screen.press(screen.dialog("Bind walked").get_by_role("button", name="Bind", exact=True))
    await expect(screen.row("walked")).to_contain_text("server notes")
    await screen.press(screen.button("Remove walked"))
    asked = screen.dialog("Remove walked?")
    await screen.press(asked.get_by_role("button", name="Remove walked"))
    await screen.says("No secrets yet")


WAYS: tuple[Callable[[Screen], Awaitable[None]], ...] = (
    imports_a_server,
    edits_a_task,
    approves_in_the_playground,
    finds_a_call_in_the_audit,
    makes_a_token_and_ends_it,
    keeps_a_secret_and_removes_it,
)


@pytest.mark.requirement("admin:page:for-everybody")
async def test_every_way_through_the_page_goes_by_keyboard_alone(
    register: Register, screen: Screen
):
    register.knows(f"{SERVERS}/walked")
    await listed(screen.site, "notes")
    async with asking(screen.site) as one, standing(screen.site, tasks=[TASK]):
        await one.call("write_note", name="walked", text="of no use")
        await screen.open("overview")
        for way in WAYS:
            await way(screen)
        await screen.leave()
