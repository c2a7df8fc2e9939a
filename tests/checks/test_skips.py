"""Skips: what the list may say, and what an unexplained skip does to a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from checks.skips import ALLOWED_SKIPS, AllowedSkip, BadSkipList, read_allowed
from checks.tree import ROOT

PLUGINS = ("xdist.plugin", "inline_snapshot.pytest_plugin")
SUITE = """
import pytest

def test_runs():
    pass

@pytest.mark.parametrize("n", [1, 2])
def test_skipped(n):
    pytest.skip("no such device")

@pytest.mark.xfail(strict=True)
def test_expected_to_fail():
    assert False
"""
RUN = """
import sys
import pytest
from checks.skips import SkipWatch, read_allowed
from pathlib import Path

folder, allowed = sys.argv[1:]
watch = SkipWatch()
pytest.main(["-n1", "-p", "no:cacheprovider", "--rootdir", folder, folder], plugins=[watch])
print("", *watch.complaints(read_allowed(Path(allowed))), sep="\\n>")
"""


def complaints_of(folder: Path, allowed: str, suite: str = SUITE) -> list[str]:
    (folder / "test_suite.py").write_text(suite, encoding="utf-8")
    allowed_list = folder / "allowed.txt"
    allowed_list.write_text(allowed, encoding="utf-8")
    command = [sys.executable, "-c", RUN, str(folder), str(allowed_list)]
    done = run(command, check=True)
    return [line[1:] for line in done.stdout.splitlines() if line.startswith(">")]


def run_tests(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_suite.py").write_text(SUITE, encoding="utf-8")
    options = ["-n0", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    command = [sys.executable, "-m", "checks.run_tests", *options, *arguments]
    return run(command, check=False)


def run(command: list[str], *, check: bool) -> subprocess.CompletedProcess[str]:
    """Run pytest with the plugins that it is given options for: to load all takes seconds."""
    env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": ",".join(PLUGINS)}
    return subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        timeout=100,
        check=check,
        env={**os.environ, **env},
    )


def test_a_run_with_an_unexplained_skip_fails_after_the_closing_line_of_pytest(tmp_path: Path):
    done = run_tests(tmp_path)
    assert done.returncode == 1
    summary, _, complaint = done.stdout.partition("1 passed, 2 skipped, 1 xfailed")
    assert summary
    assert "test_skipped[2]: skipped (no such device)" in complaint


def test_a_run_without_tests_fails(tmp_path: Path):
    done = run_tests(tmp_path, "-k", "no_such_test")
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "no tests ran: check the path" in done.stdout


def test_a_run_without_skips_passes(tmp_path: Path):
    assert run_tests(tmp_path, "-k", "test_runs").returncode == 0


def test_every_skip_that_is_not_named_is_a_complaint(tmp_path: Path):
    complaints = complaints_of(tmp_path, "")
    named = [complaint.split("::")[1].split(": ")[0] for complaint in complaints]
    assert named == ["test_expected_to_fail", "test_skipped[1]", "test_skipped[2]"]
    assert "no such device" in complaints[1]


def test_a_skip_named_with_a_reason_is_no_complaint(tmp_path: Path):
    allowed = "*::test_skipped[*]  # needs a device\n*test_expected_to_fail  # a known gap\n"
    assert complaints_of(tmp_path, allowed) == []


def test_a_module_that_skips_itself_is_seen(tmp_path: Path):
    suite = "import pytest\npytest.importorskip('no_such_module_here')\n"
    [complaint] = complaints_of(tmp_path, "", suite)
    assert "test_suite.py" in complaint
    assert "no_such_module_here" in complaint


def test_brackets_in_a_pattern_stand_for_themselves():
    skip = AllowedSkip("tests/test_a.py::test_x[1]", "reason")
    assert skip.covers("tests/test_a.py::test_x[1]")
    assert not skip.covers("tests/test_a.py::test_x1")
    assert not skip.covers("tests/test_a.py::test_x[1]-and-more")


@pytest.mark.parametrize("line", ["tests/test_a.py::test_x", "tests/test_a.py::test_x  # "])
def test_a_line_without_a_reason_is_refused_with_its_number(tmp_path: Path, line: str):
    path = tmp_path / "allowed.txt"
    path.write_text(f"# a comment\n\n{line}\n", encoding="utf-8")
    with pytest.raises(BadSkipList, match=r"allowed\.txt:3"):
        read_allowed(path)


def test_the_list_of_this_repository_can_be_read():
    assert all(skip.reason for skip in read_allowed(ALLOWED_SKIPS))
