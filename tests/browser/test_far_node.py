"""The page of a control plane alone: what it tries is done by a node elsewhere."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import expect

from bascule.wire.api.addresses import ADMIN
from tests.browser.screen import PHONE, Screen
from tests.browser.site import Site, serving
from tests.browser.test_playground import call, say
from tests.browser.visit import Visit
from tests.client.peers import nobody
from tests.flow.node_process import LINE, TASK, notes
from tests.flow.up_process import serving_by
from tests.waits import until


@pytest.fixture(scope="module")
async def split_site(
    anyio_backend: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    """A control plane whose page knows where its node is, and that node."""
    folder, node_url = tmp_path_factory.mktemp("split"), nobody()
    config = folder / "bascule.toml"
    config.write_text(f'[server]\nnode_url = "{node_url}"\n', encoding="utf-8")
    async with AsyncExitStack() as stack:
        given = ("--config", str(config))
        plane = serving(folder / "plane", *given, command=("registry", "serve"))
        site = await stack.enter_async_context(plane)
        for kind, record in (("servers/notes", notes()), ("tasks/t", TASK)):
            path = f"{ADMIN}/{kind}"
            status, answer = await site.ask("PUT", path, token=site.admin, body=record)
            assert status == 201, answer
        wanted = {"role": "node", "name": "east"}
        status, made = await site.ask("POST", "/admin/api/tokens", token=site.admin, body=wanted)
        assert status == 201, made
        words = (
            *("--registry", await _grpc(folder / "plane.said"), "--allow-executable", LINE),
            *("--port", str(urlsplit(node_url).port), "--admin-origin", site.url),
        )
        node = serving_by(("node", "serve"), folder / "node", *words, BASCULE_TOKEN=made["token"])
        await stack.enter_async_context(node)
        # A control plane alone knows the tools of a server once a node was asked about them.
        path = f"{ADMIN}/servers/notes/test"
        status, trial = await site.ask("POST", path, token=site.admin, body={})
        assert (status, trial["ok"]) == (200, True), trial
        yield site


async def _grpc(said: Path) -> str:
    """Return where a control plane says that it serves gRPC."""

    def looked() -> str:
        found = re.findall(r"gRPC\D+([\d.]+:\d+)\n", said.read_text(encoding="utf-8"))
        return found[0] if found else ""

    return await until(lambda: asyncio.to_thread(looked))


async def at(visit: Visit, site: Site) -> Screen:
    """Open a window whose page may speak to the node."""
    screen = await visit(site)
    elsewhere = re.escape((await site.get("/api/v1/identity"))["node_url"])
    screen.watch.allow(f"request elsewhere: (GET|POST) {elsewhere}/(v1|api/v1/tools)/")
    screen.watch.allow("status of 401")  # until the node has heard of the page's token
    return screen


@pytest.mark.requirement("admin:servers:far-node")
@pytest.mark.requirement("admin:node-origin")
async def test_a_server_is_tested_by_the_node_and_then_its_tools_are_tried_there(
    visit: Visit, split_site: Site
):
    screen = await at(visit, split_site)
    await screen.open("servers/notes/test")
    await screen.button("Test").click()
    await screen.says("It works: 6 tools")
    await screen.open("tools/notes/list_notes/try")
    await screen.button("Call list_notes").click()
    outcome = screen.page.get_by_label("What came of it")
    await expect(outcome.locator(".tag.good")).to_have_text("ok")


@pytest.mark.requirement("admin:node-origin")
async def test_the_playground_speaks_to_the_node(visit: Visit, split_site: Site):
    screen = await at(visit, split_site)
    await screen.open("playground")
    await say(screen, "call notes.list_notes")
    await screen.says("mcp__notes__list_notes said")
    await expect(call(screen, "list_notes")).to_contain_text("Answered")


@pytest.mark.requirement("admin:web:audit-node")
async def test_the_trail_says_which_node_wrote_a_row_and_is_searched_by_it(
    visit: Visit, split_site: Site
):
    screen = await at(visit, split_site)
    await screen.open("tools/notes/list_notes/try")
    await screen.button("Call list_notes").click()
    outcome = screen.page.get_by_label("What came of it")
    await expect(outcome.locator(".tag.good")).to_have_text("ok")
    await until(lambda: _is_sent(split_site, "list_notes"))
    await screen.open("audit")
    rows = screen.page.get_by_role("list", name="Entries of the audit trail")
    by_node = rows.get_by_role("listitem").filter(has=screen.link("east", exact=False))
    await expect(by_node.filter(has_text="list_notes").first).to_be_visible()
    # What the control plane wrote itself says no node: its own token was made there.
    here = rows.get_by_role("listitem").filter(has_text="Token east made")
    await expect(here.get_by_role("link", name="east")).to_have_count(0)
    await screen.axe()
    await screen.button("More filters").click()
    await screen.field("Node").fill("east")
    await screen.button("Search").click()
    await expect(by_node.filter(has_text="list_notes").first).to_be_visible()
    await expect(here).to_have_count(0)
    await screen.resize(PHONE)
    await screen.fits()
    await screen.axe()
    await screen.open("audit?node=west")
    await screen.says("Nothing matches")
    await screen.open("audit?node=east&event=call")
    await rows.get_by_role("link", name="list_notes", exact=False).first.click()
    whole = screen.page.get_by_label("The call", exact=True)
    await whole.get_by_role("link", name="east").click()
    await expect(screen.heading).to_have_text("east")
    await screen.link("What it wrote in the audit").click()
    await screen.button("Fewer filters").wait_for()
    await expect(screen.field("Node")).to_have_value("east")


async def _is_sent(site: Site, tool: str) -> bool:
    """Say whether a call has reached the ledger of the control plane."""
    found = await site.get("/admin/api/audit?node=east&event=call")
    return any(tool in str(one["event"]) for one in found["entries"])


@pytest.mark.requirement("admin:overview:nodes")
async def test_the_overview_counts_what_its_nodes_do(visit: Visit, split_site: Site):
    screen = await at(visit, split_site)
    await screen.open("overview")
    await screen.settled()
    status, answer = await split_site.ask(
        *("POST", "/admin/api/tokens"),
        token=split_site.admin,
        body={"role": "client", "name": "counted", "task_id": "t"},
    )
    assert status == 201, answer
    node_url = (await split_site.get("/api/v1/identity"))["node_url"]
    calling = {"Authorization": f"Bearer {answer['token']}"}
    path, body = f"{node_url}/api/v1/tools/call", {"name": "mcp__notes__current_time"}

    async def called() -> bool:  # once the node has heard of the token
        async with split_site.http.post(path, json=body, headers=calling) as found:
            return found.status == 200

    await until(called)
    busiest = screen.page.get_by_role("region", name="By server and tool")
    await busiest.get_by_role("button", name="notes").click()
    await expect(busiest.get_by_role("link", name="current_time")).to_be_visible()
    recent = screen.page.get_by_role("region", name="Calls as they end")
    await expect(recent.get_by_text("current_time")).to_be_visible()
    await screen.says_not("under way")
    await screen.axe()
