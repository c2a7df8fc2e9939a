"""Folders that servers wrote in: measured and removed, whatever they made of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bascule.node.trees import measure_tree, remove_tree, size_of_tree


def made_deep(folder: Path, depth: int) -> None:
    """Make folders in folders, deeper than any path reaches."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("a", dir_fd=at)
        below = os.open("a", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    file = os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at)
    os.write(file, bytes(4096))
    os.close(file)
    os.close(at)


@pytest.mark.parametrize("depth", [10, 3000])
def test_a_tree_of_any_depth_is_removed(tmp_path: Path, depth: int):
    folder = tmp_path / "home"
    folder.mkdir()
    made_deep(folder, depth)
    remove_tree(folder)
    assert not folder.exists()


def test_a_tree_is_removed_with_what_its_owner_closed_and_without_what_its_links_lead_to(
    tmp_path: Path,
):
    folder, outside = tmp_path / "home", tmp_path / "outside"
    (folder / "closed" / "inner").mkdir(parents=True)
    outside.mkdir(mode=0o750)
    (outside / "file").write_text("kept", encoding="utf-8")
    (folder / "closed" / "link").symlink_to(outside)
    made_deep(folder, 2000)
    (folder / "closed" / "inner").chmod(0o000)
    (folder / "closed").chmod(0o500)
    remove_tree(folder)
    assert not folder.exists()
    assert (outside / "file").read_text(encoding="utf-8") == "kept"
    assert outside.stat().st_mode & 0o777 == 0o750


def test_a_tree_that_is_too_deep_to_be_measured_says_so(tmp_path: Path):
    made_deep(tmp_path, 100)
    assert measure_tree(tmp_path).entries == 101
    assert size_of_tree(tmp_path) >= 4096
    assert not measure_tree(tmp_path).closed
    remove_tree(tmp_path / "a")
    made_deep(tmp_path, 3000)
    assert measure_tree(tmp_path).closed
    remove_tree(tmp_path / "a")  # pytest could not
