"""The size limits: what is at the limit passes, one line more does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from checks.sizes import FUNCTION_LINES, MODULE_LINES, TEST_MODULE_LINES, complaints_about


def written(root: Path, name: str, source: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")
    return path


def function_of(lines: int) -> str:
    return "def long():\n" + "    x = 1\n" * (lines - 1)


@pytest.mark.parametrize(
    ("name", "limit"), [("src/a.py", MODULE_LINES), ("tests/test_a.py", TEST_MODULE_LINES)]
)
def test_a_module_may_reach_its_limit_and_not_pass_it(tmp_path: Path, name: str, limit: int):
    assert list(complaints_about(written(tmp_path, name, "x = 1\n" * limit), tmp_path)) == []
    [complaint] = complaints_about(written(tmp_path, name, "x = 1\n" * (limit + 1)), tmp_path)
    assert complaint.startswith(f"{name}: {limit + 1} lines")


def test_a_function_may_reach_its_limit_and_not_pass_it(tmp_path: Path):
    fits = written(tmp_path, "src/a.py", function_of(FUNCTION_LINES))
    assert list(complaints_about(fits, tmp_path)) == []
    too_long = written(tmp_path, "src/a.py", "\n" + function_of(FUNCTION_LINES + 1))
    [complaint] = complaints_about(too_long, tmp_path)
    assert complaint.startswith("src/a.py:2: long has 61 lines")


def test_a_method_and_an_inner_function_count_too(tmp_path: Path):
    body = "        x = 1\n" * FUNCTION_LINES
    source = f"class A:\n    async def slow(self):\n{body}"
    [complaint] = complaints_about(written(tmp_path, "src/a.py", source), tmp_path)
    assert "slow has 61 lines" in complaint


def test_a_file_that_is_not_python_is_named_instead_of_ending_the_check(tmp_path: Path):
    [complaint] = complaints_about(written(tmp_path, "src/a.py", "\ndef (\n"), tmp_path)
    assert complaint.startswith("src/a.py:2: cannot be read as Python")
