"""Where the clients live: environments of their own below ``.cache``, from the locks beside this.

Each is made once, from names, versions and hashes; another process waits for the first. Of MCP
Inspector only the command line is used: ``overrides`` in ``package.json`` put a tiny package in the
place of what its web page is made with.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

from checks import npm

HERE = Path(__file__).parent
ROOT = HERE.parents[3]
CACHE = ROOT / ".cache"
PACKAGES = CACHE / "gateway-clients-npm"
INSPECTOR = PACKAGES.joinpath(
    "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
)
_SECONDS = 120.0


def python(name: str) -> Path:
    """Return the interpreter of an environment, made now unless that was done before."""
    home, lock = CACHE / f"gateway-clients-{name}", HERE / f"{name}.lock"
    CACHE.mkdir(exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n", encoding="ascii")
    with (CACHE / f"{home.name}.lock").open("w", encoding="ascii") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        finished = home / "finished.lock"
        if not finished.exists() or finished.read_bytes() != lock.read_bytes():
            _make(home, lock)
            shutil.copyfile(lock, finished)
    return home / "bin" / "python"


def _make(home: Path, lock: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)
    _uv("venv", "--python", sys.executable, str(home))
    options = ("--require-hashes", "--no-build", "--compile-bytecode")
    _uv("pip", "install", *options, "--python", str(home), "--requirement", str(lock))


def _uv(*words: str) -> None:
    uv = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
    subprocess.run([uv, *words, "--quiet"], check=True, timeout=_SECONDS)


def packages() -> Path:
    """Return the folder with what comes from npm, installed now unless that was done before."""
    npm.install(HERE, PACKAGES, INSPECTOR)
    return PACKAGES
