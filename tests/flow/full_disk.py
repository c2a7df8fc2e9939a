"""A disk without room, for one process."""

from __future__ import annotations

import resource
from collections.abc import Generator
from contextlib import contextmanager

from tests.flow.up_process import Up


@contextmanager
def full_disk(up: Up) -> Generator[None]:
    """Have the system refuse every byte that the process would add to a file."""
    before = resource.prlimit(up.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(up.process.pid, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.prlimit(up.process.pid, resource.RLIMIT_FSIZE, before)
