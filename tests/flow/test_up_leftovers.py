"""What a killed process leaves in the folder for temporary files is swept by the next start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.served import served


@pytest.mark.requirement("process:leftovers")
def test_the_folders_of_a_killed_process_are_swept_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    with served(tmp_path / "data") as up:
        assert up("tools", "list", "--task", "demo").code == 0
        up.serving.kill()
        up.serving.wait(10)
    left = set(place.glob("bascule-*"))
    assert left
    with served(tmp_path / "data") as up:
        while any(folder.exists() for folder in left):
            assert up("servers", "list").code == 0
