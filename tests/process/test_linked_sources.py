"""Editable installations: a confined Python finds the code that its environment points to."""

from __future__ import annotations

from pathlib import Path

from bascule.node.pool.process.linked_sources import linked_sources


def environment(tmp_path: Path, **listings: str) -> Path:
    packages = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    for name, text in listings.items():
        (packages / f"{name}.pth").write_text(text, encoding="utf-8")
    return tmp_path / "env"


def test_the_folders_that_an_environment_names_are_returned(tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    found = environment(tmp_path, a=f"{tmp_path}/one\n", b=f"# no\n{tmp_path}/two\n")
    assert list(linked_sources(str(found))) == [f"{tmp_path}/one", f"{tmp_path}/two"]


def test_what_is_code_relative_missing_or_around_the_environment_is_not(tmp_path: Path):
    listing = f"import os; os.getcwd()\nrelative\n{tmp_path}/missing\n{tmp_path}\n/\n"
    assert list(linked_sources(str(environment(tmp_path, a=listing)))) == []


def test_a_folder_that_is_no_environment_has_none(tmp_path: Path):
    assert list(linked_sources(str(tmp_path / "nowhere"))) == []
