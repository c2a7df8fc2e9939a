"""Processes seen from outside: who is there, by a word in the command line."""

from __future__ import annotations

import contextlib

import psutil

from bascule.clock import SYSTEM_CLOCK
from bascule.node.pool.process.warden_process import MARKER


def traces(*words: str) -> list[int]:
    """Return the living processes that have one of the words in their command line."""
    found: list[int] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(word in part for part in process.cmdline() for word in words):
                found.append(process.pid)
    return found


def owner_of(pid: int) -> str:
    """Return the word that a server's warden has in its own command line."""
    return psutil.Process(pid).environ()[MARKER].rpartition("/")[2].partition(".")[0]


async def vanished(*words: str, seconds: float = 1.0) -> None:
    """Wait until no process has one of the words; they have this long."""
    until = SYSTEM_CLOCK.monotonic() + seconds
    while left := traces(*words):
        assert SYSTEM_CLOCK.monotonic() < until, f"still there: {left}"
        await SYSTEM_CLOCK.sleep(0.005)
