"""Servers that come from elsewhere: files, clients' configurations, newer versions, proposals."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from playwright.async_api import FilePayload, expect

from bascule.app.data_dir import STORE_FILE
from bascule.control.registry.sqlite_store import SqliteStore
from tests.browser.screen import Screen
from tests.browser.servers import REGISTRY, SERVERS, Register, notes
from tests.browser.site import Site, serving
from tests.browser.test_server_forms import REFUSED, review_and_save
from tests.browser.visit import Visit
from tests.control.registry.build import BY, write

FILED = """
server_id = "filed"
transport = "stdio"
allowed_tools = ["read_*"]
stdio.command = "true"
"""
CLIENT = """// of a client
{"mcpServers": {
  "Time": {"command": "uvx", "args": ["mcp-server-time"]},
  "docs": {"url": "https://docs.example/mcp",},
}}"""


@pytest.fixture(scope="module")
async def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files") / "mcp.d"
    folder.mkdir()
    (folder / "filed.toml").write_text(FILED, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
async def filed(folder: Path) -> AsyncIterator[Site]:
    """A process with a record of a file, and one with a field that another version wrote."""
    data = folder.with_name("data")
    options = ("--empty", "--registry-dir", str(folder))
    data.mkdir(mode=0o700)
    store = await SqliteStore(data / STORE_FILE).open()
    await store.write([write("newer")], BY)
    await store.close()
    _write_into(data / STORE_FILE, "newer", colour="red")
    async with serving(data, *options) as site:
        yield site


def _write_into(store: Path, key: str, **extra: object) -> None:
    with sqlite3.connect(store) as raw:
        [body] = raw.execute("SELECT body FROM objects WHERE id = ?", (key,)).fetchone()
        plain = msgspec.json.decode(body) | extra
        text = msgspec.json.encode(plain, order="deterministic").decode()
        raw.execute("UPDATE objects SET body = ? WHERE id = ?", (text, key))
    raw.close()


@pytest.mark.requirement("admin:web:form-keeps-fields")
async def test_saving_keeps_a_field_that_the_form_does_not_know(visit: Visit, filed: Site):
    screen = await visit(filed)
    await screen.open("servers/newer/edit")
    await screen.says("a field that this form does not know")
    await screen.field("Name optional").fill("Newer")
    await review_and_save(screen)
    await screen.button("JSON").click()
    await expect(screen.field("Record")).to_have_value(re.compile('"colour": "red"'))
    found = await filed.get(f"{SERVERS}/newer")
    assert (found["display_name"], found["colour"]) == ("Newer", "red")


@pytest.mark.requirement("admin:web:files")
async def test_a_record_of_a_file_is_adopted_and_a_rescan_brings_it_back(
    visit: Visit, filed: Site, folder: Path
):
    screen = await visit(filed)
    await screen.open("servers/filed/edit")
    await screen.says("This record comes from the file")
    await expect(screen.field("Command")).to_have_attribute("readonly", "")
    await screen.button("Adopt to edit it here").click()
    await screen.dialog("Adopt this record?").get_by_role("button", name="Adopt").click()
    await expect(screen.field("Command")).not_to_have_attribute("readonly", "")
    await screen.button("Delete").click()
    await screen.dialog("Delete filed?").get_by_role("button", name="Delete filed").click()
    await screen.says("Deleted filed.")
    await screen.open("servers/rescan")
    await expect(screen.page.get_by_label("The difference")).to_contain_text("+ server filed")
    await screen.axe("dark")
    status, _ = await filed.ask("GET", f"{SERVERS}/filed", token=filed.admin)
    assert status == 404
    await screen.button("Load the files").click()
    await screen.says("Nothing to load")
    assert (await filed.get(f"{SERVERS}/filed"))["owner"]
    (folder / "broken.toml").write_text("server_id = 3", encoding="utf-8")
    await screen.button("Look again").click()
    await screen.says("Left out: broken.toml")


@pytest.mark.requirement("admin:web:import")
async def test_a_clients_configuration_is_looked_at_picked_and_written(
    register: Register, screen: Screen, site: Site
):
    screen.watch.allow(REFUSED)
    register.knows(f"{SERVERS}/time")
    await screen.open("servers/new")
    await screen.field("Command line or address").fill(CLIENT.replace("],", "]", 1))
    await screen.button("Import it").click()
    await expect(screen.heading).to_have_text("Import servers")
    await screen.field("Or paste it").fill('{"mcpServers": {\n  "a": }}')
    await screen.button("Preview").click()
    await screen.says("line 2")
    await screen.field("Or paste it").fill(CLIENT)
    await screen.button("Preview").click()
    await screen.says("time: no tool is allowed yet")
    await expect(screen.page.get_by_label("All that changes")).to_contain_text("+ server docs")
    await screen.axe()
    await screen.page.get_by_role("checkbox", name="docs").uncheck()
    await expect(screen.page.get_by_label("All that changes")).not_to_contain_text("docs")
    await screen.button("Import 1 server without trying").click()
    await screen.says("Next: start each, and allow its tools")
    ids = [one["server_id"] for one in (await site.get(SERVERS))["servers"]]
    assert "time" in ids
    assert "docs" not in ids


@pytest.mark.requirement("admin:web:import")
async def test_a_file_of_records_is_imported_with_what_it_allows(
    register: Register, screen: Screen, site: Site
):
    register.knows(f"{SERVERS}/other")
    register.knows(f"{REGISTRY}/tasks/reads")
    task = '[[tasks]]\ntask_id = "reads"\nmcp.enabled = true\nmcp.default_server_ids = ["other"]\n'
    text = f"[[servers]]{FILED.replace('filed', 'other')}\n{task}"
    await screen.open("servers/import")
    chosen: FilePayload = {"name": "a.toml", "mimeType": "text/plain", "buffer": text.encode()}
    await screen.page.locator("input[type=file]").set_input_files(chosen)
    changes = screen.page.get_by_label("All that changes")
    await expect(changes).to_contain_text("task reads")
    await screen.button("Import 2 records").click()
    await screen.says("Imported as revision")
    assert (await site.get(f"{SERVERS}/other"))["allowed_tools"] == ["read_*"]


async def propose(site: Site, server: str) -> None:
    record = notes(server)
    record["stdio"]["env_from"] = ["GITHUB_TOKEN"]
    operator = await site.sign_in("operator")
    status, _ = await site.ask("POST", SERVERS, token=operator, body=record)
    assert status == 403


@pytest.mark.requirement("admin:web:proposals")
async def test_a_write_that_waits_is_accepted_by_its_credential_and_target(
    register: Register, screen: Screen, site: Site
):
    await propose(site, "github")
    register.knows(f"{SERVERS}/github")
    await screen.open("servers")
    await screen.says("1 write waits for you")
    await screen.link("Look at it").click()
    pair = screen.row("${ENV:GITHUB_TOKEN}")
    await expect(pair).to_contain_text("bascule.demo.server")
    await screen.axe("light")
    await screen.button("Accept github").click()
    await screen.dialog("Accept github?").get_by_role("button", name="Accept").click()
    await screen.says("Nothing waits")
    assert (await site.get(f"{SERVERS}/github"))["stdio"]["env_from"] == ["GITHUB_TOKEN"]


@pytest.mark.requirement("admin:web:proposals")
async def test_a_write_that_waits_is_refused_and_forgotten_by_keyboard_alone(
    screen: Screen, site: Site
):
    await propose(site, "gitlab")
    await screen.open("servers/proposals")
    await screen.press(screen.button("Refuse gitlab"))
    dialog = screen.dialog("Refuse gitlab?")
    await expect(dialog).to_contain_text("Nothing is written")
    await screen.axe("light")
    await screen.press(dialog.get_by_role("button", name="Refuse"))
    await screen.says("Refused: server gitlab stays as it was.")
    await screen.says("Nothing waits")
    assert (await site.get(f"{REGISTRY}/proposals"))["proposals"] == []
    assert (await site.ask("GET", f"{SERVERS}/gitlab", token=site.admin))[0] == 404
