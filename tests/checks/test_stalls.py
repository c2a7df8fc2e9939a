"""Stalls: a test that nothing in Python can end, ends with its process, and the others go on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from checks.tree import ROOT

#: Both wait outside of Python, where no signal handler runs: one in a test, one in a fixture.
SUITE = """
import ctypes
import signal
import threading
import pytest

def hang():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    ctypes.PyDLL(None).sleep(600)

@pytest.mark.timeout(3)
def test_hangs():
    hang()

def test_others():
    threading.Event().wait(2)  # longer than the timeout of the file, not than that of the command

@pytest.fixture
def unending():
    yield
    hang()

@pytest.mark.timeout(timeout=3)
def test_never_torn_down(unending):
    pass

@pytest.mark.timeout(3)
def test_failed_and_never_torn_down(unending):
    assert False
"""
CONFTEST = """
from checks import stalls

stalls.GRACE_SECONDS = 0.5

def pytest_configure(config):
    config.pluginmanager.register(stalls.StallWatch(), "stalls")
"""


def test_a_test_that_cannot_be_ended_is_named_and_the_others_run(tmp_path: Path):
    (tmp_path / "test_suite.py").write_text(SUITE, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 1\n", encoding="utf-8")
    options = [
        "-n2",
        "--timeout=30",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "--rootdir",
        str(tmp_path),
    ]
    command = [sys.executable, "-m", "checks.run_tests", *options, str(tmp_path)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=110,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 passed" in done.stdout, "what hung in its fixture had passed before"
    for name in ("test_hangs", "test_never_torn_down", "test_failed_and_never_torn_down"):
        assert f"failed: test_suite.py::{name}" in done.stdout, done.stdout
    assert 'test_suite.py", line' in done.stderr, "the stacks say where"
