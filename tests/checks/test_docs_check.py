"""The drawn tree and the README's length; the pages themselves are checked by the gate."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from checks.docs_check import README_LINES, listed_paths, readme_complaints, tree_complaints

TREE = """# Architecture

```text
src/bascule/
  clock.py      time
  model/        nouns
    server.py   one server
```
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    model = tmp_path / "src" / "bascule" / "model"
    model.mkdir(parents=True)
    for path in (model / "server.py", model / "__init__.py", model.parent / "__init__.py"):
        path.touch()
    (model.parent / "clock.py").touch()
    (model.parent / "__pycache__").mkdir()
    return tmp_path


def test_a_true_tree_passes(root: Path):
    assert tree_complaints(TREE, root) == []


def test_what_is_drawn_but_not_there_is_named(root: Path):
    page = TREE.replace("server.py ", "tool.py ")
    [complaint] = tree_complaints(page, root)
    assert "src/bascule/model/tool.py is drawn but is not there" in complaint


@pytest.mark.parametrize("new", ["wire/frames.py", "__main__.py"])
def test_what_is_there_but_not_drawn_is_named(root: Path, new: str):
    path = root / "src" / "bascule" / new
    path.parent.mkdir(exist_ok=True)
    path.touch()
    [complaint] = tree_complaints(TREE, root)
    assert f"src/bascule/{new.split('/')[0]} is there but is not drawn" in complaint


def test_a_page_without_a_tree_is_a_complaint(root: Path):
    assert len(tree_complaints("# Architecture\n", root)) == 1


def test_paths_are_read_by_indentation():
    drawn = "  a/   x\n    b/\n      c.py  y\n    d.py\n  e.py\n"
    expected = ["a", "a/b", "a/b/c.py", "a/d.py", "e.py"]
    assert list(listed_paths(drawn)) == [PurePosixPath(path) for path in expected]


def test_the_readme_may_reach_its_limit_and_not_pass_it():
    assert readme_complaints("x\n" * README_LINES) == []
    assert len(readme_complaints("x\n" * (README_LINES + 1))) == 1
