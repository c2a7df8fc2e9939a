"""Generated files: stale ones are named, writing makes them fresh and touches nothing else."""

from __future__ import annotations

from pathlib import Path

from checks.generated import stale, write


def test_a_missing_or_old_file_is_stale_until_it_is_written(tmp_path: Path):
    generated = {"docs/a.md": lambda: "new\n", "b.md": lambda: "same\n"}
    (tmp_path / "b.md").write_text("same\n", encoding="utf-8")
    [complaint] = stale(generated, tmp_path)
    assert complaint.startswith("docs/a.md: ")
    assert "make generate" in complaint
    assert write(generated, tmp_path) == ["docs/a.md"]
    assert stale(generated, tmp_path) == []
    (tmp_path / "docs" / "a.md").write_text("edited by hand\n", encoding="utf-8")
    assert len(stale(generated, tmp_path)) == 1
