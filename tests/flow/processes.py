"""Processes seen from outside: who is there, by a word in the command line."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection

import psutil

from bascule.node.pool.process.warden_process import MARKER
from tests.waits import ended


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


async def vanished(*words: str, but: Collection[int] = (), seconds: float = 1.0) -> None:
    """Wait this long until no process has one of the words, those aside that may stay."""
    async with asyncio.timeout(seconds):
        while left := [pid for pid in traces(*words) if pid not in but]:
            await asyncio.gather(*map(ended, left))
