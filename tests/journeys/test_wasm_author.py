"""Journey 8: an author writes a guest, lets a model call it, and gives it to a task."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from checks.guests import ZIG, build
from tests.flow.up_process import serving, start
from tests.journeys.shell import Terminal
from tests.waits import SOON_SECONDS, until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guests.md").read_text(encoding="utf-8")
DELETE = 'call notes.delete_note with {"name": "shopping"}'


def _commands() -> list[str]:
    """Return the commands of the page's first part that run a guest, without their first word."""
    first = PAGE.partition("## What a guest imports")[0]
    return [line.strip() for line in re.findall(r"^bascule (run [^#\n]*)", first, re.MULTILINE)]


def _write_the_first_guest(folder: Path) -> None:
    """Copy the program off the page, and compile it; without a compiler take what is committed."""
    text = PAGE.partition("```c\n")[2].partition("```")[0]
    assert text in (ROOT / "guests" / "hello.c").read_text(encoding="utf-8")
    shutil.copytree(ROOT / "guests", folder / "guests")
    module = folder / "guests" / "hello.wasm"
    if ZIG.exists():
        source = folder / "guests" / "hello.c"
        source.write_text(text, encoding="utf-8")
        module.write_bytes(build(source))
    shutil.copyfile(module, folder / "hello.wasm")


async def _sees_it_wait_and_go_on(at: Terminal, data: Path) -> None:
    """Read what a guest says while it waits for somebody, approve the call, and see its end."""
    guest = str(at.folder / "guests" / "both.wasm")
    words = ("--task", "demo", "--model", "rehearsal", "--arg", DELETE, "--data-dir", str(data))
    process = await start("run", guest, *words)
    try:
        async with asyncio.timeout(SOON_SECONDS):
            await _approve_what_it_waits_for(at, process)
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, err
    assert b"delete_note said" in out


async def _approve_what_it_waits_for(at: Terminal, process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    assert b'"name":"shopping"' in await process.stdout.readline()

    async def asked() -> str | None:
        found = json.loads(await at.works("approvals list --json"))["approvals"]
        return found[0]["id"] if found else None

    await at.works(f"approvals approve {await until(asked)} --yes")


@pytest.mark.timeout(120)
@pytest.mark.requirement("hostcalls:run")
async def test_from_a_page_of_c_to_a_task_of_the_server(tmp_path: Path):
    folder, data = tmp_path / "work", tmp_path / "data"
    folder.mkdir()
    _write_the_first_guest(folder)
    at = Terminal(folder, data)
    hello, chat, listing, both = _commands()
    assert await at.works(hello) == "Hello, Ada!\n"
    assert "I am a rehearsal" in await at.works(chat)
    async with serving(data):
        assert "delete_note\nlist_notes\n" in await at.works(listing)
        said = await at.works(both)
        assert "mcp__notes__read_note said" in said
        assert "DONE" in said
        await _sees_it_wait_and_go_on(at, data)

        module = folder / "hello.wasm"
        digest = hashlib.sha256(module.read_bytes()).hexdigest()
        program = {"path": str(module), "checksum_sha256": digest, "args": ["Grace"]}
        await at.works(f"tasks set demo executable={shlex.quote(json.dumps(program))}")
        assert await at.works("run --task demo") == "Hello, Grace!\n"
        invoked = await at("tasks invoke demo --arg again")
        assert (invoked.code, invoked.out) == (0, "Hello, Grace!\n"), invoked.err
        assert "the guest has greeted" in invoked.err

        await at.works("tasks add alone")
        refused = await at(f"{listing.partition('--task')[0]} --task alone")
        assert (refused.code, refused.err) == (1, "error: mcp_open: EACCES\n")
        module.write_bytes(module.read_bytes() + b"\0")
        changed = await at("run --task demo")
        assert changed.code == 2
        assert "executable.checksum_sha256" in changed.err
