"""``make`` says what it prepares, and passes no word of the installer's on."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCK = "requirements-dev.lock"
#: A Python that makes an environment, whose pip chatters as the real one does.
PYTHON = """\
#!/bin/sh
mkdir -p .uv/bin
cat > .uv/bin/pip <<'PIP'
#!/bin/sh
test -n "$PYTHONWARNDEFAULTENCODING" && echo "EncodingWarning: UTF-8 Mode" >&2
case "$*" in *"--quiet --quiet"*) ;; *) echo "WARNING: a location is ignored" >&2 ;; esac
cp uv-to-be .uv/bin/uv
PIP
chmod +x .uv/bin/pip
"""
#: An installer that writes down its calls. What it installs tells where programs are searched.
UV = """\
#!/bin/sh
mkdir -p .venv/bin
echo "$*" >> uv-calls
test -e .venv/bin/python || printf '#!/bin/sh\\necho "$PATH"\\n' > .venv/bin/python
chmod +x .venv/bin/python
test -n "$PYTHONWARNDEFAULTENCODING" || echo "the rest is no longer warned" >&2
"""


def make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    usual = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", "-C", str(folder), "--no-print-directory", *words],
        check=False,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=20,
        env={**usual, "PATH": "/usr/bin:/bin"},
    )


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for name in ("Makefile", LOCK, "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name, text in (("python", PYTHON), ("uv-to-be", UV)):
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def test_a_first_make_says_what_it_prepares_and_nothing_else(clone: Path):
    packages = [line for line in (clone / LOCK).read_text("utf-8").splitlines() if "==" in line]
    first = make(clone, "setup", "PYTHON=./python", "UV=.uv/bin/uv")
    assert (first.returncode, first.stderr) == (0, "")
    fetching, preparing, ready = first.stdout.splitlines()
    assert fetching.startswith("fetching the installer: uv ")
    assert f"preparing the environment: {len(packages)} packages" in preparing
    assert ready == "the environment is ready: .venv"
    again = make(clone, "setup", "PYTHON=./python", "UV=.uv/bin/uv")
    assert (again.stdout.replace("make: Nothing to be done for 'setup'.\n", ""), again.stderr) == (
        "",
        "",
    )


def test_servers_find_the_uvx_that_make_fetched_behind_the_machines_own(clone: Path):
    make(clone, "setup", "PYTHON=./python", "UV=.uv/bin/uv")
    up = make(clone, "up", "PYTHON=./python", "UV=.uv/bin/uv")
    assert (up.returncode, up.stderr) == (0, "")
    assert up.stdout.splitlines()[-1] == f"/usr/bin:/bin:{clone.resolve()}/.uv/bin"


@pytest.mark.requirement("cli:make-up")
def test_up_installs_what_serving_needs_and_leaves_the_rest_to_setup(clone: Path):
    words = ("PYTHON=./python", "UV=.uv/bin/uv")
    calls = clone / "uv-calls"
    first = make(clone, "up", *words)
    assert (first.returncode, first.stderr) == (0, "")
    assert "preparing what serving needs: " in first.stdout
    assert "requirements.lock" in calls.read_text("utf-8")
    assert LOCK not in calls.read_text("utf-8")
    calls.write_text("", encoding="utf-8")
    assert make(clone, "up", *words).stdout.startswith("/usr/bin")
    assert calls.read_text("utf-8") == ""
    assert make(clone, "setup", *words).returncode == 0
    synced = next(line for line in calls.read_text("utf-8").splitlines() if "pip sync" in line)
    assert synced.endswith(LOCK)


@pytest.mark.requirement("cli:make-up")
def test_up_takes_the_development_environment_as_it_is_if_that_fits(clone: Path):
    words = ("PYTHON=./python", "UV=.uv/bin/uv")
    make(clone, "setup", *words)
    (clone / "uv-calls").write_text("", encoding="utf-8")
    assert make(clone, "up", *words).stdout.startswith("/usr/bin")
    assert (clone / "uv-calls").read_text("utf-8") == ""
    os.utime(clone / ".venv" / ".stamp", (1, 1))
    assert "preparing what serving needs: " in make(clone, "up", *words).stdout
    assert "sync" not in (clone / "uv-calls").read_text("utf-8"), "nothing is taken away"
