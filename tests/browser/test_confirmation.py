"""Beyond loopback the page asks for a fresh code, once for some minutes, and goes on with it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import expect

from bascule.auth.links import make_confirmation
from bascule.auth.token_store import open_tokens
from bascule.wire.api.addresses import TOKENS
from tests.browser.screen import Screen
from tests.browser.site import Site, serving
from tests.browser.visit import Visit

pytestmark = pytest.mark.requirement("admin:confirm")
ASKED = "A fresh code is needed"


@pytest.fixture(scope="module")
async def reachable(
    anyio_backend: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    """A process that others reach through a proxy."""
    folder = tmp_path_factory.mktemp("reachable")
    config = folder / "bascule.toml"
    config.write_text('[server]\nhosts = ["bascule.example"]\n', encoding="utf-8")
    async with serving(folder / "data", "--empty", "--config", str(config)) as site:
        yield site


async def confirmation(site: Site) -> str:
    async with open_tokens(site.data) as tokens:
        return (await make_confirmation(tokens, by="tests")).token


async def make(screen: Screen, name: str) -> None:
    await screen.button("Make a token").click()
    await screen.field("Role").select_option("viewer")
    await screen.dialog("Make a token").get_by_label("Name").fill(name)
    await screen.button("Make the token").click()


async def names(site: Site) -> list[str]:
    return [one["name"] for one in (await site.get(TOKENS))["tokens"]]


async def test_a_code_is_asked_for_once_and_what_was_asked_for_is_done(
    visit: Visit, reachable: Site
):
    screen = await visit(reachable)
    screen.watch.allow("status of 403")
    await screen.open("tokens")
    await make(screen, "first")
    asked = screen.dialog(ASKED)
    for code in ("bsc_" + "A" * 43, await confirmation(reachable)):
        await expect(asked).to_contain_text("bascule web --confirm")
        await asked.get_by_label("Code").fill(code)
        await asked.get_by_role("button", name="Confirm").click()
    await screen.button("I have copied it").click()
    await make(screen, "second")
    await screen.button("I have copied it").click()
    assert {"first", "second"} <= set(await names(reachable))


async def test_without_a_code_nothing_is_done_and_it_is_said(visit: Visit, reachable: Site):
    screen = await visit(reachable)
    screen.watch.allow("status of 403")
    await screen.open("tokens")
    await make(screen, "never")
    await screen.dialog(ASKED).get_by_role("button", name="Close").click()
    await screen.says("No code was given: nothing was changed.")
    assert "never" not in await names(reachable)
