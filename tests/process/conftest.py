"""What is killed here keeps its files on the disk."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

DISK = "/var/tmp"


@pytest.fixture
def tmp_path() -> Generator[Path]:
    """A folder on the disk: what is to survive a kill is tried where it is kept."""
    with TemporaryDirectory(dir=DISK, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
