"""``make test``: every test on every core, and no test left out without saying so.

Further arguments go to pytest: ``make test ARGS="tests/policy -k deny"``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import pytest

from checks.skips import SkipWatch, read_allowed
from checks.tree import report

#: How many of the slowest tests are named at the end.
SLOWEST = 20


def main(arguments: Sequence[str]) -> int:
    """Run pytest; its exit code stands, and an unexplained skip turns success into failure."""
    # As the Makefile sets it: the workers, interpreters of their own, see forgotten encodings.
    os.environ.setdefault("PYTHONWARNDEFAULTENCODING", "1")
    # And they keep the bytecode: hundreds of tests start this package as a process.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    watch = SkipWatch()
    options = [*parallel(), "-q", f"--durations={SLOWEST}", *arguments]
    code = int(pytest.main(options, plugins=[watch, FailureLines()]))
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        print("no tests ran: check the path or the -k expression")
    return code or report(watch.complaints(read_allowed()))


class FailureLines:
    """A pytest plugin that names a failure at once: a run that is ended shows no summary."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Name a test that failed."""
        if report.failed:
            print(f"\nfailed: {report.nodeid} ({report.when})", flush=True)


def parallel() -> list[str]:
    """Give pytest-xdist one worker more than cores: a third of a worker's time is waiting.

    Idle workers take over the tests of busy ones.
    """
    return [
        "-n",
        str((os.cpu_count() or 1) + 1),
        "--dist",
        "worksteal",
        "--inline-snapshot=disable",
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
