"""The gate itself: every step runs, and a failed one says how to mend it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from checks.gate import STATIC, TESTS, Step, line, run, run_side_by_side
from checks.soak import Tally, keep, record
from checks.tree import repository_files


def python(name: str, code: str) -> Step:
    return Step(name, (sys.executable, "-c", code), "mend it")


def test_a_failing_step_does_not_stop_the_others(capsys: pytest.CaptureFixture[str]):
    steps = [python("bad", "print('what is wrong'); raise SystemExit(3)"), python("good", "")]
    assert [result.passed for result in run_side_by_side(steps)] == [False, True]
    printed = capsys.readouterr().out
    assert "FAILED  fix: mend it\nwhat is wrong" in printed
    assert printed.rstrip().endswith("ok")


def test_a_line_names_the_step_and_its_fix():
    failed = run(python("bad", "raise SystemExit(1)"))
    assert line(failed).startswith("bad ")
    assert line(failed).endswith("fix: mend it")


def test_the_gate_has_all_its_steps():
    names = {step.name for step in (*STATIC, TESTS)}
    static = {"format", "lint", "types", "layers", "sizes", "docs", "web", "guests", "proto"}
    assert names == {*static, "tests"}


def test_a_soak_leaves_a_record_that_names_what_failed(tmp_path: Path):
    tallies = {"tests/a.py::test_a": Tally(3, 0, 2.5), "tests/a.py::test_b": Tally(0, 1, 0.1)}
    keep(record(tallies, [], 1), tmp_path)
    summary = (tmp_path / "soak.md").read_text(encoding="utf-8")
    assert "3 passed, 1 failed" in summary
    assert "| `tests/a.py::test_b` | 0 | 1 | 0.1 |" in summary
    assert (tmp_path / "soak.json").exists()


def test_without_git_the_folders_are_walked(tmp_path: Path):
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "a.md").touch()
    (tmp_path / "b.md").touch()
    assert repository_files(tmp_path) == [tmp_path / "b.md"]
