"""What uv and npm write down, as it is read and written again."""

from __future__ import annotations

import json
from pathlib import Path

from bascule.node.pool.lock_files import (
    constraint_lines,
    node_packages,
    node_trees,
    requirement_lines,
    requirements,
)
from bascule.node.pool.pins import Package

COMPILED = """\
# a comment
anyio==4.1 ; python_version > "3" \\
    --hash=sha256:bb \\
    --hash=sha256:aa
    # via mcp
mcp[cli]==1.0+local
tool @ https://example.com/tool-1.whl \\
    --hash=sha256:cc
/srv/a b/probe-1.whl \\
    --hash=sha256:dd
-e file:///srv/e
"""
FOUND = (
    Package("anyio", "4.1", ("sha256:aa", "sha256:bb")),
    Package("mcp", "1.0+local"),
    Package("tool", "https://example.com/tool-1.whl", ("sha256:cc",)),
    Package("/srv/a b/probe-1.whl", "", ("sha256:dd",)),
    Package("-e file:///srv/e", ""),
)


def test_what_uv_compiled_is_read_and_what_is_written_says_the_same():
    assert tuple(requirements(COMPILED)) == FOUND
    assert tuple(requirements(requirement_lines(FOUND))) == FOUND


def test_versions_alone_name_no_places():
    assert constraint_lines(FOUND) == "anyio==4.1\nmcp==1.0+local\n"


def test_what_npm_notes_is_read_with_packages_inside_of_others_and_without_links(tmp_path: Path):
    tree = tmp_path / "_npx" / "0123456789abcdef"
    tree.mkdir(parents=True)
    entries = {
        "": {"dependencies": {"a": "1"}},
        "node_modules/@s/a": {"version": "1.0.0", "integrity": "sha512-x"},
        "node_modules/@s/a/node_modules/b": {"version": "2.0.0", "integrity": "sha512-y"},
        "node_modules/c": {"version": "3.0.0"},
        "node_modules/d": {"link": True, "resolved": "d"},
    }
    (tree / "package-lock.json").write_text(json.dumps({"packages": entries}), "utf-8")
    (tree / "package.json").write_text("{}", "utf-8")
    found = node_trees(tmp_path)
    assert sorted(found) == [f"{tree.name}/package-lock.json", f"{tree.name}/package.json"]
    assert node_packages(found) == (
        Package("@s/a", "1.0.0", ("sha512-x",)),
        Package("b", "2.0.0", ("sha512-y",)),
        Package("c", "3.0.0"),
    )


def test_notes_that_are_links_or_no_notes_are_left_out(tmp_path: Path):
    for name in ("0123456789abcdef", "..x", "fedcba9876543210"):
        (tmp_path / "_npx" / name).mkdir(parents=True)
        (tmp_path / "_npx" / name / "package-lock.json").write_text("no json", "utf-8")
    link = tmp_path / "_npx" / "fedcba9876543210" / "package-lock.json"
    link.unlink()
    link.symlink_to("/etc/hostname")
    found = node_trees(tmp_path)
    assert list(found) == ["0123456789abcdef/package-lock.json"]
    assert node_packages(found) == ()
