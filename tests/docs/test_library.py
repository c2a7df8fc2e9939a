"""Every claim of docs/library.md that can be run, run."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from bascule.wire.narrowing import FLAGS, LISTS, NUMBERS
from checks.tree import ROOT
from tests.node.up_process import serving, token

PAGE = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")


def example() -> str:
    [block] = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return block


@pytest.mark.requirement("bridge:connect")
async def test_the_example_runs_against_a_server_that_was_just_started(tmp_path: Path):
    async with serving(tmp_path) as (_, url):
        client = await token(tmp_path, "--role", "client", "--task", "demo")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", example()),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "BASCULE_URL": url, "BASCULE_TOKEN": client},
        )
        async with asyncio.timeout(20):
            out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    tools, note, verdict, *_ = out.decode().splitlines()
    assert "'mcp__notes__read_note'" in tools
    assert "write_note" not in tools
    assert note == "welcome"
    assert verdict == "mcp__notes__write_note: denied"


def test_every_header_that_narrows_is_in_the_table():
    assert set(re.findall(r"^\| `(X-[^`]+)`", PAGE, re.MULTILINE)) == {*FLAGS, *LISTS, *NUMBERS}
