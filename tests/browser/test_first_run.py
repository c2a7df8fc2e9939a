"""Journey 1 in a browser: a fresh clone, ``make up``, one link, and four steps to an approval."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import re
import shutil
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from playwright.async_api import expect

from checks.tree import ROOT, repository_files
from tests.browser.screen import Screen
from tests.browser.site import Site
from tests.browser.visit import Visit

SERVES = re.compile(r"Bascule serves at \S+")
LINK = re.compile(r"Open the admin page: (\S+/admin/#code=\S+)")
DRAFT = re.compile(r'^\{\s+"name": "draft-\d{6}"\s+\}$')
#: It installs what serving needs, of which the machine may have nothing yet.
START_SECONDS = 180.0
END_SECONDS = 20.0


def cloned(folder: Path) -> Path:
    """Lay out what a clone has: no environment, no installer, nothing that was built meanwhile."""
    for file in repository_files():
        place = folder / file.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)
    return folder


def bare_machine(folder: Path) -> dict[str, str]:
    """Make an environment whose programs are Python, make and a shell: no node, no uv, no git."""
    folder.mkdir()
    for name in ("bash", "sh", "make", "grep", "touch"):
        found = shutil.which(name)
        assert found, name
        (folder / name).symlink_to(found)
    python = folder / "python3"
    python.write_text(f'#!/bin/sh\nexec {Path(sys.executable).resolve()} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    others = ("BASCULE_", "MAKE", "MFLAGS", "VIRTUAL_ENV", "PYTHON")
    usual = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    return {**usual, "PATH": str(folder)}


@asynccontextmanager
async def made_up(folder: Path) -> AsyncGenerator[tuple[Site, str]]:
    """Type ``make up`` into a terminal, and give the link that it shows; end it with Ctrl-C."""
    ours, theirs = pty.openpty()
    clone, machine, data = cloned(folder / "clone"), bare_machine(folder / "bin"), folder / "data"
    process = await asyncio.create_subprocess_exec(
        *(str(folder / "bin" / "make"), "up", f"ARGS=--port 0 --data-dir {data}"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=clone,
        env=machine,
        start_new_session=True,
    )
    os.close(theirs)
    reader = asyncio.StreamReader()
    with os.fdopen(ours, "rb", buffering=0) as screen:
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), screen
        )
        try:
            shown = await _shown(reader)
            assert "preparing what serving needs: " in shown
            assert not (clone / ".venv" / ".stamp").exists(), "nothing for developers"
            draining = asyncio.create_task(_drained(reader))
            [serves], [link] = SERVES.findall(shown), LINK.findall(shown)
            site = Site(process, data, [serves])
            yield site, link
            await site.http.close()
            family = psutil.Process(process.pid).children(recursive=True)
            os.killpg(process.pid, signal.SIGINT)
            await asyncio.wait_for(process.wait(), END_SECONDS)
            await draining
            _, left = await asyncio.to_thread(psutil.wait_procs, family, END_SECONDS)
            assert left == []
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


async def _shown(reader: asyncio.StreamReader) -> str:
    """Return what stands on the terminal once it serves, or fails to."""
    shown = ""
    with contextlib.suppress(OSError):  # how Linux says that a terminal has no more writers
        async with asyncio.timeout(START_SECONDS):
            while "another link: " not in shown and not reader.at_eof():
                shown += (await reader.read(4096)).decode()
    assert "another link: " in shown, shown
    return shown


async def _drained(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        await reader.read()


@pytest.mark.requirement("admin:web:first-run", "admin:web:welcome", "cli:make-up")
async def test_from_one_command_to_the_first_approval(visit: Visit, tmp_path: Path):
    async with made_up(tmp_path) as (site, link):
        screen = await visit(site, role=None)
        await screen.page.goto(link)
        await screen.button("Continue as admin").click()
        await expect(screen.heading).to_have_text("Welcome")
        await see_the_tools(screen)
        await let_a_model_call_one(screen)
        await nothing_is_written_yet(screen)
        await approve_a_call(screen)
        await see_its_life(screen)
        await screen.page.close()


async def see_the_tools(screen: Screen) -> None:
    await screen.button("Start the server").click()
    tools = screen.page.get_by_role("list", name="Tools")
    await expect(tools.get_by_role("listitem")).to_have_count(6)
    await expect(tools.get_by_role("listitem").filter(has_text="delete_note")).to_contain_text(
        "Asks a person first"
    )
    await screen.button("Next").click()


async def let_a_model_call_one(screen: Screen) -> None:
    await screen.button("Send it").click()
    answer = screen.page.get_by_role("article")
    await expect(answer).to_contain_text("mcp__notes__list_notes said")
    await expect(answer).to_contain_text(re.compile(r"Policy\s*allowed"))
    await screen.button("Next").click()


async def nothing_is_written_yet(screen: Screen) -> None:
    await screen.button("See what was written down").click()
    await screen.button("Show the call").click()
    await screen.button("Take step 3 first.").click()


async def approve_a_call(screen: Screen) -> None:
    await screen.button("Send it").click()
    await expect(screen.field("Arguments", exact=True)).to_have_text(DRAFT)
    await screen.button("Approve").click()
    answer = screen.page.get_by_role("article")
    await expect(answer).to_contain_text('mcp__notes__delete_note said: {"name":"draft-')
    await expect(answer).to_contain_text("approved by")
    await screen.button("Next").click()


async def see_its_life(screen: Screen) -> None:
    await screen.button("Show the call").click()
    life = screen.page.get_by_role("list", name="The life of the call").get_by_role("listitem")
    await expect(life).to_contain_text(
        ["Approval asked for", "Approved", "Approval used", "Call sent", "Call ended"]
    )
    await screen.link("Open it in the audit").click()
    await expect(screen.heading).to_have_text("One call")
