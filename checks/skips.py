"""A skipped test fails the run, unless ``tests/allowed-skips.txt`` names it with a reason.

A test expected to fail counts as skipped: it decides nothing either.

Each line of the file is ``pattern  # reason``; in a pattern ``*`` stands for any text and every
other character for itself, so that the brackets of a parametrised test can be written as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from checks.tree import ROOT

ALLOWED_SKIPS = ROOT / "tests" / "allowed-skips.txt"


class BadSkipList(Exception):
    """The list of allowed skips has a line without a pattern or a reason."""


@dataclass(frozen=True)
class AllowedSkip:
    """One line of the list."""

    pattern: str
    reason: str

    def covers(self, nodeid: str) -> bool:
        """Tell whether the pattern is the whole node id."""
        parts = (re.escape(part) for part in self.pattern.split("*"))
        return re.fullmatch(".*".join(parts), nodeid, re.DOTALL) is not None


class SkipWatch:
    """A pytest plugin that remembers what was skipped, on the controlling process alone."""

    def __init__(self) -> None:
        self.skipped: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that was skipped, or expected to fail and did."""
        if report.skipped:
            self.skipped[report.nodeid] = _why(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a module that skipped itself while it was imported."""
        if report.skipped:
            self.skipped[report.nodeid] = _why(report)

    def complaints(self, allowed: Sequence[AllowedSkip]) -> list[str]:
        """Name every skip that nothing allows."""
        return [
            f"{nodeid}: skipped ({why}): mend it, or name it with a reason in {ALLOWED_SKIPS.name}"
            for nodeid, why in sorted(self.skipped.items())
            if not any(skip.covers(nodeid) for skip in allowed)
        ]


def read_allowed(path: Path = ALLOWED_SKIPS) -> list[AllowedSkip]:
    """Read the list; a line without a reason is refused."""
    numbered = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    lines = [(number, line.strip()) for number, line in numbered]
    return [_parsed(path, *line) for line in lines if line[1] and not line[1].startswith("#")]


def _parsed(path: Path, number: int, line: str) -> AllowedSkip:
    pattern, _, reason = line.partition(" # ")
    if not pattern.strip() or not reason.strip():
        raise BadSkipList(f"{path.name}:{number}: write `pattern  # reason`, not {line!r}")
    return AllowedSkip(pattern.strip(), reason.strip())


def _why(report: pytest.TestReport | pytest.CollectReport) -> str:
    if hasattr(report, "wasxfail"):
        return "expected to fail"
    match report.longrepr:
        case (_, _, str(text)):
            return text.removeprefix("Skipped: ")
        case _:
            return "no reason given"
