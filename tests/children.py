"""The processes that a test started, by what is below its own process."""

from __future__ import annotations

from contextlib import suppress

import psutil


def children() -> set[int]:
    """Return the processes below this one, but for those of a PostgreSQL that others use too.

    A server of PostgreSQL starts and ends processes of its own, whatever a test does.
    """
    found: set[int] = set()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if child.name() != "postgres":
                found.add(child.pid)
    return found
