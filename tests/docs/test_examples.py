"""Every program in the documents runs as it stands.

A block fenced as ``python`` is a whole program; one fenced as ``py`` is a fragment. Those that want
a Bascule elsewhere (BASCULE_URL) are run by ``test_library.py``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bascule.outbound.rules import NodeRules
from checks.tree import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAMS = [
    pytest.param(program, id=f"{page.stem}-{number}")
    for page in sorted((ROOT / "docs").glob("*.md"))
    for number, program in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")), start=1)
    if "BASCULE_URL" not in program
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_in_the_documents_runs(program: str, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_there_are_programs_to_run():
    assert PROGRAMS


def test_no_example_reads_a_variable_that_no_record_may_read():
    records = sorted((ROOT / "examples").rglob("*.toml"))
    assert records
    for path in records:
        named = re.findall(r"\$\{(?:ENV:)?(\w+)", path.read_text(encoding="utf-8"))
        assert not [name for name in named if NodeRules.is_own_variable(name)], path
