"""The nodes: how each stands and why, in the list and on a page of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from bascule.wire.api.addresses import NODE_REPORT, NODES
from tests.browser.hostile import EVIL
from tests.browser.screen import PHONE, Screen
from tests.browser.site import Site, serving
from tests.browser.test_hostile import harmless
from tests.browser.visit import Visit

NAME = "far/west"  # as the names of workers, with a slash
REASON = f"the registry's certificate is not trusted {EVIL}"


class West:
    """A node that reports, as a process elsewhere would."""

    def __init__(self, site: Site, token: str) -> None:
        self._site = site
        self._token = token

    async def says(self, state: str, **more: Any) -> None:
        body = {"node": NAME, "state": state, **more}
        status, answer = await self._site.ask("POST", NODE_REPORT, token=self._token, body=body)
        assert status == 200, answer


@pytest.fixture
async def west(site: Site) -> AsyncIterator[West]:
    wanted = {"role": "node", "name": NAME}
    status, made = await site.ask("POST", "/admin/api/tokens", token=site.admin, body=wanted)
    assert status == 201, made
    west = West(site, made["token"])
    yield west
    await west.says("ended")
    ended = f"/admin/api/tokens/{made['id']}"
    assert (await site.ask("DELETE", ended, token=site.admin))[0] == 200


@pytest.mark.requirement("admin:web:node-reason")
async def test_why_a_node_does_not_follow_stands_in_the_list_and_on_its_page(
    screen: Screen, west: West
):
    await west.says("degraded", revision=1, reason=REASON)
    await screen.open("nodes")
    row = screen.row(NAME)
    await expect(row).to_contain_text("It does not follow the registry at the moment.")
    await expect(row).to_contain_text("the registry's certificate is not trusted")
    await harmless(screen)
    await screen.axe()
    await screen.press(screen.link(NAME))
    await expect(screen.heading).to_have_text(NAME)
    stands = screen.page.get_by_label("How it stands")
    await expect(stands).to_contain_text("Degraded")
    await expect(stands).to_contain_text("the registry's certificate is not trusted")
    await expect(screen.page.get_by_label("Servers it may run")).to_contain_text("All of them.")
    await harmless(screen)
    await screen.resize(PHONE)
    await screen.fits()
    await screen.axe()
    await west.says("ok", revision=1)
    await screen.open(f"nodes/{NAME.replace('/', '%2F')}")
    await expect(stands).to_contain_text("Connected")
    await expect(stands).not_to_contain_text("certificate")


@pytest.mark.requirement("admin:web:node-reason")
async def test_what_a_node_is_assigned_and_what_that_comes_to_stands_on_its_page(
    visit: Visit, tmp_path: Path
):
    async with serving(tmp_path / "data") as site:  # an assignment stays
        path, body = f"{NODES}/north/assignment", {"tasks": ["demo"]}
        assert (await site.ask("PUT", path, token=site.admin, body=body))[0] == 200
        screen = await visit(site)
        await screen.open("nodes/north")
        stands = screen.page.get_by_label("How it stands")
        await expect(stands).to_contain_text("It is assigned something and was never here.")
        await expect(stands).to_contain_text("tasks: demo")
        tasks = screen.page.get_by_label("Tasks it serves")
        await tasks.get_by_role("link", name="demo").click()
        await expect(screen.heading).to_contain_text("demo", ignore_case=True)
        await screen.leave()


async def test_a_node_that_nobody_knows_is_said_to_be_none(screen: Screen):
    screen.watch.allow("status of 404")
    await screen.open("nodes/nowhere")
    await screen.says("There is no such node")
    await screen.axe("light")
