"""Start-up as whole processes, interpreter included, with bytecode compiled."""

from __future__ import annotations

import subprocess
import sys
import timeit
from collections.abc import Sequence
from statistics import median

from bench.table import Row, at_most

NAME = "imports"
RUNS = 15


def run() -> list[Row]:
    """Measure the median of several runs of each, after one that is not counted."""
    bare = _milliseconds(["-c", "pass"])
    imported = _milliseconds(["-c", "import bascule"])
    helped = _milliseconds(["-m", "bascule", "--help"])
    return [
        Row("python that does nothing", bare, "ms"),
        at_most("import bascule", imported, "ms", 150),
        at_most("bascule --help", helped, "ms", 300),
    ]


def _milliseconds(arguments: Sequence[str]) -> float:
    command = [sys.executable, *arguments]

    def once() -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60)

    once()
    return median(timeit.repeat(once, number=1, repeat=RUNS)) * 1000
