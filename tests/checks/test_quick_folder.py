"""Where temporary files are while tests run: in memory if that will do, else where they were."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from checks.quick_folder import is_fit, quick_folder

ASKED = [sys.executable, "-c", "import tempfile; print(tempfile.gettempdir())"]


@pytest.fixture(autouse=True)
def _nobody_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_files_of_this_process_and_of_its_children_go_there_and_are_gone_afterwards(tmp_path: Path):
    before = tempfile.gettempdir()
    with quick_folder(tmp_path, least_bytes=0) as folder:
        assert folder is not None
        assert folder.parent == tmp_path
        assert tempfile.gettempdir() == str(folder)
        said = subprocess.run(ASKED, check=True, capture_output=True, encoding="utf-8").stdout
        assert said.strip() == str(folder)
        (folder / "left").write_bytes(b"")
    assert list(tmp_path.iterdir()) == []
    assert tempfile.gettempdir() == before


def test_a_place_that_somebody_chose_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with quick_folder(tmp_path) as folder:
        assert folder is None
        assert os.environ["TMPDIR"] == str(tmp_path)


def test_a_place_without_room_and_one_that_is_not_there_will_not_do(tmp_path: Path):
    assert is_fit(tmp_path, least_bytes=0)
    assert not is_fit(tmp_path, least_bytes=1 << 62)
    assert not is_fit(tmp_path / "none", least_bytes=0)
    with quick_folder(tmp_path / "none") as folder:
        assert folder is None
