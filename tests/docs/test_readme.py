"""Every claim of the README that can be run, run."""

from __future__ import annotations

import re
import subprocess
import sys

from checks.tree import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
EXAMPLE_LINES = 15


def example() -> str:
    [block] = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    return block


def test_the_example_runs_and_prints_what_it_says():
    done = subprocess.run(
        [sys.executable, "-c", example()],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tools, note, refused = done.stdout.splitlines()
    assert tools == "['mcp__notes__read_note']"
    assert "lowered for those who may cross" in note
    assert "mcp_policy_denied" in refused


def test_the_example_is_short():
    assert len([line for line in example().splitlines() if line.strip()]) <= EXAMPLE_LINES


def test_every_make_target_it_names_exists():
    named = set(re.findall(r"\bmake ([a-z]+)\b", README))
    assert {"up", "test", "check", "soak", "bench"} <= named
    targets = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
    assert named <= targets
