"""A command that kills itself at a moment of its own, as a machine or its owner may.

``nursery`` forks a command for every line ``[MOMENT, WORDS...]``. Its moments are what it does to
databases, folders and sockets, counted from its start; at the one that is named it kills itself,
before that is done. One that comes to its end says how it ended, how many moments it had, and which
of them were renames.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from importlib import import_module
from itertools import count
from types import FrameType

from bascule.cli.main import run
from tests.process.ledger_node import say

_RENAMES = {os.rename, os.replace}
_FOLDERS = {*_RENAMES, os.unlink, os.mkdir, os.rmdir}
_METHODS = {"execute", "executemany", "fetchmany", "commit", "close", "send"}


class Moments:
    """Counts what the process does, and ends it."""

    def __init__(self, last: int) -> None:
        self._last = last
        self._numbers = count(1)
        self.seen = 0
        self.renames: list[int] = []

    def hear(self, _: FrameType, event: str, called: object) -> None:
        """Take notice of a call that the interpreter tells of."""
        if event != "c_call" or not self._counts(called):
            return
        self.seen = next(self._numbers)
        if called in _RENAMES:
            self.renames.append(self.seen)
        if self.seen == self._last:
            os.kill(os.getpid(), signal.SIGKILL)

    def _counts(self, called: object) -> bool:
        owner = type(getattr(called, "__self__", None)).__module__
        name = getattr(called, "__name__", "")
        return called in _FOLDERS or (owner in {"sqlite3", "socket"} and name in _METHODS)


def doomed(last: int, *words: str) -> None:
    moments = Moments(last)
    threading.setprofile(moments.hear)
    sys.setprofile(moments.hear)
    code = run(words)
    sys.setprofile(None)
    say(f"ended {json.dumps([code, moments.seen, moments.renames])}")
    os._exit(0)


def nursery() -> None:
    import_module("bascule.app.postgres_place")  # once for all of them
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            doomed(*json.loads(line))
        say(f"pid {child}")
        os.waitpid(child, 0)
        say("dead")


if __name__ == "__main__":
    nursery()
