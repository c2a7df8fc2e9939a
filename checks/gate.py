"""``make check``: everything that must hold before a change lands, in one command.

The steps that only read run side by side; the tests come last, alone, with their output shown
as it comes. Every step runs even if an earlier one failed, so that one round shows all there is
to mend. ``make check SKIP_TESTS=1`` leaves the tests out.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bascule.clock import SYSTEM_CLOCK
from checks.tree import ROOT

BIN = Path(sys.executable).parent
SIDE_BY_SIDE = 2


@dataclass(frozen=True)
class Step:
    """One check: its name, how it runs, and how to mend what it finds."""

    name: str
    command: tuple[str, ...]
    fix: str
    #: Whether what it says is worth reading when it passes, too.
    tells: bool = False


@dataclass(frozen=True)
class Result:
    """What a step said."""

    step: Step
    passed: bool
    seconds: float
    output: str


STATIC = (
    Step("types", (str(BIN / "basedpyright"),), "mend the types: .venv/bin/basedpyright"),
    Step("web", (sys.executable, "-m", "checks.web"), "make web, then what it names"),
    Step("guests", (sys.executable, "-m", "checks.guests"), "make guests", tells=True),
    Step("proto", (sys.executable, "-m", "checks.protobuf"), "make generate, then what it names"),
    Step("format", (str(BIN / "ruff"), "format", "--check", "."), "make format"),
    Step("lint", (str(BIN / "ruff"), "check", "--output-format=concise", "."), "make format"),
    Step("layers", (str(BIN / "lint-imports"),), "import downwards only: docs/architecture.md"),
    Step("sizes", (sys.executable, "-m", "checks.sizes"), "split what is too long"),
    Step(
        "docs", (sys.executable, "-m", "checks.docs_check"), "make generate, then the pages named"
    ),
)
TESTS = Step("tests", (sys.executable, "-m", "checks.run_tests"), 'make test ARGS="path -k name"')


def main() -> int:
    """Run the gate; exit code 1 if anything failed."""
    results = run_side_by_side(STATIC)
    if os.environ.get("SKIP_TESTS") != "1":
        results.append(run(TESTS, shown=True))
        print(line(results[-1]), flush=True)
    failed = [result.step.name for result in results if not result.passed]
    print(f"gate: {'failed: ' + ', '.join(failed) if failed else 'passed'}")
    return 1 if failed else 0


def run_side_by_side(steps: Sequence[Step]) -> list[Result]:
    """Run steps two at a time and print each result in the order of the steps."""
    results: list[Result] = []
    with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        for result in threads.map(run, steps):
            results.append(result)
            print(line(result), flush=True)
            if result.output and (result.step.tells or not result.passed):
                print(result.output, flush=True)
    return results


def run(step: Step, *, shown: bool = False) -> Result:
    """Run one step from the root; ``shown`` lets its output through instead of keeping it."""
    began = SYSTEM_CLOCK.monotonic()
    ended = subprocess.run(
        step.command,
        cwd=ROOT,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=None if shown else subprocess.PIPE,
        stderr=None if shown else subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    seconds = SYSTEM_CLOCK.monotonic() - began
    return Result(step, ended.returncode == 0, seconds, ended.stdout or "")


def line(result: Result) -> str:
    """Say in one line how a step went, and what to run if it failed."""
    verdict = "ok" if result.passed else f"FAILED  fix: {result.step.fix}"
    return f"{result.step.name:<8}{result.seconds:6.1f} s  {verdict}"


if __name__ == "__main__":
    sys.exit(main())
