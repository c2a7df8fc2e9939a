"""New local servers: what each is granted, a trial inside its sandbox, and then the write."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.async_api import Locator, expect

from bascule.testing.server import ScriptedServer
from tests.browser.screen import PHONE, Screen
from tests.browser.servers import SERVERS, Register
from tests.browser.site import Site
from tests.browser.test_server_forms import review_and_save
from tests.browser.visit import Visit
from tests.waits import until

DEMO = {"command": sys.executable, "args": ["-m", "bascule.demo.server"]}
BROKEN = {"command": "/bin/false"}
MUTE = ["tail", "-f", "/dev/null"]
AT_ONCE = 3


def mute(server_id: str) -> dict[str, Any]:
    """A record of a server that never answers, and has all the time for it."""
    return {
        "server_id": server_id,
        "transport": "stdio",
        "stdio": {"command": MUTE[0], "args": MUTE[1:]},
        "sandbox": {"level": "best"},
        "budgets": {"connect_timeout_ms": 300_000},
    }


@pytest.fixture
def needed() -> Iterator[Path]:
    """A file that any user may read, in a folder that no sandbox grants."""
    with tempfile.TemporaryDirectory(prefix="needed-") as folder:
        Path(folder).chmod(0o755)
        file = Path(folder) / "file"
        file.write_text("x", encoding="ascii")
        yield file


def started(site: Site) -> list[int]:
    """Return the programs of mute servers that run."""
    found: list[int] = []
    for child in psutil.Process(site.process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if child.cmdline()[1:] == MUTE[1:]:
                found.append(child.pid)
    return found


def reader(path: Path, *more: str) -> dict[str, Any]:
    """A server that needs a file to start, as many need their database."""
    program, args = ScriptedServer().command
    script = f"import os, sys; open({str(path)!r}).close(); os.execv(sys.argv[1], sys.argv[1:])"
    return {"command": program, "args": ["-c", script, program, *args, *more]}


async def preview(screen: Screen, **servers: dict[str, Any]) -> None:
    """Paste a client's configuration, and look what it comes to."""
    await paste(screen, {"mcpServers": servers}, next(iter(servers)))


async def paste(screen: Screen, content: dict[str, Any], first: str) -> None:
    await screen.open("servers/import")
    await screen.field("Or paste it").fill(json.dumps(content))
    await screen.button("Preview").click()
    await expect(screen.page.get_by_role("checkbox", name=first)).to_be_visible()


def server(screen: Screen, name: str) -> Locator:
    checkbox = screen.page.get_by_role("checkbox", name=name)
    return screen.page.get_by_role("listitem").filter(has=checkbox)


async def sandbox_of(site: Site, name: str) -> Any:
    return (await site.get(f"{SERVERS}/{name}?defaults=false"))["sandbox"]


@pytest.mark.requirement("admin:web:import-trial")
async def test_each_server_is_tried_inside_and_written_with_what_was_decided(
    register: Register, screen: Screen, site: Site, needed: Path
):
    for name in ("sound", "misses", "hopeless"):
        register.knows(f"{SERVERS}/{name}")
    far = {"url": "https://docs.example/mcp"}
    await preview(screen, sound=DEMO, misses=reader(needed), hopeless=BROKEN, far=far)
    sound, misses, hopeless = (server(screen, name) for name in ("sound", "misses", "hopeless"))
    words = "Isolation: the best that its node can do, with all of the network."
    await expect(sound).to_contain_text(words)
    await expect(sound).to_contain_text("Not tried yet.")
    await expect(server(screen, "far")).not_to_contain_text("Isolation")
    await screen.button("Try 3 servers").click()
    await expect(sound).to_contain_text("It lists 6 tools inside its sandbox.")
    await expect(misses).to_contain_text("It does not list its tools inside its sandbox.")
    await expect(misses).to_contain_text("With limits only it lists 1 tool.")
    await expect(misses).to_contain_text(f"It could not read {needed}.")
    await expect(hopeless).to_contain_text("its sandbox is not the cause")
    await expect(hopeless.get_by_role("checkbox")).to_have_count(1)  # no limits are offered
    await screen.axe()
    await misses.get_by_role("checkbox", name="Import it with limits only").check()
    await expect(misses).to_contain_text("Isolation: limits only")
    await screen.page.get_by_role("checkbox", name="far").uncheck()
    await screen.button("Import 3 servers").click()
    await screen.says("Next: start each, and allow its tools")
    found = [await sandbox_of(site, name) for name in ("sound", "misses", "hopeless")]
    assert found == [{}, {"level": "limits"}, {}]
    assert (await site.get(f"{SERVERS}/misses"))["revision"] == (
        await site.get(f"{SERVERS}/sound")
    )["revision"]


@pytest.mark.requirement("admin:web:import-trial")
async def test_a_folder_that_arguments_name_is_granted_where_somebody_says_so(
    register: Register, screen: Screen, site: Site, needed: Path
):
    register.knows(f"{SERVERS}/opens")
    register.knows(f"{SERVERS}/other")
    folder = needed.parent
    await preview(screen, opens=reader(needed, str(folder)), other={**DEMO, "args": [str(folder)]})
    opens = server(screen, "opens")
    place = opens.get_by_label(f"Its arguments name {folder}")
    await expect(place).to_have_value("")  # nothing is granted unless somebody says so
    await screen.says(f"opens.args: {folder} is not granted by its sandbox")
    await place.select_option("It may read")
    await screen.says_not(f"opens.args: {folder} is not granted by its sandbox")
    await screen.page.get_by_role("checkbox", name="other").uncheck()
    await screen.button("Try 1 server").click()
    await expect(opens).to_contain_text("It lists 1 tool inside its sandbox.")
    await place.select_option("It may read and write")
    await expect(opens).to_contain_text("Not tried yet.")  # that was another sandbox
    await screen.button("Import 1 server without trying").click()
    await screen.says("Next: start each, and allow its tools")
    assert await sandbox_of(site, "opens") == {"write": [".", str(folder)]}


@pytest.mark.requirement("admin:web:import-trial")
async def test_a_few_are_tried_at_once_and_all_end_when_one_changes_ones_mind(
    screen: Screen, site: Site
):
    await paste(screen, {"servers": [mute(f"mute-{n}") for n in range(AT_ONCE + 2)]}, "mute-0")
    await screen.button(f"Try {AT_ONCE + 2} servers").click()
    trying, waiting = "Trying it inside its sandbox", "Waits for its turn."
    await expect(screen.page.get_by_text(trying)).to_have_count(AT_ONCE)
    await expect(screen.page.get_by_text(waiting)).to_have_count(2)
    await screen.says(f"0 of {AT_ONCE + 2} tried")
    await until(lambda: len(started(site)) == AT_ONCE)
    await screen.axe("light")
    await screen.page.get_by_role("checkbox", name="mute-0").uncheck()
    await expect(screen.page.get_by_text(waiting)).to_have_count(1)  # the next one has its turn
    await screen.button("Cancel the trials").click()
    await expect(screen.page.get_by_text(trying)).to_have_count(0)
    await expect(screen.page.get_by_text(waiting)).to_have_count(0)
    await expect(screen.button(f"Try {AT_ONCE + 1} servers")).to_be_visible()
    await until(lambda: not started(site))


@pytest.mark.requirement("admin:web:import-trial")
async def test_what_is_tried_and_decided_fits_a_phone_and_a_keyboard(
    register: Register, visit: Visit, site: Site, needed: Path
):
    register.knows(f"{SERVERS}/keys")
    screen = await visit(site, size=PHONE)
    await preview(screen, keys=reader(needed, f"--root={needed.parent}"))
    keys = server(screen, "keys")
    await screen.press(screen.button("Try 1 server"))
    again = screen.button("Try again")
    await expect(again).to_be_focused()  # the same button: nobody loses their place
    await expect(keys).to_contain_text("It does not list its tools inside its sandbox.")
    await screen.fits()
    await screen.axe()
    await screen.tab_to(keys.get_by_label(f"Its arguments name {needed.parent}"))
    await screen.page.keyboard.type("It may read")
    await screen.press(screen.button("Try 1 server"))
    await expect(keys).to_contain_text("It lists 1 tool inside its sandbox.")
    await expect(screen.button("Grant it that, and try again")).to_have_count(0)
    await screen.press(screen.button("Import 1 server"))
    await screen.says("Next: start each, and allow its tools")
    assert await sandbox_of(site, "keys") == {"read": [str(needed.parent)]}


@pytest.mark.requirement("admin:web:import-trial")
async def test_what_a_server_missed_is_granted_and_it_is_tried_again(
    register: Register, screen: Screen, site: Site, needed: Path
):
    register.knows(f"{SERVERS}/wider")
    await preview(screen, wider=reader(needed), broken=BROKEN)
    await screen.button("Try 2 servers").click()
    wider = server(screen, "wider")
    await screen.press(wider.get_by_role("button", name="Grant it that, and try again"))
    await expect(wider).to_contain_text("It lists 1 tool inside its sandbox.")
    await expect(wider).to_contain_text(f"all of the network, and {needed}.")
    await screen.axe()
    await screen.page.get_by_role("checkbox", name="broken").uncheck()
    await screen.button("Import 1 server").click()
    await screen.says("Next: start each, and allow its tools")
    assert await sandbox_of(site, "wider") == {"read": [str(needed)]}


async def fill_in(screen: Screen, name: str, entry: dict[str, Any]) -> None:
    """Fill in the form of a new server from its command line."""
    await screen.open("servers/new")
    line = shlex.join([entry["command"], *entry["args"]])
    await screen.field("Command line or address").fill(line)
    await screen.button("Fill in the form").click()
    await screen.field("Id").fill(name)


@pytest.mark.requirement("admin:web:form-trial")
async def test_a_new_server_that_misses_something_inside_is_offered_limits(
    register: Register, screen: Screen, site: Site, needed: Path
):
    register.knows(f"{SERVERS}/looser")
    await fill_in(screen, "looser", reader(needed))
    await screen.button("Test these settings").click()
    await screen.says("with limits only it lists 1 tool")
    await screen.axe()
    await screen.button("Use limits only", exact=False).click()
    await screen.says_not("with limits only it lists")
    await screen.button("Test these settings").click()
    await screen.says("It works: 1 tool")
    await review_and_save(screen)
    assert await sandbox_of(site, "looser") == {"level": "limits"}


@pytest.mark.requirement("admin:web:form-trial")
async def test_a_folder_that_the_arguments_of_a_new_server_name_is_offered(
    register: Register, screen: Screen, site: Site, needed: Path
):
    register.knows(f"{SERVERS}/granted")
    folder = needed.parent
    await fill_in(screen, "granted", reader(needed, f"--root={folder}/"))
    place = screen.field(f"Its arguments name {folder}")
    await expect(place).to_have_value("")
    await place.select_option("It may read")
    await screen.button("Test these settings").click()
    await screen.says("It works: 1 tool")
    await place.select_option("It may read and write")
    await screen.resize(PHONE)
    await screen.fits()
    await screen.axe("dark")
    await place.select_option("Not granted")
    await place.select_option("It may read and write")
    await review_and_save(screen)
    assert await sandbox_of(site, "granted") == {"write": [".", str(folder)]}


@pytest.mark.requirement("admin:web:form-trial")
async def test_a_new_server_that_works_neither_way_is_offered_nothing(screen: Screen):
    await fill_in(screen, "neither", {**BROKEN, "args": []})
    await screen.button("Test these settings").click()
    await screen.says("its sandbox is not the cause")
    await expect(screen.button("Use limits only", exact=False)).to_have_count(0)


@pytest.mark.requirement("admin:web:form-trial")
async def test_what_a_new_server_missed_is_granted_in_its_form(
    register: Register, screen: Screen, site: Site, needed: Path
):
    register.knows(f"{SERVERS}/missing")
    await fill_in(screen, "missing", reader(needed))
    await screen.button("Test these settings").click()
    await screen.says(f"It could not read {needed}.")
    await screen.press(screen.button("Grant it that, and try again"))
    await screen.says("It works: 1 tool")
    await review_and_save(screen)
    assert await sandbox_of(site, "missing") == {"read": [str(needed)]}


@pytest.mark.requirement("admin:web:form-trial")
async def test_the_test_of_a_server_names_what_it_missed(
    register: Register, screen: Screen, needed: Path
):
    record = {"server_id": "tested", "transport": "stdio", "sandbox": {"level": "best"}}
    await register({**record, "stdio": reader(needed)})
    await screen.open("servers/tested/test")
    await screen.button("Test").click()
    await screen.says(f"It could not read {needed}.")
    await screen.axe("light")
    await screen.link("Change what its sandbox grants").click()
    await expect(screen.button("Review and save")).to_be_visible()
