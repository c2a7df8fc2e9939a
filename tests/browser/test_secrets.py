"""Secrets on the page: set and never shown, bound, unbound, removed with who loses them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import expect

from tests.browser.screen import Screen
from tests.browser.site import Site
from tests.browser.visit import Visit

VALUE = "not-to-be-seen-4711"
RECORD = {
    "server_id": "vault",
    "transport": "streamable_http",
    "http": {"url": "https://127.0.0.1:9/mcp", "auth_ref": "secret://page-token"},
    "enabled": False,
}


@pytest.fixture
async def vault(site: Site) -> AsyncIterator[None]:
    """A server whose record needs a secret."""
    status, answer = await site.ask("POST", "/admin/api/mcp/servers", token=site.admin, body=RECORD)
    assert status == 201, answer
    yield
    await site.ask("DELETE", "/admin/api/mcp/servers/vault", token=site.admin)


@pytest.mark.requirement("admin:web:secrets")
async def test_a_secret_is_set_bound_unbound_and_removed_and_its_value_never_shown(
    screen: Screen, vault: None
):
    await screen.open("secrets")
    await screen.says("No secrets yet")
    await screen.button("Add a secret").click()
    await screen.field("Name").fill("not a name")
    value = screen.field("Value")
    await expect(value).to_have_attribute("type", "password")
    await value.fill(VALUE)
    screen.watch.allow("status of 422")
    await screen.button("Set the value").click()
    await expect(screen.field("Name")).to_have_attribute("aria-invalid", "true")
    await screen.axe()
    await screen.field("Name").fill("page-token")
    await screen.button("Set the value").click()
    row = screen.row("page-token")
    await expect(row).to_contain_text("not bound")
    await screen.button("Bind page-token to server vault").click()
    await expect(row).to_contain_text("Unbind")
    await expect(row).not_to_contain_text("not bound")
    await screen.axe()
    await screen.button("Unbind page-token from server vault").click()
    dialog = screen.dialog("Unbind page-token?")
    await expect(dialog).to_contain_text("fails where its record needs it")
    await dialog.get_by_role("button", name="Unbind").click()
    await expect(row).to_contain_text("not bound")
    assert VALUE not in await screen.page.content()
    await screen.button("Remove page-token", exact=True).click()
    removing = screen.dialog("Remove page-token?")
    await expect(removing).to_contain_text("server vault, whose record needs it")
    await removing.get_by_role("button", name="Remove page-token").click()
    await screen.says("No secrets yet")


async def test_a_new_value_is_the_next_version_by_keyboard_alone(screen: Screen):
    secret = "/admin/api/secrets/typed"
    await screen.site.ask("PUT", secret, token=screen.site.admin, body={"value": "one"})
    await screen.open("secrets")
    await screen.press(screen.button("Set a new value of typed"))
    await screen.tab_to(screen.field("Value"))
    await screen.page.keyboard.type("two")
    await screen.page.keyboard.press("Enter")
    await expect(screen.row("typed")).to_contain_text("version 2")
    await screen.button("Bind typed", exact=True).click()
    await screen.field("To").select_option("server notes")
    await screen.dialog("Bind typed").get_by_role("button", name="Bind", exact=True).click()
    await expect(screen.row("typed")).to_contain_text("server notes")
    await screen.site.ask("DELETE", secret, token=screen.site.admin)


async def test_the_lines_of_a_key_are_not_lost_when_it_is_pasted(screen: Screen):
    await screen.open("secrets")
    await screen.button("Add a secret").click()
    await screen.field("Value").focus()
    await screen.run(
        "(() => { const data = new DataTransfer(); data.setData('text', 'BEGIN\\nkey\\nEND\\n');"
        " document.activeElement.dispatchEvent(new ClipboardEvent('paste',"
        " {clipboardData: data, bubbles: true, cancelable: true})) })()"
    )
    await expect(screen.field("Value")).to_have_value("BEGIN\nkey\nEND\n")


@pytest.mark.requirement("admin:page:roles")
async def test_who_may_not_write_secrets_has_no_such_screen(visit: Visit, site: Site):
    screen = await visit(site, "operator")
    await screen.open("servers")
    await expect(screen.link("Servers")).to_be_visible()
    await expect(screen.link("Secrets")).to_have_count(0)
    await expect(screen.link("Tokens")).to_have_count(0)
