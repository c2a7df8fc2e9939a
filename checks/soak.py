"""``make soak``: the tests in their long form, at full counts, and a record of how it went.

Writes ``bench/results/soak.json`` (every test) and ``soak.md`` (those that take a second or
more). A run of part of the tests, ``make soak ARGS="tests/policy"``, says so in the record;
a run of all of them ends with the mutation check over every change it knows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from checks.run_tests import parallel
from checks.skips import SkipWatch, read_allowed
from checks.tree import ROOT, report

RESULTS = ROOT / "bench" / "results"
TEST_TIMEOUT_SECONDS = 3600
WORTH_SHOWING_SECONDS = 1.0
MUTATION_MINUTES = 180


@dataclass
class Tally:
    """One test function over all its parameters."""

    passed: int = 0
    failed: int = 0
    seconds: float = 0.0


class Stopwatch:
    """A pytest plugin that adds up, per test function, what ran and for how long."""

    def __init__(self) -> None:
        self.tallies: dict[str, Tally] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a finished test once; set-up and tear-down count only when they fail."""
        tally = self.tallies.setdefault(report.nodeid.partition("[")[0], Tally())
        tally.seconds += report.duration
        tally.passed += report.when == "call" and report.passed
        tally.failed += report.failed


def main(arguments: Sequence[str]) -> int:
    """Run the tests at full count and keep the record, whatever the result."""
    os.environ["BASCULE_SOAK"] = "1"  # the workers inherit it; tests/scale.py reads it
    watch, stopwatch = SkipWatch(), Stopwatch()
    options = [*parallel(), "-q", f"--timeout={TEST_TIMEOUT_SECONDS}", *arguments]
    code = int(pytest.main(options, plugins=[watch, stopwatch]))
    complaints = watch.complaints(read_allowed())
    keep(record(stopwatch.tallies, arguments, code), RESULTS)
    code = code or report(complaints)
    return code if arguments else code or mutation_check()


def mutation_check() -> int:
    """Run the mutation check over all it knows, in a process that has imported nothing yet."""
    del os.environ["BASCULE_SOAK"]  # the tests of one change run in their short form
    words = ("--each=0", f"--minutes={MUTATION_MINUTES}", f"--workers={os.cpu_count() or 1}")
    return subprocess.run((sys.executable, "-m", "checks.mutation", *words), check=False).returncode


def record(tallies: dict[str, Tally], arguments: Sequence[str], code: int) -> dict[str, Any]:
    """Gather what is kept of a run."""
    return {
        "date": date.today().isoformat(),  # noqa: DTZ011 - the day on this machine is what is meant
        "arguments": list(arguments),
        "exit_code": code,
        "passed": sum(tally.passed for tally in tallies.values()),
        "failed": sum(tally.failed for tally in tallies.values()),
        "seconds": round(sum(tally.seconds for tally in tallies.values()), 1),
        "tests": {
            name: {**asdict(tally), "seconds": round(tally.seconds, 3)}
            for name, tally in sorted(tallies.items())
        },
    }


def keep(run: dict[str, Any], results: Path) -> None:
    """Write the record and its summary."""
    results.mkdir(parents=True, exist_ok=True)
    text = json.dumps(run, indent=2, ensure_ascii=False) + "\n"
    (results / "soak.json").write_text(text, encoding="utf-8")
    (results / "soak.md").write_text(summary(run), encoding="utf-8")


def summary(run: dict[str, Any]) -> str:
    """Show a run on one page: the totals, then the tests that took their time."""
    asked = " ".join(run["arguments"]) or "all tests"
    shown = [
        f"| `{name}` | {test['passed']} | {test['failed']} | {test['seconds']:.1f} |"
        for name, test in sorted(run["tests"].items(), key=lambda item: -item[1]["seconds"])
        if test["seconds"] >= WORTH_SHOWING_SECONDS or test["failed"]
    ]
    totals = f"{run['passed']} passed, {run['failed']} failed"
    head = [
        "# Soak",
        "",
        f"Made by `make soak` on {run['date']} ({asked}): {totals}, {run['seconds']} s in all.",
        "",
        f"{len(shown)} of {len(run['tests'])} tests took a second or more, or failed:",
        "",
        "| test | passed | failed | seconds |",
        "|---|---:|---:|---:|",
    ]
    return "\n".join([*head, *shown]) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
