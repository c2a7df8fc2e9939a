"""An environment with real weakincentives, on a Python of its own: found, or fetched with uv.

The framework needs a newer Python than Bascule does. One is looked for on the path, among pyenv's
and uv's; failing that uv fetches one. What is locked is installed once, into ``.cache``, and the
next run finds it there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from bascule.section.weakincentives import OLDEST_PYTHON

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".cache"
HOME = CACHE / "weakincentives-0.27.0"
PYTHON = HOME / "bin" / "python"
LOCKS = (ROOT / "requirements.lock", HERE / "weakincentives.lock")
#: Up to the newest that all of these have wheels for.
MINORS = (12, 13, 14)
WANTED = ">={}.{}.{},<3.15".format(*OLDEST_PYTHON)
FETCHED = "3.12"
LOOK_SECONDS = 20.0
FETCH_SECONDS = 60.0
INSTALL_SECONDS = 120.0
#: Where uv puts a Python that it fetches, and nowhere else.
OF_UV = {"UV_PYTHON_INSTALL_DIR": str(CACHE / "python"), "UV_PYTHON_INSTALL_BIN": "0"}
#: Where no Python can be fetched, that should be known soon.
AT_ONCE = {"UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": "10"}
FAILED = (OSError, subprocess.CalledProcessError, subprocess.TimeoutExpired)


class NoPython(Exception):
    """There is no Python here that the framework runs on, and none could be fetched."""


def environment() -> Path:
    """Return the interpreter of the environment, made now unless that was done before."""
    CACHE.mkdir(exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n", encoding="ascii")
    with (CACHE / "weakincentives.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (_is_finished() and PYTHON.exists()):
            _make(interpreter())
    return PYTHON


def interpreter() -> str:
    """Return a Python that is new enough; raise NoPython when there is none to be had."""
    for candidate in _candidates():
        if _is_wanted(candidate):
            return candidate
    try:
        _uv("python", "install", FETCHED, seconds=FETCH_SECONDS, **AT_ONCE)
        return _uv("python", "find", "--managed-python", FETCHED, seconds=LOOK_SECONDS).strip()
    except FAILED as error:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        raise NoPython(f"no Python {oldest} or newer here, and uv could not fetch one") from error


def _candidates() -> Iterator[str]:
    """Yield what may be a Python: some of pyenv's names on the path lead nowhere."""
    yield sys.executable
    for minor in MINORS:
        yield from filter(None, [shutil.which(f"python3.{minor}")])
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for minor in MINORS:
        yield from map(str, sorted(pyenv.glob(f"3.{minor}.*/bin/python")))
    try:
        options = ("--system", "--no-python-downloads")
        yield _uv("python", "find", *options, WANTED, seconds=LOOK_SECONDS).strip()
    except FAILED:
        return


def _is_wanted(python: str) -> bool:
    ask = "import sys; print(sys.implementation.name + sys.abiflags, *sys.version_info[:3])"
    try:
        name, *version = _said([python, "-c", ask], seconds=LOOK_SECONDS).split()
    except FAILED:
        return False
    major, minor, micro = map(int, version)
    new_enough = (major, minor, micro) >= OLDEST_PYTHON
    return name == "cpython" and new_enough and minor in MINORS  # not a free-threaded one


def _make(python: str) -> None:
    shutil.rmtree(HOME, ignore_errors=True)
    _uv("venv", "--python", python, str(HOME), seconds=LOOK_SECONDS)
    files = [word for lock in LOCKS for word in ("--requirement", str(lock))]
    options = ("--require-hashes", "--no-build", "--compile-bytecode", "--python", str(PYTHON))
    _uv("pip", "install", *options, *files, seconds=INSTALL_SECONDS)
    (HOME / "finished").write_text(_digest(), encoding="ascii")


def _is_finished() -> bool:
    finished = HOME / "finished"
    return finished.exists() and finished.read_text(encoding="ascii") == _digest()


def _digest() -> str:
    return hashlib.sha256(b"".join(lock.read_bytes() for lock in LOCKS)).hexdigest()


def _uv(*words: str, seconds: float, **settings: str) -> str:
    uv = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
    return _said([uv, *words], seconds=seconds, environ={**OF_UV, **settings, **os.environ})


def _said(words: list[str], *, seconds: float, environ: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        words,
        env=environ,
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        timeout=seconds,
        check=False,
    )
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, words, done.stdout, done.stderr)
    return done.stdout
