"""Every claim of docs/library.md that can be run, run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bascule.wire.narrowing import FLAGS, LISTS, NUMBERS
from checks.tree import ROOT
from tests.docs.programs import said

PAGE = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")


def example() -> str:
    [block] = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return block


@pytest.mark.requirement("bridge:connect")
async def test_the_example_runs_against_a_server_that_was_just_started(tmp_path: Path):
    tools, note, verdict, *_ = await said(example(), tmp_path)
    assert "'mcp__notes__read_note'" in tools
    assert "write_note" not in tools
    assert note == "welcome"
    assert verdict == "mcp__notes__write_note: denied"


def test_every_header_that_narrows_is_in_the_table():
    assert set(re.findall(r"^\| `(X-[^`]+)`", PAGE, re.MULTILINE)) == {*FLAGS, *LISTS, *NUMBERS}
