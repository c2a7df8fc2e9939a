"""Where all workers find what one of them has played."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Return where all workers find what one of them has played."""
    mine = tmp_path_factory.getbasetemp()
    return mine if worker_id == "master" else mine.parent
