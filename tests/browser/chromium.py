"""Debian's chromium, driven by playwright: found, or installed where that is possible."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, async_playwright

_LOCK = Path(__file__).parents[2] / ".cache" / "chromium.lock"
_SECONDS = 240.0
#: It runs in containers, alone on this machine, and asks nobody but the addresses of this machine.
OPTIONS = (
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


class NoChromium(Exception):
    """There is no chromium, and it cannot be installed from here."""


def chromium() -> str:
    """Return the program; install it where it is missing, on Debian and as root. Others wait."""
    _LOCK.parent.mkdir(exist_ok=True)
    with _LOCK.open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (found := shutil.which("chromium")):
            _install()
            found = shutil.which("chromium")
    if not found:
        raise NoChromium("apt-get installed no chromium")
    return found


def _install() -> None:
    if os.geteuid() != 0 or not (apt := shutil.which("apt-get")):
        raise NoChromium("no chromium on this machine: apt-get install chromium")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
        done = subprocess.run(
            [apt, "--quiet", *words],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment,
            timeout=_SECONDS,
        )
        if done.returncode != 0:
            raise NoChromium(f"apt-get {words[0]}: {done.stderr.decode('utf-8', 'replace')}")


@asynccontextmanager
async def browsing(program: str, *more: str) -> AsyncGenerator[Browser]:
    """Start a browser and end it with the block; ``more`` are further options of it."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=(*OPTIONS, *more))
        try:
            yield browser
        finally:
            await browser.close()
